"""Every metric of every service.

A service makes its class once, in ``main``, and hands it down. Labels come from
closed sets, and a model's name only from the catalog: what a client made up counts
under :data:`UNKNOWN`, so that nobody can fill the memory of whoever scrapes.

``labels(...)`` costs more than the update behind it (0.7 µs and 0.3 µs): keep the
child for what happens per request, update once per batch where there is a batch.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    exposition,
)

__all__ = [
    "METRICS_CONTENT_TYPE",
    "UNKNOWN",
    "FormerMetrics",
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
_VERSION: Final = ("model", "version")


class MetricsRegistry:
    """The metrics of one process, and those of its operating system process."""

    def __init__(self) -> None:
        self.collectors = CollectorRegistry()
        ProcessCollector(registry=self.collectors)

    def render(self) -> bytes:
        """The text that ``/metrics`` answers."""
        return exposition.generate_latest(self.collectors)


class ProcessMetrics:
    """What every service has."""

    def __init__(self, registry: MetricsRegistry) -> None:
        into = registry.collectors
        self.produce_errors = Counter(
            "headrace_produce_errors",
            "Records that the log did not take, by Kafka's name of the error",
            ["code"],
            registry=into,
        )
        self.log_clock_error = Gauge(
            "headrace_log_clock_error_seconds",
            "Largest error of a conversion between log time and the local clock",
            registry=into,
        )
        self.undecodable = Counter(
            "headrace_undecodable_records",
            "Records that were skipped, by the kind of topic",
            ["topic"],
            registry=into,
        )


class IngressMetrics:
    """What an ingress counts."""

    def __init__(self, registry: MetricsRegistry) -> None:
        into = registry.collectors
        self.requests = Counter(
            "headrace_requests",
            "Answered requests, by HTTP status; reason is empty for a success",
            [*_VERSION, "priority", "status", "reason"],
            registry=into,
        )
        self.latency = Histogram(
            "headrace_request_latency_seconds",
            "From a request's head to the end of its answer",
            [*_VERSION, "priority"],
            buckets=_SECONDS,
            registry=into,
        )
        self.in_flight = Gauge(
            "headrace_requests_in_flight",
            "Requests between admission and answer",
            registry=into,
        )
        self.replies = Counter(
            "headrace_replies",
            "Replies read: first answered a request, duplicate came after the first, "
            "late after the deadline, unknown named no request of this process",
            ["kind"],
            registry=into,
        )
        self.lanes_heard = Gauge(
            "headrace_lanes_heard",
            "Lanes whose batch former was heard within a second",
            registry=into,
        )
        self.connections = Gauge(
            "headrace_http_connections", "Open connections of clients", registry=into
        )


class FormerMetrics:
    """What a batch former counts."""

    def __init__(self, registry: MetricsRegistry) -> None:
        into = registry.collectors
        self.batches = Counter(
            "headrace_batches",
            "Batches sent to a worker, by why each left when it did",
            [*_VERSION, "reason"],
            registry=into,
        )
        self.batch_rows = Histogram(
            "headrace_batch_rows",
            "Rows of a batch, without padding",
            _VERSION,
            buckets=_ROWS,
            registry=into,
        )
        self.batch_requests = Histogram(
            "headrace_batch_requests",
            "Requests of a batch",
            _VERSION,
            buckets=_ROWS,
            registry=into,
        )
        self.batch_wait = Histogram(
            "headrace_batch_wait_seconds",
            "From the append of a batch's oldest request to its dispatch",
            _VERSION,
            buckets=_SECONDS,
            registry=into,
        )
        self.run_overrun = Histogram(
            "headrace_run_overrun_ratio",
            "Measured run time of a batch over the predicted one",
            _VERSION,
            buckets=_RATIOS,
            registry=into,
        )
        self.padded_rows = Counter(
            "headrace_padded_rows",
            "Rows that were run and belong to no request",
            _VERSION,
            registry=into,
        )
        self.queued = Gauge(
            "headrace_queued_requests",
            "Requests that wait for a batch",
            ["model", "lane", "priority"],
            registry=into,
        )
        self.oldest = Gauge(
            "headrace_queue_oldest_seconds",
            "Age of the oldest request that waits",
            ["model", "lane", "priority"],
            registry=into,
        )
        self.unsettled = Gauge(
            "headrace_unsettled_records",
            "Records between the committed offset and the reading position",
            ["lane", "priority"],
            registry=into,
        )
        self.refused = Counter(
            "headrace_refused_requests",
            "Requests that ended without running",
            ["model", "priority", "reason"],
            registry=into,
        )
        self.retries = Counter(
            "headrace_retries",
            "Requests that went back into the queue",
            ["model", "reason"],
            registry=into,
        )
        self.dead_letters = Counter(
            "headrace_dead_letters",
            "Records copied to a dead-letter topic",
            ["model", "reason"],
            registry=into,
        )
        self.duplicates = Counter(
            "headrace_duplicate_requests",
            "Records of a request that was queued already",
            ["model"],
            registry=into,
        )
        self.lapsed_leases = Counter(
            "headrace_leases_lapsed",
            "Batches of which nothing was heard within their lease",
            ["lane"],
            registry=into,
        )
        self.takeovers = Counter(
            "headrace_lane_takeovers",
            "Epochs that this process confirmed",
            ["lane"],
            registry=into,
        )
        self.epoch = Gauge(
            "headrace_lane_epoch", "The lane's epoch", ["lane"], registry=into
        )
        self.commits = Counter(
            "headrace_commits",
            "Commits of watermarks, by the coordinator's answer",
            ["outcome"],
            registry=into,
        )
        self.hops = Gauge(
            "headrace_hop_seconds",
            "Measured way: request (append to former), control (former to a run's "
            "start), response (run's end to reply)",
            ["lane", "hop"],
            registry=into,
        )
        self.credits_free = Gauge(
            "headrace_credits_free",
            "Batches that the lane's workers could take now",
            ["lane"],
            registry=into,
        )


class WorkerMetrics:
    """What a GPU worker counts."""

    def __init__(self, registry: MetricsRegistry) -> None:
        into = registry.collectors
        self.runs = Counter(
            "headrace_runs",
            "Batches run or given back, by outcome: ok, or the reason",
            [*_VERSION, "outcome"],
            registry=into,
        )
        self.run_time = Histogram(
            "headrace_run_seconds",
            "Time of one run on the device",
            _VERSION,
            buckets=_SECONDS,
            registry=into,
        )
        self.wait_time = Histogram(
            "headrace_worker_wait_seconds",
            "From a batch's arrival at the worker to its run",
            _VERSION,
            buckets=_SECONDS,
            registry=into,
        )
        self.run_rows = Counter(
            "headrace_run_rows", "Rows run, with padding", _VERSION, registry=into
        )
        self.busy = Counter(
            "headrace_device_busy_seconds", "Time in which a run ran", registry=into
        )
        self.held = Gauge(
            "headrace_batches_held", "Batches taken and not yet done", registry=into
        )
        self.refused = Counter(
            "headrace_refused_batches",
            "Batches and syncs refused unread, by reason",
            ["reason"],
            registry=into,
        )
        self.unacked = Counter(
            "headrace_unacked_replies",
            "Successful replies that the log did not take in time",
            _VERSION,
            registry=into,
        )
        self.ready_versions = Gauge(
            "headrace_ready_versions", "Model versions in memory", registry=into
        )
        self.loads = Counter(
            "headrace_model_loads",
            "Version folders loaded, by how it ended: ready or refused",
            ["outcome"],
            registry=into,
        )
