"""The story of a batch and of a request, from their records."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from headrace.domain import (
    Done,
    DoneMember,
    MemberStatus,
    Reason,
    Refused,
    Request,
    Source,
    StaleWritten,
    Terminal,
)
from headrace.wire import (
    PROTOBUF_HEADERS,
    Outgoing,
    Record,
    dead_letter,
    decode_dead_letter,
    encode_batch,
    encode_completion,
    encode_refusals,
    outlined,
)
from services.ctl.batch_trail import BatchTrail, FollowBatch, MemberTrail
from services.ctl.explain import _show_batch as show_batch
from services.ctl.explain import _show_request as show_request
from services.ctl.following import unknown
from services.ctl.letters import Letter, put_back
from services.ctl.request_trail import (
    FollowRequest,
    Found,
    RequestTrail,
    Step,
    found_in,
)
from tests.wire.records import (
    AN_INGRESS,
    INGRESS,
    TOPICS,
    a_new_request,
    a_padded_version,
    a_request,
    a_value,
    a_version,
)
from tests.wire.test_batches import STAMP, a_dispatch
from tests.wire.test_deadletters import LETTER, as_read

MS = 1_000
BATCH = "ab" * 16
PADDED = a_padded_version()
ID = "0190" + "0" * 28
SOURCE = LETTER.source


def a_record(
    topic: str, at_ms: int, outgoing: Outgoing, *, partition: int = 0, offset: int = 0
) -> Record:
    key, headers, value = outgoing
    return Record(topic, partition, offset, at_ms * MS, key, value, list(headers))


def an_order(at_ms: int, *requests: Request, padded: bool = False) -> Record:
    served = PADDED if padded else a_version()
    value = encode_batch(a_dispatch(*requests), STAMP, served)
    outgoing = Outgoing(None, PROTOBUF_HEADERS, value)
    return a_record(TOPICS.batches, at_ms, outgoing, partition=3)


def a_done(
    at_ms: int, *members: DoneMember, batch: str = BATCH, order: Record | None = None
) -> Record:
    """``order``: it came by a link, and this says how."""
    done = Done(
        batch=batch,
        slot=3,
        incarnation=12,
        rows=len(members),
        wait_us=400,
        run_us=1600,
        members=members,
        input_us=20,
        output_us=30,
        model="digits",
        version="3",
        order=outlined(memoryview(order.value or b"")) if order else b"",
    )
    outgoing = Outgoing(None, PROTOBUF_HEADERS, encode_completion(done))
    return a_record(TOPICS.completions, at_ms, outgoing)


def a_member(
    source: Source, status: MemberStatus = MemberStatus.OK, reason: str = ""
) -> DoneMember:
    return DoneMember(source, ID, status, reason, "")


def followed(records: Iterable[Record]) -> FollowBatch:
    follow = FollowBatch(TOPICS, BATCH)
    for record in records:
        if follow.may_concern(record):
            follow.take(record)
    return follow


def test_a_batch_is_explained_from_its_order_and_its_done() -> None:
    one, two = a_request(offset=5), a_request(request_id="b" * 32, offset=6, attempt=2)
    members = [
        a_member(one.source),
        a_member(two.source, MemberStatus.RETRY, "late"),
    ]
    follow = followed(
        [an_order(100, one, two), a_done(110, *members), a_done(111, batch="cd" * 16)]
    )

    trail = follow.trail({one.source: 90 * MS}, None)

    assert isinstance(trail, BatchTrail)
    assert follow.ended_us == 110 * MS
    sent, ran = trail.sent, trail.ran
    assert sent is not None
    assert ran is not None
    assert (sent.at_us, sent.lane, sent.epoch, sent.former) == (
        100 * MS,
        STAMP.lane,
        STAMP.epoch,
        STAMP.former,
    )
    assert (sent.slot, sent.incarnation, sent.release_reason) == (3, 12, "full")
    assert (sent.padded_rows, sent.predicted_us) == (8, 1500)
    assert sent.padding_waste == 1 - 2 / 8
    assert (ran.at_us, ran.waited_us, ran.run_us) == (110 * MS, 400, 1600)
    assert [(each.id, each.attempt, each.queued_us) for each in trail.members] == [
        ("a" * 32, 1, 10 * MS),
        ("b" * 32, 2, None),
    ]
    assert [(each.status, each.reason) for each in trail.members] == [
        ("ok", ""),
        ("retry", "late"),
    ]


def test_a_batch_that_came_by_a_link_is_explained_from_its_done_alone() -> None:
    one, two = a_request(offset=5), a_request(request_id="b" * 32, offset=6, attempt=2)
    members = [a_member(one.source), a_member(two.source)]
    logged = followed([an_order(108, one, two), a_done(110, *members)])

    linked = followed([a_done(110, *members, order=an_order(0, one, two))])

    sent = linked.trail({}, None).sent
    assert sent is not None
    # Its run, and what went before and after it, as the worker measured them.
    assert sent.at_us == 110 * MS - 400 - 1600 - 30
    known = logged.trail({}, None)
    assert known.sent is not None
    assert sent == msgspec.structs.replace(known.sent, at_us=sent.at_us, is_linked=True)
    asked = {one.source: 90 * MS}
    assert linked.trail(asked, None).members[0].queued_us == sent.at_us - 90 * MS
    assert linked.trail({}, None).members == known.members


def test_padding_of_lengths_is_counted_as_waste() -> None:
    requests = [
        a_request(
            request_id=f"{number:032x}",
            shape="ids:INT64:~16",
            length=length,
            tensors=(bytes(8 * length),),
            offset=number,
        )
        for number, length in enumerate((12, 4))
    ]

    trail = followed([an_order(0, *requests, padded=True)]).trail({}, PADDED.padding)

    assert trail.sent is not None
    assert trail.sent.padding_waste == 1 - (12 + 4) / (8 * 16)
    assert [each.length for each in trail.members] == [12, 4]


def test_a_batch_whose_order_is_gone_is_explained_as_far_as_it_goes() -> None:
    trail = followed([a_done(110, a_member(SOURCE))]).trail({}, None)

    assert trail.sent is None
    assert (trail.model, trail.version, trail.rows) == ("digits", "3", 1)
    assert [(each.id, each.rows) for each in trail.members] == [(ID, None)]


def test_a_batch_that_was_refused_says_why() -> None:
    refused = Refused(BATCH, 0, 3, 12, "incarnation", 0)
    outgoing = Outgoing(None, PROTOBUF_HEADERS, encode_completion(refused))
    follow = followed(
        [an_order(0, a_request()), a_record(TOPICS.completions, 9, outgoing)]
    )

    assert follow.trail({}, None).refused == "incarnation"
    assert follow.ended_us == 9 * MS


def asked(at_ms: int = 0, offset: int = SOURCE.offset) -> Record:
    headers, value = INGRESS.encode(a_new_request(client_id="mine"), 0)
    outgoing = Outgoing(None, headers, value)
    return a_record(
        SOURCE.topic, at_ms, outgoing, partition=SOURCE.partition, offset=offset
    )


def steps(*records: Record) -> list[tuple[int, str]]:
    found = found_in(records[0], ID)
    assert found is not None
    follow = FollowRequest(TOPICS, found)
    for record in records:
        if follow.may_concern(record):
            follow.take(record)
    trail = follow.trail()
    assert (trail.id, trail.client_id, trail.tenant) == (ID, "mine", "acme")
    return [(step.after_us // MS, step.what) for step in trail.steps]


@pytest.mark.parametrize(
    "name", [ID, "mine", "asked-as", "4bf92f3577b34da6a3ce929d0e0e4736"]
)
def test_a_request_is_found_by_any_of_its_names(name: str) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    request = a_new_request(client_id="mine", traceparent=trace)
    headers, value = INGRESS.encode(request, 0)
    headers.append(("x-request-id", b"asked-as"))
    record = a_record(SOURCE.topic, 0, Outgoing(None, headers, value))

    found = found_in(record, name)

    assert found is not None
    assert found.id == ID
    assert found_in(record, "min") is None
    assert found_in(record, "x") is None


def test_the_steps_of_a_request_are_told_with_their_times() -> None:
    request = a_request(
        request_id=ID, offset=SOURCE.offset, tenant="acme", partition=SOURCE.partition
    )
    refusal = Terminal(
        id=ID,
        tenant="acme",
        model="digits",
        version="3",
        reply_to=AN_INGRESS,
        attempt=1,
        reason=Reason.EXPIRED,
        text="too late",
        retry_after_us=None,
        client_id="",
        source=SOURCE,
    )
    value = encode_refusals(1, [refusal])
    told = steps(
        asked(100),
        an_order(103, request),
        a_done(109, a_member(request.source, MemberStatus.RETRY, "late")),
        a_record(TOPICS.replies, 120, Outgoing(None, PROTOBUF_HEADERS, value)),
    )

    sent = (
        f"sent to worker slot 3 in batch {BATCH} (full: 1 request, 1 row, "
        "1.5 ms predicted), attempt 1"
    )
    assert told == [
        (0, "asked"),
        (3, sent),
        (
            9,
            "done by worker slot 3/12: retry: late; waited 0.4 ms there, ran 1.6 ms",
        ),
        (20, "answered: expired: too late"),
    ]


def test_a_request_whose_batch_came_by_a_link_has_the_same_steps() -> None:
    request = a_request(
        request_id=ID, offset=SOURCE.offset, tenant="acme", partition=SOURCE.partition
    )
    done = a_done(109, a_member(request.source), order=an_order(0, request))

    told = steps(asked(100), done)

    sent = (
        f"sent to worker slot 3 by a link, past the log, in batch {BATCH} (full: "
        "1 request, 1 row, 1.5 ms predicted), attempt 1"
    )
    assert told[1] == (6, sent)
    assert [what.partition(":")[0] for _, what in told[2:]] == [
        "done by worker slot 3/12"
    ]


def test_a_request_that_was_put_back_is_followed_on() -> None:
    original = asked(0)
    key, headers, value = dead_letter(LETTER, original)
    letter = a_record(
        TOPICS.dead_letters("digits"), 5, Outgoing(key, headers, value), offset=5
    )
    buried = Letter(Source(letter.topic, 0, 5), 5 * MS, key, decode_dead_letter(letter))
    again = a_record(
        SOURCE.topic, 50, put_back(buried), partition=SOURCE.partition, offset=90
    )
    second = Source(SOURCE.topic, SOURCE.partition, 90)

    told = steps(original, letter, again, a_done(60, a_member(second)))

    assert [what.partition(";")[0] for _, what in told] == [
        "asked",
        "dead letter: poison: no such row",
        "put back from headrace.deadletters.digits/0/5",
        "done by worker slot 3/12: ok",
    ]


def test_a_stale_request_and_a_repeated_one_say_so() -> None:
    stale = StaleWritten(SOURCE.topic, SOURCE.partition, ((70, 80),))
    outgoing = Outgoing(None, PROTOBUF_HEADERS, encode_completion(stale))
    told = steps(
        asked(0), asked(9, offset=78), a_record(TOPICS.completions, 99, outgoing)
    )

    assert [what for _, what in told][:2] == ["asked", "asked once more"]
    assert told[2] == (99, "ended as stale, without an answer")


def test_what_concerns_others_is_left_out() -> None:
    other = a_new_request(id="b" * 32)
    headers, value = INGRESS.encode(other, 0)
    elsewhere = Source(SOURCE.topic, SOURCE.partition, 99)

    told = steps(
        asked(0),
        a_record(SOURCE.topic, 1, Outgoing(None, headers, value), offset=99),
        a_done(2, a_member(elsewhere)),
        an_order(3, a_request(request_id=ID, offset=99)),
        as_read(msgspec.structs.replace(LETTER, source=elsewhere), None),
    )

    assert [what for _, what in told] == ["asked"]


def test_a_request_by_hand_is_known_by_its_place() -> None:
    headers = [("ce_id", b"1"), ("inf-model", b"digits")]
    value = a_value().SerializeToString()
    record = a_record(SOURCE.topic, 0, Outgoing(None, headers, value), offset=4)

    found = found_in(record, "1")

    assert isinstance(found, Found)
    assert not found.is_ours
    assert found.identity == Source(SOURCE.topic, 0, 4)
    assert found.tenant == "default"


def test_a_trail_is_printed_so_that_ids_and_places_can_be_copied(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    place = "headrace.deadletters.a-model-with-a-[name]-of-many-words-in-it/0/123456"
    step = Step(1_700_000_000_000_000, 1_234_000, "dead letter: " + "why " * 30, place)

    show_request(RequestTrail(ID, "", "t", "m", "bulk", None, [step]))
    show_batch(
        BatchTrail(
            BATCH, "m", "1", 1, None, None, None, "", [MemberTrail(ID, SOURCE, "t", 1)]
        )
    )

    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        f"Request {ID} of tenant t to m, bulk",
        f"2023-11-14T22:13:20.000Z   +1234 ms  {step.what}".rstrip(),
        f"    {place}",
        f"batch         {BATCH}",
        "model         m version 1",
        "made          its record is no longer in the log",
        "measured run  no worker has said that it is done",
        f"  {ID}  t, 1 row",
    ]


def test_a_reason_that_is_the_status_is_said_once() -> None:
    unacked = msgspec.structs.replace(
        a_member(SOURCE, MemberStatus.UNACKED, "unacked"), text="not acked"
    )

    told = steps(asked(0), a_done(9, unacked))

    assert told[-1][1].startswith("done by worker slot 3/12: unacked: not acked; ")


MADE = "019340b42c00" + "7" + "0" * 19
"""Made on 2024-11-18 at 19:16:09 UTC, as its first digits say."""


def test_a_request_that_an_ingress_refused_is_not_looked_for_further_back() -> None:
    made_us = int(MADE[:12], 16) * 1_000

    told = unknown(MADE, None)

    assert told.startswith(
        f"The log knows nothing of {MADE}. It was searched for from "
    )
    assert "looking further back is no use" in told
    for place in ("leaves no record", "headrace-reason", "request.failed", "/metrics"):
        assert place in told
    assert unknown(MADE, made_us - 1) == told
    assert "begin there (--from)" in unknown(MADE, made_us + 1)


@pytest.mark.parametrize("name", ["my-own-id", BATCH, "f" * 12 + "7" + "0" * 19])
def test_what_was_looked_for_in_the_last_hour_may_be_older(name: str) -> None:
    told = unknown(name, None)

    assert "look further back (--from)" in told
    assert "leaves no record" in told


def test_a_place_in_the_log_is_or_is_not() -> None:
    told = unknown("headrace.requests.m/0/7", None)

    assert told.endswith("It holds no such record, or no longer.")
