"""Bulk requests whose run is longer than online traffic can stand; I12, I27."""

from __future__ import annotations

from headrace.domain import Priority, Request, ServedVersion
from headrace.scheduling import SchedulingSettings
from tests.scheduling.room import Room, Sent
from tests.scheduling.scenes import MS, Desk, a_request, a_version, keys

NO_HOPS = SchedulingSettings(control_hop_us=0, response_hop_us=0)
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


def long_ones(*versions: ServedVersion, count: int, seconds: int = 10) -> list[Sent]:
    """Runs of ``count`` bulk requests of each of ``versions``, all there from the
    start, beside an online one in every 10 ms on slot 0; in the first ``seconds``."""
    online = a_version(slots=frozenset({0}))
    slots = len(versions[0].ready_slots)
    room = Room(online, *versions, slots=slots, settings=NO_HOPS)
    steady = [
        a_request(at_us=at_us, limit_us=50 * MS)
        for at_us in range(0, (seconds + 1) * 1_000 * MS, 10 * MS)
    ]
    backlog = [
        a_request(model=each.model, priority=Priority.BULK, at_us=1, limit_us=None)
        for _ in range(count)
        for each in versions
    ]
    room.run([*steady, *backlog], until_us=seconds * 1_000 * MS)
    return [each for each in room.sent if each.priority is Priority.BULK]


def test_a_backlog_of_long_runs_has_the_share_of_bulk_and_no_more() -> None:
    sent = long_ones(LONG, count=100, seconds=40)

    part = sum(each.run_us for each in sent) / (40_000 * MS)
    assert 0.8 * 0.05 < part <= 0.05


def test_longer_runs_have_their_turn_beside_shorter_ones() -> None:
    longer = a_version("longer", alpha_us=600 * MS, max_batch=1)
    sent = long_ones(LONG, longer, count=100, seconds=60)

    models = [each.dispatch.requests[0].model for each in sent]
    assert models[:2] == ["long", "long"], "in which the longer one earns its run"
    assert models[2:6] == ["longer", "longer", "long", "longer"]


def test_a_long_run_takes_those_along_that_lengthen_it_little() -> None:
    flat = a_version("flat", alpha_us=80 * MS, beta_us=2 * MS, max_batch=8)
    steep = a_version("steep", alpha_us=80 * MS, beta_us=40 * MS, max_batch=8)

    rows = {
        each.model: [len(sent.dispatch.requests) for sent in long_ones(each, count=16)]
        for each in (flat, steep)
    }
    assert rows == {"flat": [8, 8], "steep": [1, 1, 1, 1]}


def test_bulk_on_a_worker_without_online_requests_never_waits() -> None:
    both = a_version("both", slots=frozenset({0, 1}), alpha_us=200 * MS, max_batch=1)
    sent = long_ones(both, count=100, seconds=10)

    busy_us = [0, 0]
    for each in sent:
        busy_us[each.dispatch.slot] += each.run_us
    assert busy_us[0] <= 0.1 * 10_000 * MS
    assert busy_us[1] >= 10_000 * MS


def test_tenants_share_the_device_whose_bulk_runs_are_not_equally_long() -> None:
    versions = LONG, a_version("short", alpha_us=5 * MS, max_batch=1)
    room = Room(*versions, slots=1, settings=NO_HOPS)
    backlog = [
        a_request(model=model, tenant=model, priority=Priority.BULK, limit_us=None)
        for model, count in (("long", 20), ("short", 400))
        for _ in range(count)
    ]
    room.run(backlog, until_us=4_000 * MS)

    used_us = {"long": 0, "short": 0}
    for each in room.sent:
        used_us[each.dispatch.requests[0].tenant] += each.run_us
    assert abs(used_us["long"] - used_us["short"]) <= 2 * 201 * MS


def beside_online(*bulk: Request, settings: SchedulingSettings = NO_HOPS) -> list[Sent]:
    """What a worker of 5 ms and 0.25 ms per row is sent, with an online request in
    every millisecond and all of ``bulk`` from the start."""
    versions = [
        a_version(model, alpha_us=5 * MS, beta_us=250, max_batch=32)
        for model in ("m", "other")
    ]
    room = Room(*versions, slots=1, settings=settings)
    online = [a_request(at_us=at_ms * MS, limit_us=100 * MS) for at_ms in range(3_000)]
    room.run([*bulk, *online], until_us=3_000 * MS)
    return room.sent[20:]


def of_a_job(count: int, *, model: str = "m", rows: int = 8) -> list[Request]:
    return [
        a_request(model=model, rows=rows, priority=Priority.BULK, limit_us=None)
        for _ in range(count)
    ]


def bulk_rows(sent: Sent) -> int:
    requests = sent.dispatch.requests
    return sum(each.rows for each in requests if each.priority is Priority.BULK)


def test_bulk_that_rides_along_needs_no_batch_of_its_own() -> None:
    sent = beside_online(*of_a_job(800))

    assert {each.priority for each in sent} == {Priority.STANDARD}


def test_bulk_that_cannot_ride_along_has_its_share_beside_bulk_that_does() -> None:
    settings = NO_HOPS.model_copy(update={"deferral_bulk": 0.0})
    waiting = [*of_a_job(200, model="other"), *of_a_job(800)]
    sent = beside_online(*waiting, settings=settings)

    others_us = sum(each.run_us for each in sent if each.priority is Priority.BULK)
    assert others_us >= 0.045 * sum(each.run_us for each in sent)


def test_batches_grow_by_bulk_until_it_has_its_part_of_what_is_left() -> None:
    sent = beside_online(*of_a_job(5_000, rows=1))

    seconds = sum(each.run_us for each in sent) / 1e6
    left = 32 / 13e-3 - 1000
    assert 0.84 <= sum(map(bulk_rows, sent)) / seconds / left <= 0.9


def test_batches_grow_as_far_as_they_may_where_bulk_is_to_have_all_that_is_left() -> (
    None
):
    settings = NO_HOPS.model_copy(update={"bulk_of_rest": 1.0})
    sent = beside_online(*of_a_job(1000), settings=settings)

    rows = [sum(each.rows for each in one.dispatch.requests) for one in sent]
    assert min(rows) > 32 - 8


def test_bulk_that_has_waited_for_long_goes_before_standard_requests() -> None:
    """Beside more of them than the worker can do, and without a share of its own."""
    settings = NO_HOPS.model_copy(
        update={"bulk_ageing_us": 200 * MS, "shares": (0.0, 0.0, 0.0, 0.0)}
    )
    versions = a_version(max_batch=1), a_version("bulk", max_batch=1)
    room = Room(*versions, slots=1, settings=settings)
    online = [a_request(at_us=at_ms * MS, limit_us=100 * MS) for at_ms in range(400)]
    bulk = a_request(model="bulk", priority=Priority.BULK, limit_us=None, at_us=1)
    room.run([*online, bulk])

    (ran,) = (each for each in room.sent if each.priority is Priority.BULK)
    assert 200 * MS < ran.at_us < 210 * MS
