"""What a lane tells of its work and its prices."""

from __future__ import annotations

import pytest

from headrace.domain import DUE_WITHIN_US, Priority, Reason, Refuse
from headrace.scheduling import SchedulingSettings
from tests.scheduling.scenes import MS, Desk, a_request, a_version, keys


def served(desk: Desk, shape: str, run_ms: int, *, requests: int, now_us: int) -> int:
    """Run so many requests of a shape, one at a time; when it was done."""
    for _ in range(requests):
        desk.arrive(a_request(shape=shape, at_us=now_us), now_us=now_us)
        desk.tick(now_us)
        now_us += run_ms * MS
        desk.finish(now_us=now_us, run_us=run_ms * MS)
    return now_us


def test_a_price_weighs_a_versions_shapes_by_what_is_asked_for() -> None:
    desk = Desk(a_version(max_batch=1))
    now_us = 0
    for _ in range(10):
        now_us = served(desk, "short", 2, requests=9, now_us=now_us)
        now_us = served(desk, "long", 100, requests=1, now_us=now_us)

    (price,) = desk.former.load(now_us).prices

    # Nine of ten cost 2 ms, one costs 100 ms.
    assert price.row_us == pytest.approx(11.8 * MS, rel=0.3)
    assert price.one_us < 3 * MS


def test_what_waits_and_what_runs_is_told() -> None:
    desk = Desk()
    desk.arrive(*(a_request() for _ in range(6)))
    desk.tick()

    load = desk.former.load(1 * MS)

    # Four rows run for 5 ms since 0, two wait.
    assert (load.slots, load.free_us) == (1, [4 * MS])
    assert [(queue.requests, queue.rows, queue.oldest_us) for queue in load.queues] == [
        (2, 2, 1 * MS)
    ]


def test_what_waits_is_told_by_when_it_is_due() -> None:
    desk = Desk()
    desk.arrive(*(a_request(limit_us=5000 * MS) for _ in range(3)))
    desk.arrive(a_request(limit_us=50 * MS, rows=2), a_request(limit_us=None))
    desk.arrive(a_request(limit_us=60 * MS, tenant="b"))

    assert told(desk, 0) == {50 * MS: 2, 70_710: 1, 6400 * MS: 3, None: 1}
    assert told(desk, 40 * MS) == {25 * MS: 3, 6400 * MS: 3, None: 1}


def test_what_left_is_not_told() -> None:
    desk = Desk()
    desk.arrive(*(a_request(limit_us=1000 * MS, rows=2) for _ in range(3)))
    assert told(desk, 0) == {1_131_370: 6}
    desk.tick()
    assert told(desk, 0) == {1_131_370: 2}
    desk.finish(now_us=5 * MS)
    desk.tick(5 * MS)
    assert desk.former.load(5 * MS).queues == []


def test_what_is_due_is_told_over_all_shapes_of_a_version() -> None:
    desk = Desk()
    desk.arrive(a_request(limit_us=1000 * MS), a_request(limit_us=1000 * MS, rows=2))
    desk.arrive(a_request(limit_us=1000 * MS, shape="other"))
    desk.arrive(a_request(limit_us=30 * MS, shape="other"))

    assert told(desk, 0) == {35_355: 1, 1_131_370: 4}


def test_who_takes_more_than_his_part_is_told() -> None:
    desk = Desk()
    desk.arrive(*(a_request(tenant="a") for _ in range(4)))
    desk.arrive(a_request(tenant="b", rows=2, limit_us=2000 * MS))
    desk.tick()
    assert desk.former.load(0).heavy == []
    desk.finish(now_us=5 * MS)
    desk.tick(5 * MS)

    assert desk.former.load(5 * MS).heavy == ["a"]


def test_a_run_counts_from_the_end_of_the_one_before_it() -> None:
    """Not from when that was heard of, which is a hop later."""
    settings = SchedulingSettings(control_hop_us=2 * MS, response_hop_us=0)
    desk = Desk(settings=settings)
    desk.arrive(*(a_request() for _ in range(8)))
    desk.tick()
    desk.tick(4 * MS)
    assert len(desk.held[0]) == 2
    desk.finish(now_us=9 * MS)

    # Four rows, which take 5 ms, began at 7 ms.
    assert desk.former.load(10 * MS).free_us == [2 * MS]


def test_who_finds_a_queue_full_is_told_when_it_is_worked_off() -> None:
    settings = SchedulingSettings(queue_requests_max=8)
    desk = Desk(a_version(alpha_us=1000 * MS, beta_us=1000 * MS), settings=settings)
    desk.arrive(*(a_request(limit_us=60_000 * MS) for _ in range(9)))

    (refused,) = [each for each in desk.tick() if isinstance(each, Refuse)]

    # Eight rows, of which four take 5 s.
    assert (refused.reason, refused.retry_after_us) == (Reason.QUEUE_FULL, 10_000 * MS)


def test_the_room_of_tenants_who_have_little_left_is_told() -> None:
    desk = Desk(settings=SchedulingSettings(queue_requests_max=4))
    desk.arrive(a_request(tenant="a"), a_request(tenant="b"))
    assert told_room(desk) == {}
    desk.arrive(*(a_request(tenant="a") for _ in range(2)))
    desk.arrive(a_request(tenant="b", limit_us=None))
    assert told_room(desk) == {"a": 1}
    desk.arrive(a_request(tenant="a"), a_request(tenant="b"))
    assert told_room(desk) == {"a": 0, "b": 2}

    # Nobody knows of what shape the next request is.
    desk.arrive(*(a_request(tenant="b", shape="other") for _ in range(3)))
    assert told_room(desk) == {"b": 2}


def test_bulk_takes_no_room_from_online_requests() -> None:
    desk = Desk(settings=SchedulingSettings(queue_requests_max=2))
    desk.arrive(*(a_request(priority=Priority.BULK, limit_us=None) for _ in range(9)))
    desk.arrive(a_request(), a_request(), a_request(key="third"))

    refused = [each for each in desk.tick() if isinstance(each, Refuse)]

    assert [(keys(each), each.reason) for each in refused] == [
        (["third"], Reason.QUEUE_FULL)
    ]
    desk.finish(now_us=50 * MS)
    desk.arrive(a_request(at_us=50 * MS), now_us=50 * MS)
    assert not any(isinstance(each, Refuse) for each in desk.tick(50 * MS))


def test_the_shares_are_told() -> None:
    load = Desk().former.load(0)

    assert load.shares == list(SchedulingSettings().shares)


def told(desk: Desk, now_us: int) -> dict[int | None, int]:
    """Rows of the only queue by the bound of their class; None: the last one."""
    (queue,) = desk.former.load(now_us).queues
    row_us = queue.backlog_us / queue.rows
    bounds = [*DUE_WITHIN_US, None]
    classes = zip(bounds, queue.due_us, strict=False)
    return {bound: round(us / row_us) for bound, us in classes if us}


def told_room(desk: Desk) -> dict[str, int]:
    (price,) = desk.former.load(0).prices
    return price.room
