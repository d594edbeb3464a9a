"""The one place that reads a clock.

Decisions take ``now_us`` as an argument. Shells read it here: microseconds of the
machine's monotonic clock, whose origin means nothing outside the process.
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """A source of monotonic time."""

    def now_us(self) -> int:
        """Microseconds since an arbitrary origin; never goes back."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def now_us(self) -> int:
        return time.monotonic_ns() // 1000
