"""What the metrics say of batches."""

from __future__ import annotations

from headrace.delivery.decisions import WriteBatch
from headrace.domain import Dispatch, HopsMeasured, ReleaseReason
from headrace.telemetry import FormerMetrics, MetricsRegistry, ProcessMetrics
from headrace.wire import Topics
from services.batch_former.measuring import Measuring
from tests.scheduling.scenes import a_request


def test_padding_is_counted_in_tokens() -> None:
    registry = MetricsRegistry()
    measuring = Measuring(
        Topics(),
        FormerMetrics(registry),
        ProcessMetrics(registry),
        HopsMeasured(1000, 1000),
    )
    dispatch = Dispatch(
        batch="b",
        slot=0,
        requests=(a_request(rows=2, length=3), a_request(length=8)),
        padded_rows=3,
        predicted_us=1000,
        predicted_p99_us=1000,
        latest_start_us=None,
        reason=ReleaseReason.FULL,
        padded_length=8,
    )

    measuring.dispatched(0, WriteBatch(1, 0, 1, 1, 1000, dispatch), 0)

    shown = registry.render().decode()
    of = '{model="m",version="1"}'
    assert f"headrace_batch_tokens_total{of} 24.0" in shown
    assert f"headrace_padding_tokens_total{of} 10.0" in shown
