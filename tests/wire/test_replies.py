"""Answers, from worker and former to an ingress and to anybody else."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain import (
    Datatype,
    DeadLetter,
    Reason,
    Request,
    Source,
    Tensor,
    Terminal,
)
from headrace.errors import UndecodableRecord
from headrace.wire import (
    LENGTH,
    PROTOBUF_HEADERS,
    ROWS,
    Answer,
    Batch,
    BatchedOutput,
    Replies,
    RunFacts,
    dead_letter,
    decode_order,
    decode_replies,
    encode_batch,
    encode_refusals,
    encode_replies,
    plain_refusal,
    plain_reply,
)
from headrace.wire._generated import headrace_pb2 as pb
from headrace.wire._generated import open_inference_pb2 as oip
from headrace.wire.framing import frame
from tests.wire.records import (
    AN_INGRESS,
    PLAIN,
    a_padded_version,
    a_record,
    a_request,
    a_version,
    an_envelope,
)
from tests.wire.test_batches import STAMP, a_dispatch

FACTS = RunFacts(worker="3/12", wait_us=1, input_us=2, run_us=3, output_us=4)


def a_batch(*requests: Request, padded: bool = False) -> Batch:
    served = a_padded_version() if padded else a_version()
    batch = decode_order(
        an_envelope(encode_batch(a_dispatch(*requests), STAMP, served))
    )
    assert isinstance(batch, Batch)
    return batch


def answered(batch: Batch, members: list[int], *outputs: BatchedOutput) -> list[Answer]:
    replies = decode_replies(
        an_envelope(encode_replies(batch, members, outputs, FACTS))
    )
    assert replies is not None
    return replies.answers


def an_output(*pieces: bytes, shape: tuple[int, ...] = (ROWS, 2)) -> BatchedOutput:
    return BatchedOutput.of("y", Datatype.UINT8, shape, pieces)


def a_terminal(**changes: object) -> Terminal:
    terminal = Terminal(
        id="one",
        tenant="acme",
        model="digits",
        version="3",
        reply_to=AN_INGRESS,
        attempt=2,
        reason=Reason.EXPIRED,
        text="the deadline passed",
        retry_after_us=None,
        client_id="42",
        source=Source("headrace.requests.digits", 2, 5),
    )
    return msgspec.structs.replace(terminal, **changes)


def test_each_member_gets_its_rows_of_the_batch() -> None:
    batch = a_batch(
        a_request(request_id="one"),
        a_request(request_id="two"),
        a_request(
            request_id="three",
            rows=2,
            tensors=(bytes(32),),
            tenant="acme",
            attempt=2,
        ),
    )
    record = an_envelope(
        encode_replies(batch, [0, 2], [an_output(b"ab", b"--", b"cdef")], FACTS)
    )
    assert decode_replies(record) == Replies(
        batch="ab" * 16,
        model="digits",
        version="3",
        epoch=7,
        batch_rows=4,
        facts=FACTS,
        answers=[
            Answer(
                "one",
                "default",
                1,
                1,
                (Tensor("y", Datatype.UINT8, (1, 2), memoryview(b"ab")),),
                None,
                "",
                None,
            ),
            Answer(
                "three",
                "acme",
                2,
                2,
                (Tensor("y", Datatype.UINT8, (2, 2), memoryview(b"cdef")),),
                None,
                "",
                None,
            ),
        ],
    )


def test_an_ingress_reads_outputs_where_they_lie() -> None:
    value = encode_replies(a_batch(a_request()), [0], [an_output(b"ab")], FACTS)
    replies = decode_replies(an_envelope(value))
    assert replies is not None
    data = replies.answers[0].outputs[0].data
    assert isinstance(data, memoryview)
    assert data.obj is value


def test_an_output_is_cut_to_each_members_length() -> None:
    batch = a_batch(
        a_request(shape="ids:INT64:~8", length=3, tensors=(bytes(24),)),
        a_request(shape="ids:INT64:~8", length=1, tensors=(bytes(8),)),
        padded=True,
    )
    output = an_output(b"abcdef", b"gh", shape=(ROWS, LENGTH, 2))
    first, second = answered(batch, [0, 1], output)
    assert (first.outputs[0].shape, bytes(first.outputs[0].data)) == (
        (1, 3, 2),
        b"abcdef",
    )
    assert (second.outputs[0].shape, bytes(second.outputs[0].data)) == (
        (1, 1, 2),
        b"gh",
    )


def test_strings_of_differing_length_find_their_members() -> None:
    batch = a_batch(a_request(), a_request())
    pieces = b"\1\0\0\0a", b"\3\0\0\0bcd"
    output = BatchedOutput.of("y", Datatype.BYTES, (ROWS,), pieces)
    first, second = answered(batch, [0, 1], output)
    assert bytes(first.outputs[0].data) == b"\1\0\0\0a"
    assert bytes(second.outputs[0].data) == b"\3\0\0\0bcd"


@pytest.mark.parametrize("members", [[0, 1], [0, 2]])
def test_an_output_without_a_batch_axis_is_everybodys(members: list[int]) -> None:
    batch = a_batch(*[a_request()] * (1 + max(members)))
    answers = answered(batch, members, an_output(b"abc", shape=(3,)))
    assert [
        (each.outputs[0].shape, bytes(each.outputs[0].data)) for each in answers
    ] == [((3,), b"abc")] * 2


@given(
    rows=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    chosen=st.sets(st.integers(0, 5), min_size=1),
    width=st.integers(1, 3),
)
def test_no_answer_goes_to_the_wrong_member(
    rows: list[int], chosen: set[int], width: int
) -> None:
    requests = [
        a_request(request_id=f"id-{index}", rows=count, tensors=(bytes(16 * count),))
        for index, count in enumerate(rows)
    ]
    batch = a_batch(*requests)
    members = sorted(member for member in chosen if member < len(rows)) or [0]
    pieces = [bytes([member]) * count * width for member, count in enumerate(rows)]
    answers = answered(batch, members, an_output(*pieces, shape=(ROWS, width)))
    assert [
        (each.id, each.outputs[0].shape, bytes(each.outputs[0].data))
        for each in answers
    ] == [(f"id-{member}", (rows[member], width), pieces[member]) for member in members]


def test_errors_of_several_requests_share_a_record() -> None:
    terminals = [
        a_terminal(),
        a_terminal(id="two", reason=Reason.OVERLOADED, retry_after_us=2_000_000),
    ]
    replies = decode_replies(an_envelope(encode_refusals(7, terminals)))
    assert replies is not None
    assert (replies.epoch, replies.model) == (7, "")
    assert replies.answers == [
        Answer("one", "acme", 1, 2, (), Reason.EXPIRED, "the deadline passed", None),
        Answer(
            "two",
            "acme",
            1,
            2,
            (),
            Reason.OVERLOADED,
            "the deadline passed",
            2_000_000,
        ),
    ]


def test_a_plain_reply_is_a_response_of_the_protocol() -> None:
    batch = a_batch(
        a_request(request_id="one", reply_to=PLAIN, client_id="42", offset=5)
    )
    output = Tensor("y", Datatype.UINT8, (1, 2), memoryview(b"ab"))
    key, headers, value = plain_reply(batch, 0, [output])
    assert key == b"one"
    assert list(headers) == [
        ("ce_id", b"one"),
        ("inf-status", b"ok"),
        ("inf-source", b"headrace.requests.digits/2/5"),
        *PROTOBUF_HEADERS,
    ]
    assert value is not None
    assert oip.ModelInferResponse.FromString(value) == oip.ModelInferResponse(
        model_name="digits",
        model_version="3",
        id="42",
        outputs=[
            oip.ModelInferResponse.InferOutputTensor(
                name="y", datatype="UINT8", shape=(1, 2)
            )
        ],
        raw_output_contents=[b"ab"],
    )


def test_a_plain_refusal_says_why_in_its_headers_and_its_value() -> None:
    key, headers, value = plain_refusal(a_terminal(reply_to=PLAIN))
    assert key == b"one"
    assert dict(headers) == {
        "ce_id": b"one",
        "inf-status": b"error",
        "inf-reason": b"expired",
        "inf-source": b"headrace.requests.digits/2/5",
        **dict(PROTOBUF_HEADERS),
    }
    assert value is not None
    response = oip.ModelInferResponse.FromString(value)
    assert response.id == "42"
    assert response.parameters["error"].string_param == "the deadline passed"


def test_an_ingress_skips_what_is_for_somebody_else() -> None:
    _, headers, value = plain_refusal(a_terminal())
    record = msgspec.structs.replace(an_envelope(value), headers=list(headers))
    assert decode_replies(record) is None


def test_a_dead_letter_is_the_original_behind_its_reason() -> None:
    original = a_record(b"broken", {"ce_id": b"one", "mine": b"kept"})
    letter = DeadLetter(
        source=Source("headrace.requests.digits", 2, 77),
        id="one",
        tenant="acme",
        model="digits",
        reason=Reason.UNDECODABLE,
        text="no message",
        attempts=1,
    )
    why = [
        ("inf-reason", b"undecodable"),
        ("inf-text", b"no message"),
        ("inf-source", b"headrace.requests.digits/2/77"),
        ("inf-attempt", b"1"),
    ]
    assert dead_letter(letter, original) == (
        b"one",
        [*why, ("ce_id", b"one"), ("mine", b"kept")],
        b"broken",
    )
    lost = [("ce_id", b"one"), ("inf-tenant", b"acme"), ("inf-model", b"digits")]
    assert dead_letter(letter, None) == (b"one", [*why, *lost], None)


REPLIES = encode_replies(
    a_batch(a_request(), a_request()), [0, 1], [an_output(b"ab", b"cd")], FACTS
)


@pytest.mark.parametrize("value", [None, b"", b"\x5a\x00", b"\xff" * 9])
def test_what_is_no_replies_is_undecodable(value: bytes | None) -> None:
    with pytest.raises(UndecodableRecord):
        decode_replies(an_envelope(value))


def test_sizes_that_do_not_add_up_are_undecodable() -> None:
    described = pb.ReplyTensor(
        name="y", datatype="UINT8", shape=(ROWS,), member_bytes=(3, 1)
    )
    tensor = [*frame(4, [b"abc"]), described.SerializeToString()]
    members = pb.Replies(ids=["a", "b"], tenants=["default"], rows=[1, 1], attempts=[1])
    value = b"".join([*frame(11, tensor), members.SerializeToString()])
    with pytest.raises(UndecodableRecord, match="does not divide among its members"):
        decode_replies(an_envelope(value))


def test_tensors_behind_other_fields_are_undecodable() -> None:
    value = pb.Replies.FromString(REPLIES).SerializeToString()
    with pytest.raises(UndecodableRecord, match="tensors behind other fields"):
        decode_replies(an_envelope(value))


@given(at=st.integers(0, len(REPLIES)), junk=st.binary(min_size=1, max_size=4))
def test_damaged_replies_are_read_or_undecodable(at: int, junk: bytes) -> None:
    damaged = bytearray(REPLIES)
    damaged[at : at + len(junk)] = junk
    try:
        decode_replies(an_envelope(bytes(damaged)))
    except UndecodableRecord:
        return
