"""What the metrics say of batches."""

from __future__ import annotations

from headrace.delivery.decisions import WriteBatch
from headrace.domain import Dispatch, Done, HopsMeasured, Priority, ReleaseReason
from headrace.telemetry import FormerMetrics, MetricsRegistry, ProcessMetrics
from headrace.wire import Topics
from services.batch_former.measuring import HOP_US_MAX, Measuring
from tests.scheduling.scenes import a_request


def a_measuring(registry: MetricsRegistry) -> Measuring:
    return Measuring(
        Topics(),
        FormerMetrics(registry),
        ProcessMetrics(registry),
        HopsMeasured(1000, 1000),
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
