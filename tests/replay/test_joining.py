"""Requests and their ends, found to each other."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.domain import Datatype, Reason, Source, Terminal
from headrace.replay import CANCELLED, Join, Recorded
from headrace.wire import (
    PROTOBUF_HEADERS,
    ROWS,
    Batch,
    BatchedOutput,
    Outgoing,
    Record,
    RequestEncoder,
    RunFacts,
    SourceTable,
    cancel_headers,
    dead_letter,
    decode_order,
    encode_refusals,
    encode_replies,
    plain_refusal,
    plain_reply,
)
from tests.replay.builders import MS, a_record, scores
from tests.services.ctl.test_explain import an_order
from tests.wire.records import (
    AN_INGRESS,
    BY_HAND,
    PLAIN,
    TOPICS,
    a_new_request,
    a_request,
    a_value,
)
from tests.wire.test_deadletters import LETTER

ID = a_new_request().id
REQUESTS = TOPICS.requests("digits")
FACTS = RunFacts(worker="0/1", wait_us=1, input_us=2, run_us=700, output_us=4)


def joined(*records: Record, waiting_max: int = 100) -> tuple[list[Recorded], Join]:
    join = Join(TOPICS, lambda _record: True, waiting_max=waiting_max)
    ended = [each for record in records for each in join.take(record)]
    return ended + list(join.rest()), join


def appended(
    topic: str, at_ms: int, outgoing: Outgoing, *, partition: int = 0, offset: int = 0
) -> Record:
    key, headers, value = outgoing
    return Record(topic, partition, offset, at_ms * MS, key, value, list(headers))


def batch_of(*ids: str, offset: int = 7) -> Batch:
    batch = decode_order(
        an_order(
            0,
            *(a_request(request_id=each, offset=offset, tenant="acme") for each in ids),
        )
    )
    assert isinstance(batch, Batch)
    return batch


def answered(at_ms: int, *ids: str, partition: int = 0) -> Record:
    output = BatchedOutput.of(
        "y", Datatype.FP32, (ROWS, 1), (b"aaaa", b"bbbb")[: len(ids)]
    )
    value = encode_replies(batch_of(*ids), range(len(ids)), [output], FACTS)
    outgoing = Outgoing(None, PROTOBUF_HEADERS, value)
    return appended(TOPICS.replies, at_ms, outgoing, partition=partition)


def refused(at_ms: int, source: Source, *, is_plain: bool = False) -> Record:
    terminal = Terminal(
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
        source=source,
    )
    if is_plain:
        return appended(PLAIN.topic, at_ms, plain_refusal(terminal))
    value = encode_refusals(1, [terminal])
    return appended(TOPICS.replies, at_ms, Outgoing(None, PROTOBUF_HEADERS, value))


def asked_by(source: str, offset: int = 7) -> Record:
    headers, value = RequestEncoder(source, PLAIN).encode(a_new_request(), 0)
    return appended(
        REQUESTS, 0, Outgoing(None, headers, value), partition=3, offset=offset
    )


def ends(found: Sequence[Recorded]) -> list[tuple[int, str | None]]:
    return [(each.source.offset, each.ending and each.ending.status) for each in found]


def test_an_answer_finds_its_request_by_id_tenant_and_address() -> None:
    other = "b" * 32
    elsewhere = answered(3, ID, partition=1)

    found, _ = joined(a_record(), elsewhere, answered(12, ID, other))

    (one,) = found
    assert one.ending is not None
    assert (one.id, one.tenant, one.rows, one.latency_us) == (ID, "acme", 2, 12 * MS)
    assert [bytes(each.data) for each in one.ending.outputs] == [b"aaaa"]
    assert (one.ending.version, one.ending.run_us) == ("3", 700)
    assert one.ending.batch_rows == 2


def test_a_result_and_a_dead_letter_find_it_by_its_place() -> None:
    job, buried = asked_by("headrace/jobs/1"), a_record(LETTER.source.offset)
    assert buried.partition == LETTER.source.partition
    place = SourceTable([Source(REQUESTS, 3, 7)])
    batch = msgspec.structs.replace(batch_of(ID), sources=place)
    result = appended(PLAIN.topic, 9, plain_reply(batch, 0, [scores([1.0, 2.0])]))
    letter = appended(TOPICS.dead_letters("digits"), 11, dead_letter(LETTER, buried))

    found, _ = joined(job, buried, result, letter)

    assert ends(found) == [(7, "ok"), (LETTER.source.offset, "poison")]
    assert found[0].ending is not None
    assert found[0].ending.outputs[0].name == "scores"


def test_the_first_end_counts_and_a_second_record_is_none() -> None:
    found, join = joined(
        a_record(7),
        a_record(8),
        refused(5, Source(REQUESTS, 2, 7)),
        answered(6, ID),
        a_record(9),
    )

    assert ends(found) == [(7, "expired")]
    assert join.counts.repeated == 2


def test_what_was_put_back_is_a_request_of_its_own() -> None:
    again = a_record(9)
    again.headers.append(("inf-redriven", b"headrace.deadletters.digits/0/5"))

    found, _ = joined(
        a_record(7), refused(5, Source(REQUESTS, 2, 7)), again, answered(9, ID)
    )

    assert ends(found) == [(7, "expired"), (9, "ok")]


def test_hand_made_requests_may_share_an_id() -> None:
    value = a_value().SerializeToString()
    headers = [(name, data) for name, data in BY_HAND.items()]
    first, second = (
        appended(REQUESTS, 0, Outgoing(None, headers, value), partition=2, offset=each)
        for each in (7, 8)
    )

    found, _ = joined(
        first,
        second,
        refused(3, Source(REQUESTS, 2, 8), is_plain=True),
        refused(4, Source(REQUESTS, 2, 7), is_plain=True),
    )

    assert ends(found) == [(8, "expired"), (7, "expired")]
    assert found[0].rows is None


def test_a_cancel_ends_it() -> None:
    headers = cancel_headers(
        ID, "acme", AN_INGRESS, source="headrace/ingress/0", log_us=0
    )
    cancel = appended(REQUESTS, 4, Outgoing(None, headers, None), partition=2, offset=9)

    found, _ = joined(a_record(), cancel, answered(5, ID))

    assert ends(found) == [(7, CANCELLED)]


def test_what_a_replay_wrote_is_left_out() -> None:
    found, join = joined(asked_by("headrace/replay/r1"), a_record(8), answered(5, ID))

    assert ends(found) == [(8, "ok")]
    assert join.counts.replays == 1


def test_no_more_than_so_many_wait_for_their_end() -> None:
    records = [a_record(offset, id=f"{offset:032x}") for offset in range(3)]

    found, join = joined(*records, answered(5, f"{1:032x}"), waiting_max=2)

    assert ends(found) == [(0, None), (1, "ok"), (2, None)]
    assert join.counts.given_up == 1


def test_an_answer_that_cannot_be_read_is_passed_over() -> None:
    torn = Record(TOPICS.replies, 0, 0, 0, None, b"\xff", list(PROTOBUF_HEADERS))

    found, join = joined(a_record(), torn, answered(5, ID))

    assert ends(found) == [(7, "ok")]
    assert join.counts.undecodable == 1
