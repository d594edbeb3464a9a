"""What the metrics say of batches."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.delivery.decisions import WriteBatch
from headrace.domain import (
    Dispatch,
    Done,
    HopsMeasured,
    Priority,
    ReleaseReason,
    Request,
)
from headrace.telemetry import FormerMetrics, MetricsRegistry, ProcessMetrics
from headrace.wire import Topics
from services.batch_former.measuring import HOP_US_MAX, Measuring
from tests.scheduling.scenes import a_request

LABELS = ("priority", "reason", "le")


def a_measuring(registry: MetricsRegistry) -> Measuring:
    return Measuring(
        Topics(),
        FormerMetrics(registry),
        ProcessMetrics(registry),
        HopsMeasured(1000, 1000),
        rows_max_of=lambda *_: 8,
    )


def test_a_request_is_on_its_way_from_its_append_to_its_reading() -> None:
    measuring = a_measuring(MetricsRegistry())
    for took_us in (1000, 3000, 2000):
        measuring.requests_read(0, a_request(at_us=50_000), 0, 50_000 + took_us)

    assert measuring.request_us(0, 60_000) == 2000
    assert measuring.request_us(1, 60_000) == 0
    assert measuring.request_us(0, 9_000_000) == 0


def test_what_waits_in_the_log_for_other_things_than_the_way_tells_nothing() -> None:
    """What an earlier owner of the lane left behind, and bulk; a stall tells little."""
    measuring = a_measuring(MetricsRegistry())
    taken_us, now_us = 10_000_000, 10_001_000
    left = a_request(at_us=taken_us - 1)
    bulk = a_request(at_us=taken_us, priority=Priority.BULK, limit_us=None)
    for last in (left, bulk):
        measuring.requests_read(0, last, taken_us, now_us)
    assert measuring.request_us(0, now_us) == 0

    stalled_us = taken_us + 5_000_000
    measuring.requests_read(0, a_request(at_us=taken_us), taken_us, stalled_us)
    assert measuring.request_us(0, stalled_us) == HOP_US_MAX


def test_a_batch_costs_the_loop_the_time_of_all_its_turns() -> None:
    measuring = a_measuring(MetricsRegistry())
    dispatch = Dispatch(
        batch="b",
        slot=0,
        requests=(a_request(),),
        padded_rows=1,
        predicted_us=1000,
        predicted_p99_us=1000,
        latest_start_us=None,
        reason=ReleaseReason.IDLE,
    )
    done = Done("b", 0, 1, rows=1, wait_us=0, run_us=500, members=())
    for number in range(10):
        now_us = number * 10_000
        measuring.dispatched(0, WriteBatch(1, 0, 1, 1, 1000, dispatch), now_us)
        measuring.done(done, now_us + 5_000)
    measuring.end_window(10 * (700 + 300))
    assert measuring.hops(0, 100_000).path_us == 1000

    measuring.end_window(5_000)
    assert measuring.hops(0, 100_000).path_us == 0


def test_padding_is_counted_in_tokens() -> None:
    registry = MetricsRegistry()
    measuring = a_measuring(registry)
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


def test_each_member_waits_and_has_time_left_by_its_own_priority() -> None:
    """In a batch of 5 ms that bulk work, and a request that is late, ride in."""
    registry = MetricsRegistry()
    measuring = a_measuring(registry)
    online = a_request(at_us=100_000, priority=Priority.REALTIME, limit_us=50_000)
    late = a_request(at_us=112_000, priority=Priority.REALTIME, limit_us=6_000)
    bulk = a_request(at_us=20_000, rows=2, priority=Priority.BULK, limit_us=None)
    limited = a_request(at_us=90_000, priority=Priority.BULK, limit_us=1_000_000)
    dispatch = a_dispatch(online, late, bulk, limited, predicted_us=5_000)

    measuring.dispatched(0, WriteBatch(1, 0, 1, 1, 1000, dispatch), 114_000)
    measuring.done(a_done(dispatch, run_us=6_000), 125_000)

    told = samples(registry)
    assert told["headrace_queue_wait_seconds_sum", "realtime"] == pytest.approx(
        0.014 + 0.002
    )
    assert told["headrace_queue_wait_seconds_count", "realtime"] == 2
    assert told["headrace_queue_wait_seconds_sum", "bulk"] == pytest.approx(
        0.094 + 0.024
    )
    assert told["headrace_slack_seconds_sum", "realtime"] == pytest.approx(
        0.150 - 0.114 - 0.005
    )
    assert told["headrace_slack_seconds_bucket", "realtime", "0.0"] == 1
    assert told["headrace_slack_seconds_bucket", "realtime", "0.05"] == 2
    # Who has no deadline has no time left either way.
    assert told["headrace_slack_seconds_count", "bulk"] == 1
    assert told["headrace_slack_seconds_sum", "bulk"] == pytest.approx(
        1.090 - 0.114 - 0.005
    )


def test_a_batch_is_measured_by_the_priority_of_its_head() -> None:
    registry = MetricsRegistry()
    measuring = a_measuring(registry)
    online = a_request(priority=Priority.INTERACTIVE)
    bulk = a_request(rows=5, priority=Priority.BULK, limit_us=None)
    mixed = a_dispatch(online, bulk, predicted_us=5_000)
    alone = a_dispatch(bulk, predicted_us=5_000, reason=ReleaseReason.OWED)

    for dispatch, run_us in ((mixed, 6_000), (mixed, 4_000), (alone, 20_000)):
        measuring.dispatched(0, WriteBatch(1, 0, 1, 1, 1000, dispatch), 10_000)
        measuring.done(a_done(dispatch, run_us=run_us), 40_000)

    told = samples(registry)
    assert told["headrace_batches_total", "interactive", "full"] == 2
    assert told["headrace_batches_total", "bulk", "owed"] == 1
    assert told["headrace_batch_rows_sum", "interactive"] == 12
    assert told["headrace_batch_requests_sum", "interactive"] == 4
    # Six and five rows of the eight that the version takes.
    assert told["headrace_batch_fill_ratio_sum", "interactive"] == 1.5
    assert told["headrace_batch_fill_ratio_bucket", "bulk", "0.75"] == 1
    assert told["headrace_run_overrun_ratio_sum", "interactive"] == 2.0
    assert told["headrace_run_overrun_ratio_count", "interactive"] == 2
    assert told["headrace_run_overrun_ratio_sum", "bulk"] == 4.0


def a_dispatch(
    *requests: Request,
    predicted_us: int,
    reason: ReleaseReason = ReleaseReason.FULL,
) -> Dispatch:
    return Dispatch(
        batch="b",
        slot=0,
        requests=requests,
        padded_rows=sum(request.rows for request in requests),
        predicted_us=predicted_us,
        predicted_p99_us=predicted_us,
        latest_start_us=None,
        reason=reason,
    )


def a_done(dispatch: Dispatch, *, run_us: int) -> Done:
    return Done(dispatch.batch, 0, 1, rows=1, wait_us=0, run_us=run_us, members=())


def samples(registry: MetricsRegistry) -> dict[tuple[str, ...], float]:
    """By name, and priority, reason and bound where it has them."""
    families = text_string_to_metric_families(registry.render().decode())
    return {
        (one.name, *(one.labels[name] for name in LABELS if name in one.labels)): (
            one.value
        )
        for family in families
        for one in family.samples
    }
