"""Bulk runs that are longer than online requests can stand, and when one may start."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

__all__ = ["LongRuns"]


class LongRuns:
    """What such runs took of each slot, as the time in which its share pays for it.

    By the clock and not by busy time: what is lost to a run is who comes while it
    lasts, and a device that is nearly idle would take hours to earn one.
    """

    def __init__(self, share: float, *, late_us: int) -> None:
        self._share = share
        self._late_us = late_us
        self._paid_at_us: dict[int, float] = {}

    def may_start(
        self, slots: AbstractSet[int], run_us: int, *, arrived_us: int, now_us: int
    ) -> bool:
        """Whether the share of the slots' time since ``arrived_us`` is a run of
        ``run_us``, and the runs before it are paid for. Only the former depends on its
        length: otherwise shorter ones would spend what a longer one waits for."""
        if self._share * len(slots) * (now_us - arrived_us) < run_us:
            return False
        owed_us = sum(self._paid_at_us.get(slot, 0) - now_us for slot in slots)
        return owed_us <= 0

    def started(self, slots: AbstractSet[int], run_us: int, now_us: int) -> None:
        """One of ``slots`` runs for ``run_us``, and all of them pay: by other time than
        it takes itself. What starts later than it might, by ``late_us`` at most, is
        not to wait for that again."""
        if not self._share:
            return
        pays_us = (run_us / self._share + run_us) / len(slots)
        least_us = now_us - self._late_us
        for slot in slots:
            paid_at_us = max(self._paid_at_us.get(slot, 0), least_us)
            self._paid_at_us[slot] = paid_at_us + pays_us
