"""What the former measures: its batches, its hops, and what it ended itself."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from headrace.delivery.decisions import WriteBatch
from headrace.domain import (
    DeadLetter,
    Dispatch,
    Done,
    HopsMeasured,
    Priority,
    Reason,
    ReleaseReason,
    Request,
    Terminal,
)
from headrace.telemetry import FormerMetrics, LogEvent, ProcessMetrics, get_log
from headrace.telemetry.tallies import Distribution
from headrace.wire import Topics

__all__ = ["Measuring"]

LEASE_LAPSED: LogEvent = "lease.lapsed"
SENT_KEPT_MAX = 10_000
"""Batches remembered until their done; beyond, the oldest is no longer measured."""
THOUSANDTHS = 1000
"""In which ratios are counted."""
HOPS_KEPT = 64
HOPS_MIN = 5
"""Fewer measured batches say nothing."""
HOPS_US = 2_000_000
"""What was measured longer ago no longer counts: a hop that looked too long for any
deadline would keep away the requests by which it could be measured anew."""
HOP_US_MAX = 250_000
"""A hop that took longer was a stall of a process, and counts as this one."""
AHEAD_QUANTILE = 0.9
"""Of the way to a worker and back, by which the next batch leaves before a run ends.
A batch that comes late lets the device idle, one that leaves early binds its members
a little sooner: at the median the device idled after every tenth run."""


class QueueCounts(NamedTuple):
    """What is counted of one version's batches or members in one priority: kept, since
    finding a label costs more than counting."""

    wait_us: Distribution
    slack_us: Distribution
    rows: Distribution
    fill: Distribution
    requests: Distribution
    overrun: Distribution
    batches: dict[ReleaseReason, Callable[[], None]]


class Sent(NamedTuple):
    lane: int
    sent_us: int
    predicted_us: int
    head: QueueCounts


class Hop(NamedTuple):
    at_us: int
    control_us: int
    response_us: int


class Wait(NamedTuple):
    at_us: int
    wait_us: int


class Measuring:
    """Updates metrics once per batch, with all of its members.

    ``rows_max_of`` a model's version: most rows of a batch; 0 where it is not known.
    """

    def __init__(
        self,
        topics: Topics,
        metrics: FormerMetrics,
        process: ProcessMetrics,
        hops_assumed: HopsMeasured,
        rows_max_of: Callable[[str, str], int],
    ) -> None:
        self._topics = topics
        self._rows_max_of = rows_max_of
        self._queues: dict[tuple[str, str, Priority], QueueCounts] = {}
        self._metrics = metrics
        self._process = process
        self._hops_assumed = hops_assumed
        self._sent: OrderedDict[str, Sent] = OrderedDict()
        self._hops: dict[int, deque[Hop]] = {}
        self._waits: dict[int, deque[Wait]] = {}
        self._batches = self._path_us = 0
        self._log = get_log()

    def end_window(self, busy_us: int) -> None:
        """Find out anew how long a batch keeps the loop busy, with all of it: it was
        for ``busy_us`` since the last time."""
        batches, self._batches = self._batches, 0
        self._path_us = busy_us // batches if batches >= HOPS_MIN else 0

    def dispatched(self, lane: int, decision: WriteBatch, now_us: int) -> None:
        dispatch = decision.dispatch
        requests = dispatch.requests
        first = requests[0]
        model, version = first.model, first.version
        rows = sum(request.rows for request in requests)
        self._batches += 1
        self._count_members(dispatch, now_us)
        head = self._queue(model, version, first.priority)
        count_batch = head.batches.get(dispatch.reason)
        if count_batch is None:
            name = first.priority.name.lower()
            labels = model, version, name, dispatch.reason.value
            count_batch = self._metrics.batches.labels(*labels).inc
            head.batches[dispatch.reason] = count_batch
        count_batch()
        head.rows.observe((rows,))
        head.requests.observe((len(requests),))
        if rows_max := self._rows_max_of(model, version):
            head.fill.observe((rows * THOUSANDTHS // rows_max,))
        self._count_padding(dispatch, rows)
        self._log.debug(
            "batch.dispatched",
            batch=dispatch.batch,
            lane=lane,
            slot=dispatch.slot,
            model=model,
            version=version,
            rows=rows,
            requests=len(requests),
            reason=dispatch.reason,
            predicted_us=dispatch.predicted_us,
        )
        self._sent[dispatch.batch] = Sent(lane, now_us, dispatch.predicted_us, head)
        if len(self._sent) > SENT_KEPT_MAX:
            self._sent.popitem(last=False)

    def _queue(self, model: str, version: str, priority: Priority) -> QueueCounts:
        found = self._queues.get((model, version, priority))
        if found is None:
            metrics, labels = self._metrics, (model, version, priority.name.lower())
            found = self._queues[model, version, priority] = QueueCounts(
                wait_us=metrics.queue_wait.of(*labels),
                slack_us=metrics.slack.of(*labels),
                rows=metrics.batch_rows.of(*labels),
                fill=metrics.batch_fill.of(*labels),
                requests=metrics.batch_requests.of(*labels),
                overrun=metrics.run_overrun.of(*labels),
                batches={},
            )
        return found

    def _count_members(self, dispatch: Dispatch, now_us: int) -> None:
        by_priority: dict[Priority, list[Request]] = {}
        for request in dispatch.requests:
            by_priority.setdefault(request.priority, []).append(request)
            if request.attempt > 1 or request.group:
                why = "split" if request.group else "again"
                self._metrics.retries.labels(request.model, why).inc()
        ends_us = now_us + dispatch.predicted_us
        for priority, some in by_priority.items():
            queue = self._queue(some[0].model, some[0].version, priority)
            queue.wait_us.observe([now_us - request.arrived_us for request in some])
            queue.slack_us.observe(
                [
                    max(request.deadline_us - ends_us, 0)
                    for request in some
                    if request.deadline_us is not None
                ]
            )

    def _count_padding(self, dispatch: Dispatch, rows: int) -> None:
        metrics, requests = self._metrics, dispatch.requests
        labels = requests[0].model, requests[0].version
        if dispatch.padded_rows > rows:
            metrics.padded_rows.labels(*labels).inc(dispatch.padded_rows - rows)
        if dispatch.padded_length:
            tokens = dispatch.padded_rows * dispatch.padded_length
            asked = sum(request.rows * request.length for request in requests)
            metrics.tokens.labels(*labels).inc(tokens)
            metrics.padding_tokens.labels(*labels).inc(tokens - asked)

    def done(self, done: Done, now_us: int) -> None:
        sent = self._sent.pop(done.batch, None)
        if sent is None or not done.run_us:
            return
        ratio = done.run_us * THOUSANDTHS // max(sent.predicted_us, 1)
        sent.head.overrun.observe((ratio,))
        inside_us = done.wait_us + done.input_us + done.run_us + done.output_us
        way_us = max(now_us - sent.sent_us - inside_us, 0) // 2
        hops = self._hops.setdefault(sent.lane, deque(maxlen=HOPS_KEPT))
        control_us = min(way_us + done.input_us, HOP_US_MAX)
        response_us = min(way_us + done.output_us, HOP_US_MAX)
        hops.append(Hop(now_us, control_us, response_us))

    def hops(self, lane: int, now_us: int) -> HopsMeasured:
        """The median of the lane's last batches; the settings' where there are few. A
        high quantile would take one stall of a busy machine for the rule."""
        hops = [hop for hop in self._hops.get(lane, ()) if hop.at_us > now_us - HOPS_US]
        if len(hops) < HOPS_MIN:
            return self._hops_assumed
        control = [hop.control_us for hop in hops]
        return HopsMeasured(
            control_us=_quantile(control, 0.5),
            response_us=_quantile([hop.response_us for hop in hops], 0.5),
            ahead_us=2 * _quantile(control, AHEAD_QUANTILE),
            path_us=self._path_us,
        )

    def requests_read(
        self, lane: int, last: Request, taken_us: int, now_us: int
    ) -> None:
        """Once per batch of records read, with its last request.

        What lay in the log when the lane was taken, and bulk, which waits there until
        there is room for it, waited for other things than the way.
        """
        if last.priority == Priority.BULK or last.arrived_us < taken_us:
            return
        waits = self._waits.setdefault(lane, deque(maxlen=HOPS_KEPT))
        wait_us = min(max(now_us - last.arrived_us, 0), HOP_US_MAX)
        waits.append(Wait(now_us, wait_us))

    def request_us(self, lane: int, now_us: int) -> int:
        """From a request's append to the former, the median; 0 when none was read
        lately."""
        waits = self._waits.get(lane, ())
        lately = [wait.wait_us for wait in waits if wait.at_us > now_us - HOPS_US]
        return _quantile(lately, 0.5) if lately else 0

    def alarmed(self, lane: int, event: str) -> None:
        if event == LEASE_LAPSED:
            self._metrics.lapsed_leases.labels(lane).inc()

    def refused(self, terminals: Iterable[Terminal]) -> None:
        counts = Counter(
            (each.model, each.source.partition, each.reason) for each in terminals
        )
        for (model, partition, reason), count in counts.items():
            _, priority = self._topics.lane_and_priority(partition)
            labels = model, priority.name.lower(), reason.value
            self._metrics.refused.labels(*labels).inc(count)

    def cancelled(self, request: Request) -> None:
        name = request.priority.name.lower()
        self._metrics.refused.labels(request.model, name, Reason.CANCELLED.value).inc()

    def dead_letters(self, letters: Iterable[DeadLetter]) -> None:
        counts = Counter((each.model, each.reason) for each in letters)
        for (model, reason), count in counts.items():
            self._metrics.dead_letters.labels(model, reason.value).inc(count)

    def undecodable(self, topic: str) -> None:
        kind = topic.removeprefix(f"{self._topics.prefix}.").partition(".")[0]
        self._process.undecodable.labels(kind).inc()


def _quantile(values: Sequence[int], quantile: float) -> int:
    return sorted(values)[int(quantile * len(values))]
