"""The story of a request that ended with another of its idempotency key."""

from __future__ import annotations

import msgspec

from headrace.domain import Reason, ReplyAddress, Source, Terminal
from headrace.wire import Record, plain_refusal, plain_reply
from services.ctl.request_trail import FollowRequest, RequestTrail, found_in
from services.ctl.show import told
from tests.audit.cluster import a_batch, an_output
from tests.services.ctl.test_explain import (
    ID,
    MS,
    SOURCE,
    a_done,
    a_member,
    a_record,
    an_order,
    asked,
)
from tests.wire.records import TOPICS, a_request

KEPT = TOPICS.results("acme", "keyed")


def place(offset: int) -> Source:
    return Source(SOURCE.topic, SOURCE.partition, offset)


def an_order_of(at_ms: int, offset: int) -> Record:
    return an_order(
        at_ms,
        a_request(
            request_id=ID, offset=offset, tenant="acme", partition=SOURCE.partition
        ),
    )


def answer(at_ms: int, offset: int) -> Record:
    reply = plain_reply(a_batch(ID, source=place(offset)), 0, [an_output(1.0)])
    return a_record(KEPT, at_ms, reply)


def refusal(at_ms: int, offset: int) -> Record:
    terminal = Terminal(
        id=ID,
        tenant="acme",
        model="digits",
        version="3",
        reply_to=ReplyAddress(KEPT, None),
        attempt=1,
        reason=Reason.EXPIRED,
        text="too late",
        retry_after_us=None,
        client_id="",
        source=place(offset),
    )
    return a_record(KEPT, at_ms, plain_refusal(terminal))


def trail(own: Record, *records: Record) -> RequestTrail:
    found = found_in(own, ID)
    assert found is not None
    follow = FollowRequest(TOPICS, found)
    for record in records:
        if follow.may_concern(record):
            follow.take(record)
    assert follow.ended_us is not None
    assert follow.ended_us >= own.timestamp_us
    return follow.trail()


def ran(offset: int, *, sent_ms: int, done_ms: int) -> list[Record]:
    return [
        an_order_of(sent_ms, offset),
        answer(done_ms, offset),
        a_done(done_ms + 1, a_member(place(offset))),
    ]


def times(told: RequestTrail) -> dict[str, int]:
    assert all(stage.us >= 0 for stage in told.stages)
    return {stage.name: stage.us // MS for stage in told.stages}


def test_one_that_joined_another_shows_where_the_time_of_that_one_went() -> None:
    first, own = asked(0, 70), asked(1400, 71)

    shown = trail(own, first, own, *ran(70, sent_ms=90, done_ms=1500))

    assert shown.steps[0].what == "asked before"
    assert shown.steps[0].after_us == -1400 * MS
    assert times(shown)["waited for a batch"] == 90
    assert times(shown)["from record to record"] == 1500
    assert shown.shared == (
        f"It ended with {SOURCE.topic}/{SOURCE.partition}/70, asked 1400 ms before it"
    )
    lines = list(told(shown))
    assert lines[-1] == shown.shared
    assert any(" -1400 ms  asked before" in line for line in lines)


def test_one_that_came_after_the_answer_was_answered_from_what_is_kept() -> None:
    first, own = asked(0, 70), asked(1700, 71)

    shown = trail(own, first, *ran(70, sent_ms=90, done_ms=100), own)

    assert times(shown)["from record to record"] == 100
    assert shown.shared == (
        "It was answered 1600 ms before it was asked, and that answer is kept: that of "
        f"{SOURCE.topic}/{SOURCE.partition}/70, asked 1700 ms before it"
    )


def test_one_that_was_refused_says_that_the_stages_are_the_retrys() -> None:
    own, again = asked(0, 70), asked(500, 71)

    shown = trail(own, own, refusal(450, 70), again, *ran(71, sent_ms=510, done_ms=600))

    assert times(shown)["waited for a batch"] == 10
    assert times(shown)["from record to record"] == 100
    assert shown.shared.startswith("The stages are those of ")
    assert shown.shared.endswith("/71, asked 500 ms after it")


def test_one_that_was_itself_answered_shares_nothing() -> None:
    first, own = asked(0, 70), asked(500, 71)

    shown = trail(own, first, refusal(450, 70), own, *ran(71, sent_ms=510, done_ms=600))

    assert shown.shared == ""
    assert times(shown)["from record to record"] == 100
    waits = trail(own, first, refusal(450, 70), own)
    assert (waits.shared, waits.stages) == ("", [])


def test_clocks_that_differ_make_no_stage_negative() -> None:
    own = asked(100, 70)
    shown = trail(own, own, *ran(70, sent_ms=99, done_ms=101))
    assert times(shown)["waited for a batch"] == 0
    assert msgspec.json.encode(shown)
