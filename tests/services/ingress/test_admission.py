"""Requests are refused at the door by the load that their lane publishes."""

from __future__ import annotations

import json

import pytest

from headrace.domain import Load, Price, Priority, QueueLoad, Reason
from headrace.wire import Role
from services.ingress.answers import refusal_fields
from services.ingress.handler import CHECKED_BYTES_MAX, CHECKED_PER_TICK_MAX
from tests.services.ingress.world import BODY, World

MS = 1_000
PRICE = Price(model="m", version="1", row_us=1 * MS, batch_us=10 * MS, one_us=5 * MS)
LIMIT = (b"headrace-timeout-ms", b"100")
STANDARD = (b"headrace-priority", b"standard")


def a_load(free_ms: int) -> Load:
    return Load(slots=1, free_us=[free_ms * MS], prices=[PRICE])


def test_a_request_that_would_finish_late_is_refused_before_its_body() -> None:
    world = World()
    world.beat(Role.BATCH_FORMER, load=a_load(90))

    exchange = world.begin(LIMIT, STANDARD)

    assert exchange.refusal is not None
    assert exchange.refusal.status == 503
    assert exchange.refusal.reason == Reason.OVERLOADED
    assert exchange.refusal.retry_after_s == 1


@pytest.mark.parametrize(
    ("slots", "waiting_ms", "after_s"),
    [
        # 60 of the 100 ms may be ahead, with the 10 of a batch. The queue falls to that
        # in what is more of it, over the slots that work on it.
        (1, 100, 1),
        (1, 1_049, 1),
        (1, 1_051, 2),
        (1, 7_000, 7),
        (4, 7_000, 2),
        (1, 60_000, 60),
    ],
)
def test_whoever_is_refused_is_told_when_the_queue_will_have_drained(
    slots: int, waiting_ms: int, after_s: int
) -> None:
    world = World()
    queue = QueueLoad(
        model="m",
        version="1",
        priority=Priority.STANDARD,
        requests=waiting_ms,
        rows=waiting_ms,
        oldest_us=0,
        backlog_us=waiting_ms * MS,
    )
    load = Load(slots=slots, free_us=[0], queues=[queue], prices=[PRICE])
    world.beat(Role.BATCH_FORMER, load=load)

    exchange = world.begin(LIMIT, STANDARD)

    assert exchange.refusal is not None
    assert exchange.refusal.reason == Reason.OVERLOADED
    assert exchange.refusal.retry_after_s == after_s
    assert b"retry-after: %d\r\n" % after_s in refusal_fields(exchange.refusal)


def test_a_head_that_leaves_it_open_is_refused_by_what_its_body_does_not_say() -> None:
    world = World()
    world.beat(Role.BATCH_FORMER, load=a_load(90))

    exchange = world.ask(LIMIT)

    assert (exchange.status, exchange.reason) == (503, "overloaded")
    assert world.records() == []


def test_a_body_may_ask_for_more_time_than_its_head() -> None:
    world = World()
    world.beat(Role.BATCH_FORMER, load=a_load(4_000))
    body = json.loads(BODY) | {"parameters": {"timeout": 60_000_000}}

    exchange = world.ask(body=json.dumps(body).encode())

    assert exchange.status is None
    assert len(world.records()) == 1


def test_a_longer_time_limit_lets_the_same_request_in() -> None:
    world = World()
    world.beat(Role.BATCH_FORMER, load=a_load(90))

    assert world.ask((b"headrace-timeout-ms", b"1000")).status is None


def test_what_the_body_says_of_time_wins_over_the_head() -> None:
    world = World()
    world.beat(Role.BATCH_FORMER, load=a_load(90))
    body = json.loads(BODY) | {"parameters": {"timeout": 100_000}}

    exchange = world.ask(body=json.dumps(body).encode())

    assert (exchange.status, exchange.reason) == (503, "overloaded")


def test_a_worker_that_restarts_is_waited_for_by_those_who_have_time() -> None:
    world = World()
    world.beat(Role.BATCH_FORMER, load=Load(slots=0))

    refusal = world.begin(LIMIT, STANDARD).refusal

    assert refusal is not None
    assert refusal.reason == Reason.NO_CAPACITY
    assert world.ask((b"headrace-timeout-ms", b"5000")).status is None


def test_a_loop_that_is_late_refuses_short_limits() -> None:
    world = World()
    world.handler.tick()
    world.clock.advance(200 * MS)
    world.handler.tick()

    refusal = world.begin(LIMIT, STANDARD).refusal

    assert refusal is not None
    assert refusal.reason == Reason.OVERLOADED
    assert "behind" in refusal.text


TOO_MANY_ROWS = json.dumps(
    {"inputs": [{"name": "X", "shape": [9, 4], "datatype": "FP32", "data": [1] * 36}]}
).encode()


def length(size: int) -> tuple[bytes, bytes]:
    return b"content-length", b"%d" % size


def test_what_no_retry_mends_is_told_before_the_load() -> None:
    world = World()
    world.beat(Role.BATCH_FORMER, load=a_load(90))
    asked = LIMIT, STANDARD, length(len(TOO_MANY_ROWS))

    exchange = world.ask(*asked, body=TOO_MANY_ROWS)

    assert (exchange.status, exchange.reason) == (400, "invalid")
    assert b"9 rows" in exchange.body
    valid = world.ask(LIMIT, STANDARD, length(len(BODY)))
    assert (valid.status, valid.reason) == (503, "overloaded")
    assert world.records() == []


def test_under_load_a_long_body_is_not_looked_at() -> None:
    world = World()
    world.beat(Role.BATCH_FORMER, load=a_load(90))

    exchange = world.begin(LIMIT, STANDARD, length(CHECKED_BYTES_MAX + 1))

    assert exchange.refusal is not None
    assert exchange.refusal.reason == Reason.OVERLOADED


@pytest.mark.parametrize(
    "headers", [[LIMIT], [LIMIT, STANDARD, length(len(TOO_MANY_ROWS))]]
)
def test_under_a_load_of_refusals_few_bodies_are_looked_at(
    headers: list[tuple[bytes, bytes]],
) -> None:
    world = World()
    world.beat(Role.BATCH_FORMER, load=a_load(90))

    def statuses(count: int) -> list[int | None]:
        return [world.ask(*headers, body=TOO_MANY_ROWS).status for _ in range(count)]

    assert (
        statuses(CHECKED_PER_TICK_MAX + 2) == [400] * CHECKED_PER_TICK_MAX + [503] * 2
    )
    world.handler.tick()
    assert statuses(1) == [400]


BAD_PRIORITY = (b"headrace-priority", b"urgent")
BAD_TIMEOUT = (b"headrace-timeout-ms", b"soon")


@pytest.mark.parametrize(
    ("headers", "parameters", "told"),
    [
        ([BAD_PRIORITY], {"priority": 1}, None),
        ([BAD_TIMEOUT], {"timeout": 2_000_000}, None),
        ([LIMIT, LIMIT], {"timeout": 2_000_000}, None),
        ([BAD_PRIORITY, BAD_TIMEOUT], {"priority": "bulk", "timeout": 900_000}, None),
        ([BAD_PRIORITY], {}, "headrace-priority"),
        ([BAD_TIMEOUT], {}, "headrace-timeout-ms"),
        ([BAD_PRIORITY], {"timeout": 2_000_000}, "headrace-priority"),
        ([BAD_TIMEOUT], {"priority": 1}, "headrace-timeout-ms"),
        ([BAD_PRIORITY], {"priority": 0}, "headrace-priority"),
        ([BAD_TIMEOUT], {"timeout": 0}, "headrace-timeout-ms"),
        ([BAD_PRIORITY], {"priority": 9}, "parameter priority"),
    ],
)
def test_a_wrong_header_counts_as_little_as_a_right_one_where_the_body_speaks(
    headers: list[tuple[bytes, bytes]], parameters: dict[str, object], told: str | None
) -> None:
    world = World()
    body = json.dumps(json.loads(BODY) | {"parameters": parameters}).encode()

    exchange = world.ask(*headers, body=body)

    if told is None:
        assert (exchange.status, len(world.records())) == (None, 1)
    else:
        assert exchange.status == 400
        assert told in json.loads(exchange.body)["error"]
        assert world.records() == []


def test_a_burst_that_is_read_in_one_turn_of_the_loop_counts_as_late() -> None:
    world = World()
    world.handler.tick()
    world.clock.advance(54 * MS)
    assert world.ask(LIMIT).status is None
    world.clock.advance(2 * MS)
    assert world.ask(LIMIT).reason == "overloaded"
