"""What a run counts, in memory that does not grow with it."""

from __future__ import annotations

from collections import Counter
from math import log

__all__ = ["Histogram", "Tallies"]

BUCKET_RATIO = 1.01


class Histogram:
    """Counts of positive integers in buckets one percent wide."""

    def __init__(self) -> None:
        self._counts = Counter[int]()
        self.count = 0
        self.total = 0

    def add(self, value: int) -> None:
        self._counts[int(log(max(value, 1)) / log(BUCKET_RATIO))] += 1
        self.count += 1
        self.total += value

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def quantile(self, part: float) -> float:
        """The value below which ``part`` of the counted lie, within one percent."""
        wanted = part * self.count
        for bucket in sorted(self._counts):
            wanted -= self._counts[bucket]
            if wanted <= 0:
                return float(BUCKET_RATIO ** (bucket + 0.5))
        return 0.0


class Tallies:
    """Of one kind of request: a tenant's, a priority's, a second's, or all."""

    def __init__(self) -> None:
        self.offered = 0
        self.on_time = 0
        self.late = 0
        self.rows_served = 0
        self.refused = Counter[str]()
        self.latency_us = Histogram()

    @property
    def attainment(self) -> float:
        """Part of the offered requests that were answered in time."""
        return self.on_time / self.offered if self.offered else 1.0
