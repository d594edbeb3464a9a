"""Guaranteed shares of the busy time, so that strict priorities starve nobody."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Shares"]


class Shares:
    """Device time owed to each priority that has work waiting, in microseconds."""

    def __init__(self, shares: Sequence[float]) -> None:
        self._shares = tuple(shares)
        self._owed_us = [0.0] * len(self._shares)

    def served(self, priority: int, run_us: int, backlogged: Sequence[bool]) -> None:
        """A batch of ``priority`` takes ``run_us`` of a device."""
        for other, share in enumerate(self._shares):
            if backlogged[other]:
                self._owed_us[other] += share * run_us
            else:
                self._owed_us[other] = 0.0
        self._owed_us[priority] = max(self._owed_us[priority] - run_us, -run_us)

    def is_owed(self, priority: int, run_us: int) -> bool:
        """Whether a run of this length is paid for."""
        return self._shares[priority] > 0 and self._owed_us[priority] >= run_us
