"""What is told of a request whose record retention has cut."""

from __future__ import annotations

import msgspec
import pytest

from headrace.domain import Source
from headrace.wire import (
    PROTOBUF_HEADERS,
    Outgoing,
    Record,
    RunFacts,
    dead_letter,
    encode_replies,
    plain_reply,
)
from services.ctl.remains import remains_in
from services.ctl.request_trail import FollowRequest, RequestTrail
from services.ctl.show import told
from tests.audit.cluster import a_batch, an_output
from tests.services.ctl.test_explain import (
    ID,
    LETTER,
    MS,
    a_done,
    a_member,
    a_record,
    asked,
)
from tests.wire.records import TOPICS

PLACE = Source(TOPICS.requests("digits"), 6, 40)
MINE = "row 7 of the list"


def a_result(at_ms: int = 10) -> Record:
    batch = msgspec.structs.replace(a_batch(ID, source=PLACE), client_ids=[MINE])
    reply = plain_reply(batch, 0, [an_output(1.0)])
    return a_record(TOPICS.results("acme", "nightly"), at_ms, reply)


def trail_of(end: Record, name: str, *others: Record) -> RequestTrail:
    (found,) = remains_in(TOPICS, end, name)
    follow = FollowRequest(TOPICS, found)
    for record in (end, *others):
        if follow.may_concern(record):
            follow.take(record)
    return follow.trail()


@pytest.mark.parametrize("name", [ID, MINE])
def test_a_result_tells_of_its_request(name: str) -> None:
    trail = trail_of(a_result(), name, a_done(11, a_member(PLACE)))

    assert (trail.id, trail.client_id, trail.tenant) == (ID, MINE, "acme")
    assert (trail.model, trail.priority) == ("digits", "standard")
    assert [each.after_us for each in trail.steps] == [0, 1 * MS]
    assert [each.reason for each in trail.answers] == [""]
    (about,) = [line for line in told(trail) if "no longer in the log" in line]
    assert f"{PLACE.topic}/6/40" in about
    assert not any("no value" in line for line in told(trail))


def test_a_dead_letter_brings_its_request_along() -> None:
    own = asked(0)
    letter = msgspec.structs.replace(LETTER, id=ID)
    end = a_record(TOPICS.dead_letters("digits"), 10, dead_letter(letter, own))

    trail = trail_of(end, ID)

    assert trail.payload is not None
    assert trail.headers["ce_id"] == ID
    assert trail.cut == "/".join(map(str, LETTER.source))
    assert trail.steps[0].what.startswith(f"dead letter: {LETTER.reason}")


def test_an_envelope_knows_of_no_place() -> None:
    value = encode_replies(
        a_batch("f" * 32, ID), [0, 1], [], RunFacts("3/12", 1, 2, 3, 4)
    )
    end = a_record(TOPICS.replies, 10, Outgoing(None, PROTOBUF_HEADERS, value))

    trail = trail_of(end, ID)

    assert (trail.id, trail.model, trail.priority) == (ID, "m", "")
    assert [each.what for each in trail.steps] == ["answered: success"]
    assert trail.cut == TOPICS.requests("m")


@pytest.mark.parametrize("name", ["0" * 32, "row 7", ID[:8]])
def test_who_is_not_called_so_is_not_found(name: str) -> None:
    assert [*remains_in(TOPICS, a_result(), name)] == []
