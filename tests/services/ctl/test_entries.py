"""Records of the log as the lines of `headrace tail`."""

from __future__ import annotations

import pytest

from headrace.domain import Datatype, MemberStatus, Reason, Source, Terminal
from headrace.wire import (
    PROTOBUF_HEADERS,
    ROWS,
    Batch,
    BatchedOutput,
    Outgoing,
    Record,
    RunFacts,
    dead_letter,
    decode_order,
    encode_refusals,
    encode_replies,
    plain_refusal,
)
from services.ctl.choosing import conditions_of
from services.ctl.entries import FACTS, Entries, Entry
from services.ctl.tail import wanted_entries
from tests.services.ctl.test_explain import (
    BATCH,
    ID,
    MS,
    SOURCE,
    a_done,
    a_member,
    a_record,
    an_order,
    asked,
)
from tests.wire.records import AN_INGRESS, TOPICS, a_request
from tests.wire.test_deadletters import LETTER

FACTS_OF_A_RUN = RunFacts(worker="3/12", wait_us=1, input_us=2, run_us=3, output_us=4)
OURS = a_request(
    request_id=ID, offset=SOURCE.offset, tenant="acme", partition=SOURCE.partition
)


def a_terminal(text: str = "too late") -> Terminal:
    return Terminal(
        id=ID,
        tenant="acme",
        model="digits",
        version="3",
        reply_to=AN_INGRESS,
        attempt=1,
        reason=Reason.EXPIRED,
        text=text,
        retry_after_us=None,
        client_id="",
        source=SOURCE,
    )


def replied(at_ms: int) -> Record:
    """The success of two requests in one record."""
    other = a_request(request_id="b" * 32, tenant="acme")
    decoded = decode_order(an_order(0, OURS, other))
    assert isinstance(decoded, Batch)
    output = BatchedOutput.of("y", Datatype.FP32, (ROWS, 1), (bytes(4),) * 2)
    value = encode_replies(decoded, [0, 1], [output], FACTS_OF_A_RUN)
    return a_record(TOPICS.replies, at_ms, Outgoing(None, PROTOBUF_HEADERS, value))


def refused(at_ms: int) -> Record:
    value = encode_refusals(1, [a_terminal()])
    return a_record(TOPICS.replies, at_ms, Outgoing(None, PROTOBUF_HEADERS, value))


def entries_of(*records: Record, with_values: bool = False) -> list[Entry]:
    entries = Entries(TOPICS, with_values=with_values)
    return [entry for record in records for entry in entries.of(record)]


def test_an_envelope_is_one_line_for_each_of_its_answers() -> None:
    request, one, other = entries_of(asked(100), replied(112))

    assert (request.kind, request.id, request.rows) == ("requests", ID, 2)
    assert request.text == "x FP32 [2, 4]"
    assert (one.id, one.status, one.after_us) == (ID, "ok", 12 * MS)
    assert (one.model, one.version, one.priority) == ("digits", "3", "standard")
    assert (other.id, other.after_us, other.priority) == ("b" * 32, None, "")


def test_an_error_takes_from_its_request_what_it_does_not_say() -> None:
    _, refusal = entries_of(asked(100), refused(120))

    assert (refusal.status, refusal.text) == ("expired", "too late")
    assert (refusal.model, refusal.priority, refusal.after_us) == (
        "digits",
        "standard",
        20 * MS,
    )


def test_a_plain_reply_and_a_dead_letter_know_their_request_by_its_place() -> None:
    reply = plain_refusal(a_terminal())
    _, plain = entries_of(asked(0), a_record(TOPICS.results("acme", "scan"), 5, reply))
    original = asked(0)
    letter = a_record(TOPICS.dead_letters("digits"), 7, dead_letter(LETTER, original))
    _, buried = entries_of(original, letter)

    assert (plain.kind, plain.id, plain.tenant) == ("results", ID, "acme")
    assert (plain.status, plain.after_us) == ("expired", 5 * MS)
    assert (buried.status, buried.after_us) == ("poison", 7 * MS)


def test_batches_and_what_became_of_them_name_their_members() -> None:
    done = a_done(9, a_member(SOURCE), a_member(SOURCE, MemberStatus.RETRY, "late"))
    order, ran = entries_of(an_order(0, OURS), done)

    assert (order.kind, order.id, order.members) == ("batches", BATCH, [ID])
    assert (ran.id, ran.status) == (BATCH, "ok, retry late")
    assert ran.text == "worker slot 3: waited 0.4 ms, ran 1.6 ms"

    (alone,) = entries_of(a_done(9, a_member(SOURCE), order=an_order(1, OURS)))
    assert alone.text == f"{ran.text}; it came by a link: full, 1.5 ms predicted"


def test_what_cannot_be_read_is_a_line_too() -> None:
    torn = Record(TOPICS.replies, 1, 2, 3, None, b"\xff", list(PROTOBUF_HEADERS))

    (entry,) = entries_of(torn)

    assert (entry.status, entry.place) == ("undecodable", f"{TOPICS.replies}/1/2")


def test_values_are_shown_when_asked_for() -> None:
    (request,) = entries_of(asked(0), with_values=True)

    assert [each.first for each in request.tensors] == [
        "[0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0]"
    ]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (["status!=ok"], ["requests", "replies"]),
        (["status=expired", "latency_ms>=20"], ["replies"]),
        (["latency_ms>20"], []),
        (["header.ce_type=inf.request.v1", "rows=2"], ["requests"]),
    ],
)
def test_lines_are_chosen_by_conditions(where: list[str], found: list[str]) -> None:
    chosen = wanted_entries(
        Entries(TOPICS), [asked(100), refused(120)], conditions_of(where, FACTS)
    )

    assert [each.kind for each in chosen] == found


def test_a_request_is_followed_by_its_id_into_its_batches() -> None:
    member = a_member(Source(SOURCE.topic, SOURCE.partition, 99))
    records = [asked(0), an_order(1, OURS), a_done(2, member), refused(3)]
    others = [an_order(4, a_request(request_id="b" * 32))]

    chosen = wanted_entries(Entries(TOPICS), [*records, *others], [], ID)

    assert [each.kind for each in chosen] == [
        "requests",
        "batches",
        "completions",
        "replies",
    ]
