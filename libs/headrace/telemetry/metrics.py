"""Every metric of every service.

A service makes its class once, in ``main``, and hands it down. Labels come from
closed sets, and a model's name only from the catalog: what a client made up counts
under :data:`UNKNOWN`, so that nobody can fill the memory of whoever scrapes.

``labels(...)`` costs more than the update behind it (0.7 µs and 0.3 µs): keep the
child for what happens per request, update once per batch where there is a batch. What
is measured of each request is counted as plain numbers
(:mod:`headrace.telemetry.tallies`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    exposition,
)

from headrace.telemetry.tallies import SECOND_US, Distributions, RequestTallies

__all__ = [
    "METRICS_CONTENT_TYPE",
    "UNKNOWN",
    "Counter",
    "FormerMetrics",
    "Histogram",
    "IngressMetrics",
    "MetricsRegistry",
    "ProcessMetrics",
    "WorkerMetrics",
]

UNKNOWN: Final = "unknown"
"""The label of a model or version that the catalog does not have."""

METRICS_CONTENT_TYPE: Final = exposition.CONTENT_TYPE_LATEST

_SECONDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
_ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_RATIOS: Final = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)
_FILLS: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
_THOUSANDTHS: Final = 1000
_VERSION: Final = ("model", "version")
_QUEUE: Final = (*_VERSION, "priority")


class MetricsRegistry:
    """The metrics of one process, and those of its operating system process."""

    def __init__(self) -> None:
        self.collectors = CollectorRegistry()
        ProcessCollector(registry=self.collectors)

    def render(self) -> bytes:
        """The text that ``/metrics`` answers."""
        return exposition.generate_latest(self.collectors)


class _Maker:
    """Makes metrics in one registry."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._into = registry.collectors

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self._into)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self._into)

    def histogram(
        self, name: str, text: str, *labels: str, buckets: Sequence[float]
    ) -> Histogram:
        return Histogram(name, text, labels, registry=self._into, buckets=buckets)

    def distributions(
        self, name: str, text: str, *, bounds: Sequence[float], unit: int = 1
    ) -> Distributions:
        """By model, version and priority."""
        made = Distributions(name, text, _QUEUE, bounds, unit)
        self._into.register(made)
        return made


class ProcessMetrics:
    """What every service has."""

    def __init__(self, registry: MetricsRegistry) -> None:
        made = _Maker(registry)
        self.produce_errors = made.counter(
            "headrace_produce_errors",
            "Records that the log did not take, by Kafka's name of the error",
            "code",
        )
        self.log_clock_error = made.gauge(
            "headrace_log_clock_error_seconds",
            "Largest error of a conversion between log time and the local clock",
        )
        self.undecodable = made.counter(
            "headrace_undecodable_records",
            "Records that were skipped, by the kind of topic",
            "topic",
        )


class IngressMetrics:
    """What an ingress counts."""

    def __init__(self, registry: MetricsRegistry) -> None:
        made = _Maker(registry)
        self.requests = RequestTallies(
            (
                "headrace_requests",
                "Answered requests, by HTTP status; reason is empty for a success",
            ),
            (
                "headrace_request_latency_seconds",
                "From a request's head to the end of its answer",
            ),
            _SECONDS,
        )
        registry.collectors.register(self.requests)
        self.in_flight = made.gauge(
            "headrace_requests_in_flight", "Requests between admission and answer"
        )
        self.replies = made.counter(
            "headrace_replies",
            "Replies read: first answered a request, duplicate came after the first, "
            "late after the deadline, cancelled after its client had gone, unknown "
            "named no request of this process",
            "kind",
        )
        self.lanes_heard = made.gauge(
            "headrace_lanes_heard", "Lanes whose batch former was heard within a second"
        )
        self.connections = made.gauge(
            "headrace_http_connections", "Open connections of clients"
        )


class FormerMetrics:
    """What a batch former counts.

    A batch may mix priorities: less urgent work rides along where there is room. What
    is measured of a request bears its own priority; what is measured of a batch that of
    its head, for whose sake it left.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        made = _Maker(registry)
        self._make_of_members(made)
        self._make_of_batches(made)
        self._make_of_requests(made)
        self._make_of_lanes(made)

    def _make_of_members(self, made: _Maker) -> None:
        self.queue_wait = made.distributions(
            "headrace_queue_wait_seconds",
            "From a request's append to the dispatch of its batch, by the request's "
            "own priority",
            bounds=_SECONDS,
            unit=SECOND_US,
        )
        self.slack = made.distributions(
            "headrace_slack_seconds",
            "From the dispatch of a request's batch to its deadline, less the batch's "
            "predicted run: what the way there and back, and runs before it, may take. "
            "0: nothing is left, it will be late. By the request's own priority; who "
            "has no deadline is not counted",
            bounds=(0.0, *_SECONDS),
            unit=SECOND_US,
        )

    def _make_of_batches(self, made: _Maker) -> None:
        self.batches = made.counter(
            "headrace_batches",
            "Batches sent to a worker, by why each left when it did; priority is that "
            "of a batch's head",
            *_QUEUE,
            "reason",
        )
        self.batch_rows = made.distributions(
            "headrace_batch_rows",
            "Rows of a batch, without padding; priority is that of its head",
            bounds=_ROWS,
        )
        self.batch_fill = made.distributions(
            "headrace_batch_fill_ratio",
            "Rows of a batch, without padding, over the most that its version takes; "
            "priority is that of its head",
            bounds=_FILLS,
            unit=_THOUSANDTHS,
        )
        self.batch_requests = made.distributions(
            "headrace_batch_requests",
            "Requests of a batch; priority is that of its head",
            bounds=_ROWS,
        )
        self.run_overrun = made.distributions(
            "headrace_run_overrun_ratio",
            "Measured run time of a batch over the predicted one: the error of the "
            "latency model; priority is that of the batch's head",
            bounds=_RATIOS,
            unit=_THOUSANDTHS,
        )
        self.padded_rows = made.counter(
            "headrace_padded_rows",
            "Rows that were run and belong to no request",
            *_VERSION,
        )
        self.tokens = made.counter(
            "headrace_batch_tokens",
            "Rows times padded length of batches, of versions with padding",
            *_VERSION,
        )
        self.padding_tokens = made.counter(
            "headrace_padding_tokens",
            "The part of headrace_batch_tokens that is padding",
            *_VERSION,
        )

        self.links = made.gauge(
            "headrace_links",
            "Workers of this machine that can be sent batches without the log",
        )

    def _make_of_requests(self, made: _Maker) -> None:
        self.queued = made.gauge(
            "headrace_queued_requests",
            "Requests that wait for a batch",
            "model",
            "lane",
            "priority",
        )
        self.oldest = made.gauge(
            "headrace_queue_oldest_seconds",
            "Age of the oldest request that waits",
            "model",
            "lane",
            "priority",
        )
        self.refused = made.counter(
            "headrace_refused_requests",
            "Requests that ended without running",
            "model",
            "priority",
            "reason",
        )
        self.retries = made.counter(
            "headrace_retries",
            "Requests that went back into the queue",
            "model",
            "reason",
        )
        self.dead_letters = made.counter(
            "headrace_dead_letters",
            "Records copied to a dead-letter topic",
            "model",
            "reason",
        )

    def _make_of_lanes(self, made: _Maker) -> None:
        self.unsettled = made.gauge(
            "headrace_unsettled_records",
            "Records between the committed offset and the reading position",
            "lane",
            "priority",
        )
        self.lapsed_leases = made.counter(
            "headrace_leases_lapsed",
            "Batches of which nothing was heard within their lease",
            "lane",
        )
        self.takeovers = made.counter(
            "headrace_lane_takeovers", "Epochs that this process confirmed", "lane"
        )
        self.epoch = made.gauge("headrace_lane_epoch", "The lane's epoch", "lane")
        self.commits = made.counter(
            "headrace_commits",
            "Commits of watermarks, by the coordinator's answer",
            "outcome",
        )
        self.hops = made.gauge(
            "headrace_hop_seconds",
            "Measured way: request (append to former), control (former to a run's "
            "start), response (run's end to reply)",
            "lane",
            "hop",
        )


class WorkerMetrics:
    """What a GPU worker counts."""

    def __init__(self, registry: MetricsRegistry) -> None:
        made = _Maker(registry)
        self.runs = made.counter(
            "headrace_runs",
            "Batches run or given back, by outcome: ok, or the reason",
            *_VERSION,
            "outcome",
        )
        self.run_time = made.histogram(
            "headrace_run_seconds",
            "Time of one run on the device",
            *_VERSION,
            buckets=_SECONDS,
        )
        self.wait_time = made.histogram(
            "headrace_worker_wait_seconds",
            "From a batch's arrival at the worker to its run",
            *_VERSION,
            buckets=_SECONDS,
        )
        self.run_rows = made.counter(
            "headrace_run_rows", "Rows run, with padding", *_VERSION
        )
        self.busy = made.counter(
            "headrace_device_busy_seconds", "Time in which a run ran"
        )
        self.held = made.gauge(
            "headrace_batches_held", "Batches taken and not yet done"
        )
        self.refused = made.counter(
            "headrace_refused_batches",
            "Batches and syncs refused unread, by reason",
            "reason",
        )
        self.unacked = made.counter(
            "headrace_unacked_replies",
            "Successful replies that the log did not take in time",
            *_VERSION,
        )
        self.ready_versions = made.gauge(
            "headrace_ready_versions", "Model versions in memory"
        )
        self.loads = made.counter(
            "headrace_model_loads",
            "Version folders loaded, by how it ended: ready or refused; failed: an "
            "error that nobody foresaw, refused as well",
            "outcome",
        )
