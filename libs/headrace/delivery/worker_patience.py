"""How long a run may take.

It is stopped for two reasons. At its *run limit* nobody can tell whether it ever ends,
and the process ends with it. Long before, its members may lose their time limits by it,
most of them for one whose row hangs. So a batch of several is given *patience*; then it
is stopped, the process goes on, and its members are tried in halves, until the one that
hangs is alone. While that is under way the version is in *doubt*, and patience short.
"""

from __future__ import annotations

from collections import deque

from headrace.delivery.worker_events import BatchRead, Outcome, RunEnded
from headrace.delivery.worker_held import Held
from headrace.delivery.worker_limits import WorkerLimits
from headrace.domain import MemberStatus, Setback

__all__ = ["RunWatch"]

RUN_TIMES_KEPT = 64

LIMIT_ASSUMED_US = 5_000_000
"""What is left to members beside bulk: their batch does not say when it is too late."""

_Version = tuple[str, str]


class RunWatch:
    """Knows how long runs took, and so how long one that goes on may take."""

    def __init__(self, limits: WorkerLimits) -> None:
        self._limits = limits
        self._times: dict[_Version, dict[int, deque[int]]] = {}
        """Of each number of rows."""
        self._runs: dict[_Version, int] = {}
        self._doubted_until_us: dict[_Version, int] = {}

    def start(self, held: Held, now_us: int) -> None:
        held.started_us = now_us
        held.run_limit_at_us = now_us + self._limit_us(held.read)
        self.start_patience(held, now_us)

    def start_patience(self, held: Held, now_us: int) -> None:
        """At the start, and anew after a pause of the process."""
        patience_us = self._patience_us(held.read, now_us)
        held.patience_ends_us = None if patience_us is None else now_us + patience_us

    def stopped(self, held: Held, now_us: int) -> None:
        """It was asked to stop, and is again until it does."""
        held.is_stopped = now_us < held.run_limit_at_us
        held.patience_ends_us = now_us + self._limits.patience_min_us

    def ended(self, held: Held, event: RunEnded) -> tuple[Outcome, ...]:
        """Take in the end of a run, and say how it went."""
        read = held.read
        was_stopped = event.outcomes[0].reason == Setback.RUN_LIMIT
        if event.run_us and not was_stopped:
            version = read.model, read.version
            sizes = self._times.setdefault(version, {})
            times = sizes.setdefault(read.padded_rows, deque(maxlen=RUN_TIMES_KEPT))
            times.append(event.run_us)
            self._runs[version] = self._runs.get(version, 0) + 1
        if not was_stopped or not held.is_stopped:
            return event.outcomes
        self._doubt(held)
        text = (
            f"its run was stopped after {event.run_us // 1000} ms, where "
            f"{read.predicted_us / 1000:.3g} were expected"
        )
        return (Outcome(MemberStatus.RETRY, Setback.STOPPED, text),)

    def _doubt(self, held: Held) -> None:
        read = held.read
        version = read.model, read.version
        known_us = self._doubted_until_us.get(version, 0)
        until_us = max(known_us, _useful_until_us(read, held.started_us))
        self._doubted_until_us[version] = until_us

    def _limit_us(self, read: BatchRead) -> int:
        """Of so few samples the 99th percentile is the longest."""
        sizes = self._times.get((read.model, read.version), {})
        wanted = self._limits.run_factor * max(sizes.get(read.padded_rows, (0,)))
        return min(max(wanted, self._limits.run_min_us), self._limits.run_max_us)

    def _patience_us(self, read: BatchRead, now_us: int) -> int | None:
        """None: it may run to its limit."""
        limits, version = self._limits, (read.model, read.version)
        if read.bulk or self._runs.get(version, 0) < limits.patience_runs:
            return None
        longest_us = max(map(max, self._times[version].values()))
        is_doubted = now_us < self._doubted_until_us.get(version, 0)
        is_alone = read.members == 1
        if is_doubted and not is_alone:
            return max(limits.doubt_factor * longest_us, limits.patience_min_us)
        percent = 100 if is_alone and not is_doubted else limits.patience_percent
        left_us = _useful_until_us(read, now_us) - now_us
        return max(
            limits.run_factor * max(longest_us, read.predicted_us),
            limits.patience_min_us,
            left_us * percent // 100,
        )


def _useful_until_us(read: BatchRead, now_us: int) -> int:
    """When the time of the last member is over, but for the way of its answer."""
    if read.latest_start_us is None:
        return now_us + LIMIT_ASSUMED_US
    return read.latest_start_us + read.predicted_us
