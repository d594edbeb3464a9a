"""What a run counts, in memory that does not grow with its requests."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from math import log

import msgspec

from headrace.domain import Request
from headrace.simulation.workload import Kind

__all__ = ["Histogram", "Results", "Tallies"]

BUCKETS_PER_E = 1 / log(1.01)
"""Buckets are one percent wide."""

SECOND_US = 1_000_000
LARGEST = 1 << 62
"""No value is larger."""


class Histogram:
    """Counts of positive integers."""

    def __init__(self) -> None:
        self._counts = Counter[int]()
        self._least, self._most = LARGEST, 0
        self.count = 0
        self.total = 0

    def add(self, value: int) -> None:
        self._counts[int(log(value) * BUCKETS_PER_E) if value > 0 else 0] += 1
        self.count += 1
        self.total += value
        self._most = max(self._most, value)
        self._least = min(self._least, value)

    def merge(self, other: Histogram) -> None:
        self._counts.update(other._counts)
        self._least = min(self._least, other._least)
        self._most = max(self._most, other._most)
        self.count += other.count
        self.total += other.total

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def quantile(self, part: float) -> int:
        """The value below which ``part`` of the counted lie, within one percent."""
        wanted = part * self.count
        for bucket in sorted(self._counts):
            wanted -= self._counts[bucket]
            if wanted <= 0:
                return self._middle(bucket)
        return 0

    def distribution(self) -> list[tuple[int, float]]:
        """Ascending values, each with the part of all that are at most as large."""
        found, below = [], 0
        for bucket in sorted(self._counts):
            below += self._counts[bucket]
            found.append((self._middle(bucket), below / self.count))
        return found

    def _middle(self, bucket: int) -> int:
        """What stands for a bucket: nothing outside of what was counted."""
        middle: int = round(1.01 ** (bucket + 0.5))
        return min(max(middle, self._least), self._most)


class Tallies:
    """Of requests of one kind, or of several put together."""

    def __init__(self) -> None:
        self.offered = 0
        self.on_time = 0
        self.on_time_within = 0.0
        """Of those, what ran while requests still came; of a batch that ran across the
        end of the last stream, that part of its requests. What drains afterwards is the
        more the longer a policy lets its queues become, whatever rate it holds."""

        self.late = 0
        self.refused = Counter[str]()
        self.latency_us = Histogram()
        self.offered_by_second = array("q")
        self.on_time_by_second = array("q")
        """By the second in which they were offered."""

        self.device_us_by_second = array("d")
        """Device time given, by the second in which the run ended."""

    @property
    def attainment(self) -> float:
        """Part of the offered requests that were answered in time."""
        return self.on_time / self.offered if self.offered else 1.0

    def attainment_between(self, start_s: int, end_s: int) -> float:
        """Of requests offered in these seconds."""
        offered = sum(self.offered_by_second[start_s:end_s])
        return sum(self.on_time_by_second[start_s:end_s]) / offered if offered else 1.0

    def answer(self, request: Request, at_us: int, part_within: float) -> None:
        """Its answer reached the client; ``part_within`` is how much of its run was
        while requests still came."""
        if request.deadline_us is None or at_us <= request.deadline_us:
            self.on_time += 1
            self.on_time_within += part_within
            self.on_time_by_second[request.arrived_us // SECOND_US] += 1
        else:
            self.late += 1
        self.latency_us.add(at_us - request.arrived_us)

    def reach(self, second: int) -> None:
        """Have counts for ``second``."""
        missing = second + 1 - len(self.offered_by_second)
        if missing > 0:
            self.offered_by_second.extend([0] * missing)
            self.on_time_by_second.extend([0] * missing)
            self.device_us_by_second.extend([0.0] * missing)

    def merge(self, other: Tallies) -> None:
        self.offered += other.offered
        self.on_time += other.on_time
        self.on_time_within += other.on_time_within
        self.late += other.late
        self.refused.update(other.refused)
        self.latency_us.merge(other.latency_us)
        self.reach(len(other.offered_by_second) - 1)
        for second, offered in enumerate(other.offered_by_second):
            self.offered_by_second[second] += offered
            self.on_time_by_second[second] += other.on_time_by_second[second]
            self.device_us_by_second[second] += other.device_us_by_second[second]


class Results(msgspec.Struct, kw_only=True):
    """What came of a run."""

    seconds: float
    workers: int
    kinds: list[tuple[Kind, Tallies]]
    batch_rows: Histogram
    busy_us: int = 0
    ended_us: int = 0
    """When the last answer reached its client."""

    release: Counter[str] = msgspec.field(default_factory=Counter)
    overrun: int = 0
    """Batches that ran longer than predicted for leases."""

    def of(
        self,
        *,
        tenant: str | None = None,
        priority: int | None = None,
        limited: bool | None = None,
        model: int | None = None,
    ) -> Tallies:
        """All requests that match what is given, together. ``limited``: with a time
        limit, or without."""
        return _together(
            tallies
            for kind, tallies in self.kinds
            if (tenant is None or kind.tenant == tenant)
            and (priority is None or kind.priority == priority)
            and (limited is None or limited == (kind.limit_us is not None))
            and (model is None or kind.model == model)
        )


def _together(parts: Iterable[Tallies]) -> Tallies:
    whole = Tallies()
    for part in parts:
        whole.merge(part)
    return whole
