"""The broker's append clock, estimated from outside (D1).

Deadlines travel in log time, so that no two machines' wall clocks are ever compared.
A process learns how far log time is ahead of its own monotonic clock from records of
its own whose delivery reports carry the time of their append: the append happened
between sending and the report, so the middle is wrong by half the round trip at most.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

__all__ = ["LogClock"]

MEMORY_US = 60_000_000
"""How long a sample counts: long enough to hold a quick round trip, short enough that
two drifting oscillators (100 ppm) move apart by 6 ms only."""

RESOLUTION_US = 1_000
"""Log time is cut to milliseconds."""


class _Sample(NamedTuple):
    acked_us: int
    round_trip_us: int
    ahead_us: int


class LogClock:
    """Converts between this process's monotonic clock and log time."""

    def __init__(self) -> None:
        # Ascending in both columns: a sample that a later, quicker one outdoes can
        # never be the best again.
        self._samples: deque[_Sample] = deque()

    @property
    def is_set(self) -> bool:
        """Whether a sample has come in; before that nothing can be converted."""
        return bool(self._samples)

    @property
    def error_us(self) -> int:
        """Largest error of a conversion now."""
        return (self._samples[0].round_trip_us + RESOLUTION_US) // 2

    def feed(self, sent_us: int, acked_us: int, log_us: int) -> None:
        """A record of ours was sent and acked at these instants of our clock, and
        appended at ``log_us``."""
        round_trip_us = acked_us - sent_us
        ahead_us = log_us + RESOLUTION_US // 2 - (sent_us + acked_us) // 2
        while self._samples and self._samples[-1].round_trip_us >= round_trip_us:
            self._samples.pop()
        self._samples.append(_Sample(acked_us, round_trip_us, ahead_us))
        while self._samples[0].acked_us < acked_us - MEMORY_US:
            self._samples.popleft()

    def to_log(self, mono_us: int) -> int:
        return mono_us + self._samples[0].ahead_us

    def to_mono(self, log_us: int) -> int:
        return log_us - self._samples[0].ahead_us
