"""Requests are refused at the door by the load that their lane publishes."""

from __future__ import annotations

import json

from headrace.domain import Load, Price, Reason
from headrace.wire import Role
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
