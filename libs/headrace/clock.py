"""The one place that reads a clock.

Decisions take ``now_us`` as an argument. Shells read it here: microseconds of the
machine's monotonic clock, whose origin means nothing outside the process.
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock", "wall_us"]


class Clock(Protocol):
    """A source of monotonic time."""

    def now_us(self) -> int:
        """Microseconds since an arbitrary origin; never goes back."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def now_us(self) -> int:
        return time.monotonic_ns() // 1000


def wall_us() -> int:
    """Microseconds since 1970 by the wall clock, which may jump: for what people read,
    and for times so far away that it does not matter."""
    return time.time_ns() // 1000
