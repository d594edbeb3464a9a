"""Time that moves when a test says so."""

from __future__ import annotations

__all__ = ["ManualClock"]


class ManualClock:
    """A :class:`headrace.clock.Clock` that a test winds."""

    def __init__(self, now_us: int = 0) -> None:
        self._now_us = now_us

    def now_us(self) -> int:
        return self._now_us

    def advance(self, us: int) -> None:
        assert us >= 0, "time never goes back"
        self._now_us += us
