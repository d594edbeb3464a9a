"""When a recorded request is to be sent again."""

from __future__ import annotations

__all__ = ["Pace"]


class Pace:
    """``speed``: how much faster than recorded; None: as fast as they are run. The
    first one is due at once, and the time between any two counts from it."""

    def __init__(self, speed: float | None) -> None:
        self._speed = speed
        self._first: tuple[int, int] | None = None
        """When it was sent, and when it was recorded."""

    def early_us(self, recorded_us: int, now_us: int) -> int:
        """How long it is still too early to send what was recorded then."""
        if self._speed is None or self._first is None:
            return 0
        sent_us, first_us = self._first
        due_us = sent_us + round((recorded_us - first_us) / self._speed)
        return max(due_us - now_us, 0)

    def sent(self, recorded_us: int, now_us: int) -> None:
        if self._first is None:
            self._first = now_us, recorded_us
