"""What a process says of itself: log events and metrics."""

from headrace.telemetry.events import Fact, Log, LogEvent
from headrace.telemetry.logs import (
    LogFormat,
    LogLevel,
    LogSettings,
    are_logs_configured,
    configure_logs,
    get_log,
)
from headrace.telemetry.metrics import (
    METRICS_CONTENT_TYPE,
    UNKNOWN,
    Counter,
    FormerMetrics,
    Histogram,
    IngressMetrics,
    MetricsRegistry,
    ProcessMetrics,
    WorkerMetrics,
)
from headrace.telemetry.scraped import Sample, samples_of

__all__ = [
    "METRICS_CONTENT_TYPE",
    "UNKNOWN",
    "Counter",
    "Fact",
    "FormerMetrics",
    "Histogram",
    "IngressMetrics",
    "Log",
    "LogEvent",
    "LogFormat",
    "LogLevel",
    "LogSettings",
    "MetricsRegistry",
    "ProcessMetrics",
    "Sample",
    "WorkerMetrics",
    "are_logs_configured",
    "configure_logs",
    "get_log",
    "samples_of",
]
