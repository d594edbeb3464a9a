"""A request's way through the handler, with the world around it in memory."""

import json
from copy import copy

import pytest

from headrace.domain import ModelState, Reason
from headrace.testing import MemoryBroker, Outage
from headrace.wire import TIMEOUT_MAX_US, NewTopic, Record, Role, ServiceState
from services.ingress.drain import Drain
from services.ingress.handler import LOG_SILENT_US
from services.ingress.head import Keep
from services.ingress.settings import IngressLimits
from tests.services.ingress.models import a_version
from tests.services.ingress.world import BODY, TOPICS, World, a_result, an_error

LIMIT = (b"headrace-timeout-ms", b"400")


def test_a_request_waits_for_its_reply() -> None:
    world = World()
    exchange = world.ask()
    assert (exchange.status, len(world.records())) == (None, 1)
    world.reply(a_result(exchange))
    assert exchange.status == 200
    assert json.loads(exchange.body)["outputs"][0]["data"] == [1.0] * 4


def test_only_the_first_reply_is_seen() -> None:
    world = World()
    exchange = world.ask()
    world.reply(a_result(exchange), an_error(exchange, Reason.MODEL_ERROR))
    world.reply(a_result(exchange))
    assert exchange.status == 200


def test_clients_that_use_one_id_get_their_own_answers() -> None:
    """D6 ◆: the id of a request is made here."""
    world = World()
    theirs = (b"x-request-id", b"1")
    first, second = world.ask(theirs), world.ask(theirs)
    assert len({dict(record.headers)["ce_id"] for record in world.records()}) == 2

    world.reply(a_result(second))
    assert (first.status, second.status) == (None, 200)
    world.reply(a_result(first))
    assert first.status == 200


def test_a_reply_for_another_tenant_is_not_an_answer() -> None:
    world = World()
    exchange = world.ask((b"headrace-tenant", b"a"))
    world.reply(a_result(exchange, tenant="b"))
    assert exchange.status is None


def test_at_its_deadline_a_request_is_answered_504_once() -> None:
    world = World()
    exchange = world.ask(LIMIT)
    world.wind(390_000)
    assert exchange.status is None
    world.wind(30_000)
    assert (exchange.status, exchange.reason) == (504, "expired")
    world.reply(a_result(exchange))
    assert len(world.handler.ends.waiters) == 0


def test_whom_the_log_does_not_tell_that_it_has_his_request_is_told_so() -> None:
    """And not that ten minutes are over."""
    world = World()
    exchange = world.ask((b"headrace-timeout-ms", b"6000"))
    exchange.head = copy(exchange.head)
    exchange.head.keep = Keep("", is_async=True)
    exchange.record_id = "9" * 32
    world.wind(6_100_000)
    assert (exchange.status, exchange.reason) == (503, "log_unavailable")


def test_after_a_gap_replies_go_before_deadlines() -> None:
    world = World()
    answered, silent = world.ask(LIMIT), world.ask(LIMIT)
    world.handler.tick()
    world.clock.advance(2_000_000)
    world.handler.tick()
    world.reply(a_result(answered))
    assert (answered.status, silent.status) == (200, None)
    world.wind(200_000)
    assert silent.status == 504


def test_a_record_refused_by_the_log_is_503_at_once() -> None:
    world = World(queue_records_max=0)
    exchange = world.ask()
    assert (exchange.status, exchange.reason) == (503, "log_unavailable")
    assert b"retry-after: 1" in exchange.fields
    assert len(world.handler.ends.waiters) == 0


def test_a_produce_that_timed_out_waits_for_a_reply_until_the_deadline() -> None:
    world = World()
    world.broker.outage = Outage.MUTE
    answered, silent = world.ask(), world.ask()
    world.wind(3_000_000)
    assert (answered.status, silent.status) == (None, None)
    world.reply(a_result(answered))
    world.wind(2_100_000)
    assert (answered.status, silent.status) == (200, 504)


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (Reason.EXPIRED, 504),
        (Reason.DEADLINE_UNATTAINABLE, 504),
        (Reason.ATTEMPTS_EXHAUSTED, 503),
        (Reason.NO_CAPACITY, 503),
        (Reason.QUOTA, 429),
        (Reason.POISON, 400),
        (Reason.TOO_LARGE, 413),
        (Reason.MODEL_ERROR, 500),
    ],
)
def test_an_error_reply_has_its_reasons_status(reason: Reason, status: int) -> None:
    world = World()
    exchange = world.ask()
    world.reply(an_error(exchange, reason, retry_after_us=2_500_000))
    assert (exchange.status, exchange.reason) == (status, reason)
    assert json.loads(exchange.body) == {"error": f"it was {reason}"}
    assert (b"retry-after: 3" in exchange.fields) == (status in {429, 503})


def test_a_draining_ingress_takes_what_may_wait_longer_than_it_lives() -> None:
    """Hardly any request waits for as long as it may."""
    world = World()
    drain = world.handler.drain
    drain.begin(world.clock.now_us())
    for limit_ms in (5_000, 10_000, 60_000, 600_000):
        taken = world.ask((b"headrace-timeout-ms", b"%d" % limit_ms))
        assert not taken.response_complete
        world.reply(a_result(taken))
        assert taken.status == 200
    late = world.ask((b"headrace-timeout-ms", b"600000"))
    world.handler.cut_off(drain.last_refusal())
    assert (late.status, late.reason) == (503, "draining")
    assert b"retry-after" in late.fields


def test_a_drain_behind_a_successor_lasts_as_long_as_any_request_may() -> None:
    limits = IngressLimits()
    drain = Drain(limits)
    drain.begin(0, has_successor=True)
    last_us = limits.drain_succeeded_ms * 1000
    assert last_us >= TIMEOUT_MAX_US
    assert drain.over_us(last_us - 1) is None
    assert drain.over_us(last_us) == 0
    assert "drain_succeeded_ms" in drain.last_refusal().text


def test_a_drain_in_haste_lasts_no_longer_than_one_without_a_successor() -> None:
    limits = IngressLimits()
    drain = Drain(limits)
    drain.hasten(0)
    assert not drain.is_on
    drain.begin(0, has_successor=True)
    for now_us in (7, 8, 9):  # the first time counts
        drain.hasten(now_us)
    last_us = 7 + limits.drain_ms * 1000
    assert drain.over_us(last_us - 1) is None
    assert drain.over_us(last_us) == 0
    assert "drain_ms" in drain.last_refusal().text


def test_a_time_limit_that_the_body_outlasted_is_503() -> None:
    world = World()
    exchange = world.begin(LIMIT)
    world.clock.advance(400_000)
    world.handler.finish(exchange, BODY)
    assert (exchange.status, exchange.reason) == (503, "expired")
    assert world.records() == []


def test_a_result_without_an_output_that_was_promised_is_an_error() -> None:
    world = World()
    exchange = world.ask()
    world.reply(a_result(exchange, outputs=()))
    assert (exchange.status, exchange.reason) == (500, "model_error")


@pytest.mark.parametrize(
    ("spoil", "status", "reason"),
    [
        (lambda world: setattr(world.fleet, "starting", True), 503, "model_loading"),
        (lambda world: world.fleet.withdrawn("m", "1", 0), 404, "model_unknown"),
        (
            lambda world: world.announce(a_version(), ModelState.UNLOADING),
            503,
            "model_unavailable",
        ),
        (
            lambda world: world.announce(a_version(), ModelState.LOADING),
            503,
            "model_loading",
        ),
        (
            lambda world: (world.clock.advance(3_000_000), world.beat(Role.INGRESS)),
            503,
            "model_unavailable",
        ),
        (
            lambda world: (world.clock.advance(3_000_000), world.beat(Role.GPU_WORKER)),
            503,
            "no_former",
        ),
    ],
)
def test_a_refusal_at_the_door_drops_the_body(
    spoil: object, status: int, reason: str
) -> None:
    world = World()
    assert callable(spoil)
    spoil(world)
    exchange = world.begin()
    assert exchange.refusal is not None
    world.handler.finish(exchange, b"not even looked at")
    assert (exchange.status, exchange.reason) == (status, reason)
    assert (b"retry-after" in exchange.fields) == (status == 503)


def test_a_draining_former_takes_patient_requests_only() -> None:
    world = World()
    world.beat(Role.BATCH_FORMER, state=ServiceState.DRAINING)
    assert world.ask((b"headrace-timeout-ms", b"3000")).reason == "no_former"
    assert world.ask((b"headrace-timeout-ms", b"3001")).status is None


def test_requests_in_flight_have_a_limit() -> None:
    world = World(in_flight_max=2)
    first = world.ask()
    assert world.ask().status is None
    assert world.ask().reason == "overloaded"
    world.reply(a_result(first))
    assert world.ask().status is None


def test_bodies_under_way_have_a_limit_together() -> None:
    world = World(bodies_bytes_max=1_000_000)
    large = (b"content-length", b"600000")
    first = world.begin(large)
    assert first.refusal is None
    second = world.begin(large)
    assert second.refusal is not None
    assert second.refusal.reason == "overloaded"
    world.handler.client_left(first)
    assert world.handler.bodies.bytes == 0
    assert world.begin(large).refusal is None


def test_a_chunked_body_is_counted_as_it_grows() -> None:
    world = World(bodies_bytes_max=1_000_000, http_body_bytes_max=500_000)
    exchange = world.begin()
    for size in range(0, 500_000, 50_000):
        world.handler.body_grew(exchange, size)
    assert exchange.refusal is None
    assert world.handler.bodies.bytes >= 450_000
    world.handler.body_grew(exchange, 500_001)
    assert (exchange.status, exchange.reason) == (413, "too_large")
    assert world.handler.bodies.bytes == 0


def test_a_length_above_the_limit_is_answered_before_the_body() -> None:
    world = World(http_body_bytes_max=1000)
    exchange = world.begin((b"content-length", b"1001"))
    assert (exchange.status, exchange.reason) == (413, "too_large")


def test_every_answer_names_the_request() -> None:
    world = World()
    for model in ("m", "unknown"):
        exchange = world.ask((b"x-request-id", b"theirs"), model=model)
        if exchange.status is None:
            world.reply(a_result(exchange))
        fields = exchange.fields.decode().split("\r\n")
        assert f"headrace-request-id: {exchange.request_id}" in fields
        assert "x-request-id: theirs" in fields


def test_a_version_that_is_no_number_is_unknown_alike() -> None:
    world = World()
    texts = set()
    for version in ("7", "../1", "1%2f"):
        exchange = world.begin(version=version)
        assert exchange.refusal is not None
        assert exchange.refusal.status == 404
        texts.add(exchange.refusal.text.replace(repr(version), "V"))
    assert len(texts) == 1


def test_while_the_log_acknowledges_nothing_requests_are_refused() -> None:
    world = World()
    world.handler.tick()
    world.handler.log_heard(world.clock.now_us())
    world.wind(LOG_SILENT_US - 100_000)
    assert world.ask().status is None
    world.wind(200_000)
    refused = world.ask()
    assert (refused.status, refused.reason) == (503, "log_unavailable")
    assert len(world.records()) == 1
    world.handler.log_heard(world.clock.now_us())
    assert world.ask().status is None


def test_a_process_that_stood_still_does_not_blame_the_log() -> None:
    world = World()
    world.handler.tick()
    world.handler.log_heard(world.clock.now_us())
    world.clock.advance(LOG_SILENT_US + 600_000)
    assert world.ask().status is None
    world.handler.tick()
    assert world.ask().reason == "overloaded"
    world.wind(2_000_000)
    assert world.ask().reason == "log_unavailable"


def cancels(world: World) -> list[Record]:
    """The records that take a request back."""
    return [record for record in world.records() if record.value is None]


def test_a_client_that_leaves_takes_its_request_with_it() -> None:
    world = World()
    exchange = world.ask((b"headrace-tenant", b"a"), (b"headrace-priority", b"bulk"))
    world.handler.client_left(exchange)
    world.producer.poll(0)

    (cancel,) = cancels(world)
    asked = world.records()[0]
    headers = dict(cancel.headers)
    assert (cancel.partition, headers["ce_type"]) == (asked.partition, b"inf.cancel.v1")
    for name in ("ce_id", "inf-tenant", "reply-topic", "reply-partition"):
        assert headers[name] == dict(asked.headers)[name]
    assert len(world.handler.ends.waiters) == 0
    world.wind(6_000_000)
    world.reply(a_result(exchange))
    assert exchange.status is None


def test_a_client_that_leaves_does_not_cancel_what_is_kept_for_others() -> None:
    """§9 ◆: whoever comes with the same key wants it too."""
    world = World()
    exchange = world.ask()
    exchange.head = copy(exchange.head)
    exchange.head.keep = Keep("k")
    world.handler.client_left(exchange)
    assert cancels(world) == []


def test_a_client_that_leaves_before_its_body_is_there_cancels_nothing() -> None:
    world = World()
    world.handler.client_left(world.begin())
    assert world.records() == []


def test_the_cancel_goes_the_way_of_its_request() -> None:
    """§9 ◆: another producer's record could come first."""
    world = World()
    world.clock.advance(1_000_000)
    for _ in range(200):
        world.reply(a_result(world.ask()))
        world.clock.advance(500)
    exchange = world.ask()
    assert exchange.outlet is world.busy
    world.clock.advance(1_000_000)
    assert world.ask().outlet is world.producer

    elsewhere = MemoryBroker(world.clock)
    topic = NewTopic(TOPICS.requests("m"), 4, {})
    elsewhere.admin().create_topics([topic], 1)
    exchange.outlet = elsewhere.producer()
    world.handler.client_left(exchange)
    assert [r.value for r in elsewhere.records(topic.name, 2)] == [None]
    assert cancels(world) == []
