"""Tensors that lie in the payload store, and the records that name them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain import (
    Datatype,
    PayloadRef,
    Reason,
    Request,
    Tensor,
    TensorSpec,
)
from headrace.errors import RequestError
from headrace.wire import (
    LENGTH,
    ROWS,
    Batch,
    BatchedOutput,
    decode_plain_reply,
    decode_replies,
    encode_replies,
    pack_bytes,
    plain_reply,
)
from headrace.wire.payloads import dataref_bytes, object_name, read_dataref
from tests.wire.records import (
    BY_HAND,
    INGRESS,
    a_decoder,
    a_new_request,
    a_padded_version,
    a_record,
    a_request,
    a_value,
    a_version,
    an_envelope,
    read,
    rejected,
)
from tests.wire.test_batches import sent
from tests.wire.test_replies import FACTS

NAME = "20260101T00/acme/one"
HEX = "ab" * 32
FIT = f"{NAME};sha256={HEX};length=32"
STORE_MAX = 1000


def a_ref(*tensors: bytes, name: str = NAME) -> PayloadRef:
    digest = sha256(b"".join(tensors)).hexdigest()
    return PayloadRef(name, digest, tuple(map(len, tensors)))


@given(
    st.lists(st.integers(0, 10**9), min_size=1, max_size=20),
    st.from_regex(r"\A[A-Za-z0-9_-]{1,20}\Z"),
)
def test_a_reference_comes_as_it_went(sizes: list[int], own: str) -> None:
    name = object_name(1_700_000_000_000_000, "acme", own)
    ref = PayloadRef(name, HEX, tuple(sizes))
    assert name == f"20231114T22/acme/{own}"
    assert read_dataref({"inf-dataref": dataref_bytes(ref)}) == ref
    assert read_dataref({}) is None


@pytest.mark.parametrize(
    "text",
    [
        NAME,
        FIT.replace(NAME, "../etc/passwd"),
        FIT.replace(NAME, "/etc/passwd"),
        FIT.replace(NAME, "http://169.254.0.1/x"),
        FIT.replace(NAME, "a/.hidden"),
        FIT.replace(NAME, "a//b"),
        FIT.replace(NAME, "a" * 513),
        FIT.replace(HEX, HEX.upper()),
        FIT.replace(HEX, HEX[1:]),
        f"{FIT};sizes=16,15",
        f"{FIT};sizes=",
        FIT.replace("32", "-1"),
    ],
)
def test_a_reference_to_anything_else_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="inf-dataref"):
        read_dataref({"inf-dataref": text.encode()})


def test_a_request_of_ours_names_its_tensors() -> None:
    ref = a_ref(bytes(32))
    headers, value = INGRESS.encode(a_new_request(payload=ref), 0)
    record = a_record(value, dict(headers))

    got = read(a_decoder(a_version(), STORE_MAX), record)
    assert (got.payload, got.tensors, got.size_bytes) == (ref, (), 32)
    assert (got.rows, got.shape) == (2, "x:FP32:4")
    assert len(value) < 64

    short = a_new_request(payload=a_ref(bytes(31)))
    wrong = rejected(
        a_decoder(a_version(), STORE_MAX), a_record(*reversed(encoded(short)))
    )
    assert "'x' has 31 bytes, expected 32" in wrong.text
    large = rejected(a_decoder(a_version(), 31), record)
    assert (large.reason, "at most 31" in large.text) == (Reason.TOO_LARGE, True)
    nowhere = rejected(a_decoder(a_version()), record)
    assert "no payload store is set (HEADRACE_BUS__PAYLOAD_STORE)" in nowhere.text


def encoded(request: object) -> tuple[dict[str, bytes | None], bytes]:
    headers, value = INGRESS.encode(request, 0)  # type: ignore[arg-type] # as it is
    return dict(headers), value


@pytest.mark.parametrize("sizes", ["", ";sizes=32"])
def test_a_request_by_hand_names_its_tensors(sizes: str) -> None:
    value = a_value(shape=(2, 4))
    del value.raw_input_contents[:]
    headers = BY_HAND | {"inf-dataref": f"{FIT}{sizes}".encode()}
    record = a_record(value.SerializeToString(), headers)
    got = read(a_decoder(a_version(), STORE_MAX), record)
    assert got.payload == PayloadRef(NAME, HEX, (32,))
    assert (got.rows, got.shape, got.size_bytes) == (2, "x:FP32:4", 32)

    for broken, told in (
        (a_value(bytes(32), shape=(2, 4)), "has no contents itself"),
        (a_value(shape=(2, 4), name="y"), "describes 'x' in this order"),
        (a_value(shape=(2, 4), datatype="FP64"), "has datatype 'FP64'"),
        (a_value(shape=(3, 4)), "tensors of 32 bytes, expected 48"),
    ):
        if told != "has no contents itself":
            del broken.raw_input_contents[:]
        wrong = rejected(
            a_decoder(a_version(), STORE_MAX),
            a_record(broken.SerializeToString(), headers),
        )
        assert told in wrong.text


def test_what_decides_who_shares_a_batch_cannot_lie_elsewhere() -> None:
    served = a_version(
        TensorSpec("x", Datatype.FP32, (-1, 4)),
        TensorSpec("k", Datatype.INT64, (1,)),
        batch_axes={"x": 0},
    )
    value = a_value(shape=(1, 4))
    value.inputs.add(name="k", datatype="INT64", shape=(1,))
    del value.raw_input_contents[:]
    ref = f"{NAME};sha256={HEX};length=24;sizes=16,8"
    headers = BY_HAND | {"inf-dataref": ref.encode()}
    wrong = rejected(
        a_decoder(served, STORE_MAX), a_record(value.SerializeToString(), headers)
    )
    assert "input 'k' has no batch axis" in wrong.text


PARTS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 8), st.booleans()),
    min_size=1,
    max_size=6,
)


@given(PARTS)
def test_a_batch_is_the_same_wherever_its_tensors_came_from(
    parts: Sequence[tuple[int, int, bool]],
) -> None:
    served = a_padded_version()
    whole, split, contents = [], [], {}
    for place, (rows, length, is_stored) in enumerate(parts):
        raw = bytes([place + 1]) * (8 * rows * length)
        request = a_request(
            shape="ids:INT64:~8",
            rows=rows,
            length=length,
            tensors=(raw,),
            offset=place,
        )
        whole.append(request)
        if is_stored:
            request = stored(request)
            contents[place] = memoryview(raw)
        split.append(request)

    batch = sent(served, *split)
    assert batch.payloads.keys() == contents.keys()
    assert summed(batch.with_payloads(contents)) == summed(sent(served, *whole))


def stored(request: Request) -> Request:
    ref = a_ref(*map(bytes, request.tensors))
    return msgspec.structs.replace(request, tensors=(), payload=ref)


def summed(batch: Batch) -> object:
    tensors = [
        (each.name, each.shape, bytes(each.data), each.member_bytes)
        for each in batch.tensors
    ]
    return msgspec.structs.replace(batch, tensors=()), tensors


@pytest.mark.parametrize("inline", [False, True])
def test_what_members_share_comes_from_any_of_them(*, inline: bool) -> None:
    served = a_version(
        TensorSpec("x", Datatype.FP32, (-1, 4)),
        TensorSpec("k", Datatype.INT64, (1,)),
        batch_axes={"x": 0},
    )
    one = (3).to_bytes(8, "little")
    key = f"x:FP32:4;k:INT64:1={one.hex()}"
    first, second = (
        a_request(shape=key, tensors=(bytes([n]) * 16, one), offset=n) for n in (1, 2)
    )
    batch = sent(served, stored(first), second if inline else stored(second))
    contents = {
        member: memoryview(bytes([member + 1]) * 16 + one) for member in batch.payloads
    }
    assert summed(batch.with_payloads(contents)) == summed(sent(served, first, second))


def test_strings_are_divided_by_the_reference() -> None:
    served = a_version(TensorSpec("s", Datatype.BYTES, (-1, 1)))
    raws = [pack_bytes([b"a"]), pack_bytes([b"bcd"])]
    requests = [
        a_request(shape="s:BYTES:1", tensors=(raw,), offset=n)
        for n, raw in enumerate(raws)
    ]
    batch = sent(served, requests[0], stored(requests[1]))
    filled = batch.with_payloads({1: memoryview(raws[1])})
    assert bytes(filled.tensors[0].data) == b"".join(raws)
    assert filled.tensors[0].member_bytes == (5, 7)


def test_an_answer_names_its_outputs() -> None:
    batch = sent(a_version(), a_request(rows=2, tensors=(bytes(32),)))
    outputs = [
        BatchedOutput.of("y", Datatype.FP32, (ROWS, 2), (b"",)),
        BatchedOutput.of("z", Datatype.INT64, (2,), (b"",)),
    ]
    parts = bytes(range(16)), bytes(range(16, 32))
    ref = a_ref(*parts)
    value = encode_replies(batch, [0], outputs, FACTS, {0: ref})
    replies = decode_replies(an_envelope(value))
    assert replies is not None
    (answer,) = replies.answers
    assert answer.payload == ref
    got = answer.with_payload(memoryview(b"".join(parts)))
    assert got.payload is None
    assert [(each.name, each.shape, bytes(each.data)) for each in got.outputs] == [
        ("y", (2, 2), parts[0]),
        ("z", (2,), parts[1]),
    ]
    assert LENGTH not in got.outputs[0].shape


def test_a_plain_answer_names_its_outputs() -> None:
    batch = sent(a_version(), a_request())
    ref = a_ref(bytes(16))
    output = Tensor("y", Datatype.FP32, (1, 4), bytes(16))
    key, headers, value = plain_reply(batch, 0, [output], ref)
    record = a_record(value, dict(headers))
    reply = decode_plain_reply(record)
    assert key == b"a" * 32
    assert reply.payload == ref
    assert [(each.shape, each.data) for each in reply.outputs] == [((1, 4), b"")]
