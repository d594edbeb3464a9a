"""Guaranteed shares of the busy time, so that strict priorities starve nobody."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Shares"]


class Shares:
    """Device time owed to each priority that has work waiting, in microseconds."""

    def __init__(self, shares: Sequence[float]) -> None:
        self._shares = tuple(shares)
        self._owed_us = [0.0] * len(self._shares)

    def served(
        self, run_us: float, parts_us: Sequence[float], backlogged: Sequence[bool]
    ) -> None:
        """A batch takes ``run_us`` of a device; what of it counts for each priority."""
        for priority, taken_us in enumerate(parts_us):
            owed_us = 0.0
            if backlogged[priority]:
                owed_us = self._owed_us[priority] + self._shares[priority] * run_us
            if taken_us:
                owed_us = max(owed_us - taken_us, -run_us)
            self._owed_us[priority] = owed_us

    def is_owed(self, priority: int, run_us: int) -> bool:
        """Whether a run of this length is paid for."""
        return self._shares[priority] > 0 and self._owed_us[priority] >= run_us
