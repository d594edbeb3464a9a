"""How long a batch may take before its slot is asked what became of it.

A lease belongs to the batch, not to its members: a slot whose batch has got lost has a
credit less even when every member is settled by another attempt, and only a question
gives it back.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.delivery.limits import LaneLimits
from headrace.domain import ServedVersion

__all__ = ["LeaseWatch", "announced_p99_us", "lease_us"]


def lease_us(p99s_us: Iterable[int], limits: LaneLimits) -> int:
    """The lease of a batch, from the predicted p99 of the runs of all batches ahead of
    it in its slot and of its own."""
    wanted = limits.lease_factor * sum(p99s_us) + limits.lease_slack_us
    return max(wanted, limits.lease_min_us)


def announced_p99_us(
    served: ServedVersion | None, rows: int, limits: LaneLimits
) -> int:
    """The p99 of a run that has no measurements: twice the announced time of the next
    larger probed size, of the largest one for a batch beyond it."""
    if served is None or not served.run_us:
        return limits.run_unknown_us
    probed = [size for size in served.run_us if size >= rows]
    return 2 * served.run_us[min(probed, default=max(served.run_us))]


class LeaseWatch:
    """D4: leases run only while our own heartbeats come back through the log; a time
    without them is added to every lease."""

    def __init__(self, limits: LaneLimits) -> None:
        self._limits = limits
        self._heard_us: int | None = None

    def heard(self, now_us: int) -> int:
        """Our heartbeat was read; by how much every lease is extended."""
        gap_us = 0 if self._heard_us is None else now_us - self._heard_us
        self._heard_us = now_us
        return gap_us if gap_us > self._limits.heartbeat_late_us else 0

    def runs(self, now_us: int) -> bool:
        """Whether a lease may lapse now."""
        if self._heard_us is None:
            return False
        return now_us - self._heard_us <= self._limits.heartbeat_late_us
