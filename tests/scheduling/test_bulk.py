"""Bulk requests whose run is longer than online traffic can stand."""

from __future__ import annotations

from headrace.domain import Priority, Request
from tests.scheduling.scenes import MS, Desk, a_request, a_version, keys

LONG = a_version("long", alpha_us=200 * MS, max_batch=1)


def a_bulk_request(at_us: int) -> Request:
    return a_request(
        key="bulk", model="long", priority=Priority.BULK, at_us=at_us, limit_us=None
    )


def left(desk: Desk, now_us: int) -> list[str]:
    return [key for decision in desk.tick(now_us) for key in keys(decision)]


def test_a_second_after_the_last_online_request_it_runs_at_once() -> None:
    desk = Desk(a_version(), LONG)
    desk.arrive(a_request(limit_us=20 * MS))
    desk.tick()
    desk.finish(now_us=2 * MS)
    desk.arrive(a_bulk_request(2 * MS), now_us=2 * MS)

    assert left(desk, 2 * MS) == []
    assert left(desk, 1_100 * MS) == ["bulk"]


def test_beside_steady_online_requests_it_runs_once_its_wait_has_paid_for_it() -> None:
    desk = Desk(a_version(), LONG)
    desk.arrive(a_bulk_request(0))
    ran_at_us = None
    for now_us in range(0, 8_000 * MS, 500 * MS):
        desk.arrive(a_request(at_us=now_us, limit_us=100 * MS), now_us=now_us)
        if "bulk" in left(desk, now_us):
            ran_at_us = now_us
            break
        while desk.held[0]:
            desk.finish(now_us=now_us + 2 * MS)
        if "bulk" in left(desk, now_us + 2 * MS):
            ran_at_us = now_us + 2 * MS
            break

    assert ran_at_us is not None
    assert ran_at_us >= 3_500 * MS
