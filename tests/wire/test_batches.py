"""Batches and syncs, from a former to a worker."""

from __future__ import annotations

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain import (
    Datatype,
    Dispatch,
    Padding,
    ReleaseReason,
    ReplyAddress,
    Request,
    ServedVersion,
    Source,
    TensorSpec,
)
from headrace.errors import RequestError, UndecodableRecord
from headrace.wire import (
    LENGTH,
    ROWS,
    Batch,
    BatchedTensor,
    BatchStamp,
    Opening,
    SourceTable,
    Sync,
    compatibility,
    decode_order,
    encode_batch,
    encode_opening,
    encode_sync,
    pack_bytes,
    parse_order,
)
from headrace.wire._generated import headrace_pb2 as pb
from tests.wire.records import (
    AN_INGRESS,
    a_padded_version,
    a_request,
    a_version,
    an_envelope,
)

STAMP = BatchStamp(
    lane=2,
    epoch=7,
    former="cd" * 16,
    incarnation=12,
    lease_us=300_000,
    latest_start_us=1_700_000_000_000_000,
)


def a_dispatch(*requests: Request) -> Dispatch:
    return Dispatch(
        batch="ab" * 16,
        slot=3,
        requests=requests,
        padded_rows=8,
        predicted_us=1500,
        predicted_p99_us=2000,
        latest_start_us=None,
        reason=ReleaseReason.FULL,
    )


def sent(served: ServedVersion, *requests: Request) -> Batch:
    record = an_envelope(encode_batch(a_dispatch(*requests), STAMP, served))
    batch = decode_order(record)
    assert isinstance(batch, Batch)
    return batch


def data_of(batch: Batch, index: int = 0) -> bytes:
    return bytes(batch.tensors[index].data)


def test_members_arrive_in_columns_with_their_tensors_concatenated() -> None:
    first = a_request(request_id="one", tensors=(b"\1" * 16,), offset=5)
    second = a_request(
        request_id="two",
        rows=2,
        tensors=(memoryview(b"\2" * 32),),
        offset=9,
        partition=0,
        tenant="acme",
        attempt=2,
        reply_to=None,
    )
    batch = sent(a_version(), first, second)
    assert batch == Batch(
        batch="ab" * 16,
        stamp=STAMP,
        release_reason="full",
        padded_rows=8,
        predicted_us=1500,
        model="digits",
        version="3",
        tensors=(
            BatchedTensor(
                "x",
                Datatype.FP32,
                (ROWS, 4),
                memoryview(b"\1" * 16 + b"\2" * 32),
                None,
            ),
        ),
        ids=["one", "two"],
        tenants=["default", "acme"],
        sources=SourceTable(
            [
                Source("headrace.requests.digits", 2, 5),
                Source("headrace.requests.digits", 0, 9),
            ]
        ),
        addresses=[AN_INGRESS, None],
        rows=[1, 2],
        lengths=[],
        attempts=[1, 2],
        client_ids=[],
    )


def test_a_worker_reads_tensors_where_they_lie() -> None:
    value = encode_batch(a_dispatch(a_request()), STAMP, a_version())
    batch = decode_order(an_envelope(value))
    assert isinstance(batch, Batch)
    assert batch.tensors[0].data.obj is value


def test_no_latest_start_is_none() -> None:
    stamp = msgspec.structs.replace(STAMP, latest_start_us=None)
    value = encode_batch(a_dispatch(a_request()), stamp, a_version())
    batch = decode_order(an_envelope(value))
    assert isinstance(batch, Batch)
    assert batch.stamp == stamp


def test_lengths_and_sizes_travel_where_members_differ() -> None:
    batch = sent(
        a_padded_version(),
        a_request(shape="ids:INT64:~8", length=5, tensors=(b"\1" * 40,)),
        a_request(shape="ids:INT64:~8", length=7, tensors=(b"\2" * 56,)),
    )
    (tensor,) = batch.tensors
    assert tensor.shape == (ROWS, LENGTH)
    assert batch.lengths == [5, 7]
    assert tensor.member_bytes == (40, 56)
    assert data_of(batch) == b"\1" * 40 + b"\2" * 56


def test_strings_of_differing_length_have_sizes() -> None:
    served = a_version(TensorSpec("x", Datatype.BYTES, (-1, 1)))
    one, two = pack_bytes([b"a"]), pack_bytes([b"bcd"])
    batch = sent(
        served,
        a_request(shape="x:BYTES:1", tensors=(one,)),
        a_request(shape="x:BYTES:1", tensors=(two,)),
    )
    assert batch.tensors[0].member_bytes == (5, 7)
    assert data_of(batch) == one + two


def test_a_shared_value_travels_once() -> None:
    served = a_version(
        TensorSpec("x", Datatype.FP32, (-1, 1)),
        TensorSpec("k", Datatype.FP32, ()),
        batch_axes={"x": 0, "k": -1},
    )
    k = struct.pack("<f", 2.0)
    shape = f"x:FP32:1;k:FP32:={k.hex()}"
    batch = sent(
        served,
        a_request(shape=shape, tensors=(b"\1" * 4, k)),
        a_request(shape=shape, tensors=(b"\2" * 4, k)),
    )
    assert [tensor.is_shared for tensor in batch.tensors] == [False, True]
    assert data_of(batch, 1) == k
    assert batch.tensors[1].shape == ()


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    value=st.binary(min_size=1, max_size=40),
)
def test_a_worker_knows_the_key_by_which_its_batch_was_formed(
    lengths: list[int], value: bytes
) -> None:
    padding = Padding("sequence", {"ids": 0}, {"ids": 1}, {}, (8, 16, 32))
    served = a_version(
        TensorSpec("ids", Datatype.INT64, (-1, -1)),
        TensorSpec("k", Datatype.UINT8, (-1,)),
        batch_axes={"ids": 0, "k": -1},
        padding=padding,
    )
    edge = padding.edge(max(lengths))
    fit = [length for length in lengths if padding.edge(length) == edge]
    keys = [
        compatibility(served, [(1, length), (len(value),)], [bytes(8 * length), value])
        for length in fit
    ]
    batch = sent(
        served,
        *(
            a_request(
                shape=key.shape, length=key.length, tensors=(bytes(8 * length), value)
            )
            for key, length in zip(keys, fit, strict=True)
        ),
    )

    assert {key.shape for key in keys} == {batch.compatibility_key(padding)}


def test_a_model_without_a_batch_axis_gets_its_only_member_whole() -> None:
    served = a_version(batch_axes={}, max_batch=1)
    batch = sent(served, a_request(shape="x:FP32:3,4", tensors=(bytes(48),)))
    assert batch.compatibility_key(None) == "x:FP32:3,4"
    assert batch.tensors[0].shape == (3, 4)
    assert batch.tensors[0].is_shared


def test_bodies_ids_travel_for_plain_replies_alone() -> None:
    plain = ReplyAddress("headrace.results.acme.scan", None)
    batch = sent(
        a_version(),
        a_request(reply_to=plain, client_id="42"),
        a_request(client_id="43"),
    )
    assert batch.addresses == [plain, AN_INGRESS]
    assert batch.client_ids == ["42", "43"]


def test_a_key_of_another_signature_makes_no_batch() -> None:
    with pytest.raises(RequestError, match="is none of model digits"):
        encode_batch(a_dispatch(a_request(shape="y:FP32:4")), STAMP, a_version())


@pytest.mark.parametrize("incarnation", [None, 0, 7])
def test_a_sync_comes_as_it_went(incarnation: int | None) -> None:
    sync = Sync(lane=1, epoch=9, former="ef" * 16, k=3, incarnation=incarnation)
    assert decode_order(an_envelope(encode_sync(sync))) == sync


def test_an_opening_comes_as_it_went_by_a_link_and_in_no_topic() -> None:
    opening = Opening(lane=1, epoch=9, former="ef" * 16, k=3, incarnation=0)
    value = encode_opening(opening)

    assert parse_order(memoryview(value)) == opening
    with pytest.raises(UndecodableRecord, match="the opening of a link"):
        decode_order(an_envelope(value))


def test_the_bytes_of_a_batch_are_these() -> None:
    request = a_request(request_id="one", offset=5, tensors=(b"abcdefghijklmnop",))
    value = encode_batch(a_dispatch(request), STAMP, a_version())
    message = pb.Order.FromString(value)
    (tensor,) = message.batch.tensors
    assert (tensor.contents, list(tensor.shape)) == (b"abcdefghijklmnop", [-1, 4])
    assert value.startswith(
        b"\x0a\xda\x01\x6a\x28\x22\x10abcdefghijklmnop\x0a\x01x\x12\x04FP32"
    )
    assert value.endswith(
        b"\xa2\x01\x1c\n\x18headrace.requests.digits\x10\x02"
        b"\xaa\x01\x1a\n\x18headrace.replies.default"
        b"\xb2\x01\x07default\xf2\x01\x03one\xfa\x01\x01\x00\x82\x02\x01\x05"
        b"\x8a\x02\x01\x00\x92\x02\x01\x00\x9a\x02\x01\x01\xaa\x02\x01\x01"
    )


BATCH = encode_batch(a_dispatch(a_request(), a_request(rows=2)), STAMP, a_version())


@pytest.mark.parametrize("value", [None, b"", b"\x0a\x00", b"\x22\x00", b"\xff" * 12])
def test_what_is_no_order_is_undecodable(value: bytes | None) -> None:
    with pytest.raises(UndecodableRecord):
        decode_order(an_envelope(value))


def test_an_unknown_schema_version_is_undecodable() -> None:
    record = msgspec.structs.replace(an_envelope(BATCH), headers=[("inf-schema", b"2")])
    with pytest.raises(UndecodableRecord, match="inf-schema is b'2', expected 1"):
        decode_order(record)


def test_tensors_behind_other_fields_are_undecodable() -> None:
    value = pb.Order.FromString(BATCH).SerializeToString()
    with pytest.raises(UndecodableRecord, match="tensors behind other fields"):
        decode_order(an_envelope(value))


def test_columns_of_different_length_are_undecodable() -> None:
    message = pb.Batch(ids=["a", "b"], rows=[1])
    value = pb.Order(batch=message).SerializeToString()
    with pytest.raises(UndecodableRecord):
        decode_order(an_envelope(value))


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({}, ""),
        ({"rows": [0]}, "a member without rows"),
        ({"rows": [-1]}, "a member without rows"),
        ({"source_index": [1]}, "index out of range"),
        ({"source_index": [-1]}, "a source_index below 0"),
        ({"offsets": [0, 1]}, "source_index and offsets of different length"),
    ],
)
def test_columns_that_do_not_fit_are_undecodable(
    columns: dict[str, list[int]], fault: str
) -> None:
    message = pb.Batch(
        ids=["a"],
        tenants=["acme"],
        tenant_index=[0],
        sources=[pb.SourcePartition(topic="t")],
        address_index=[-1],
        attempts=[1],
    )
    for name, numbers in (
        {"rows": [1], "source_index": [0], "offsets": [0]} | columns
    ).items():
        getattr(message, name).extend(numbers)
    record = an_envelope(pb.Order(batch=message).SerializeToString())
    if not fault:
        decode_order(record)
    else:
        with pytest.raises(UndecodableRecord, match=fault):
            decode_order(record)


@given(at=st.integers(0, len(BATCH)), junk=st.binary(min_size=1, max_size=4))
def test_a_damaged_order_is_read_or_undecodable(at: int, junk: bytes) -> None:
    damaged = bytearray(BATCH)
    damaged[at : at + len(junk)] = junk
    try:
        decode_order(an_envelope(bytes(damaged)))
    except UndecodableRecord:
        return


@given(value=st.binary(max_size=80))
def test_any_bytes_are_an_order_or_undecodable(value: bytes) -> None:
    try:
        decode_order(an_envelope(value))
    except UndecodableRecord:
        return


@given(
    members=st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from([None, 0, 1, 2])), min_size=1
    )
)
def test_every_member_keeps_its_own_facts(
    members: list[tuple[int, int | None]],
) -> None:
    requests = [
        a_request(
            request_id=f"id-{index}",
            rows=rows,
            tensors=(bytes([index % 256]) * 16 * rows,),
            offset=index,
            partition=index % 3,
            tenant=f"t{index % 2}",
            attempt=1 + index % 2,
            reply_to=None
            if reply is None
            else ReplyAddress("headrace.replies.default", reply),
        )
        for index, (rows, reply) in enumerate(members)
    ]
    batch = sent(a_version(), *requests)
    facts = zip(
        batch.ids,
        batch.tenants,
        batch.sources,
        batch.addresses,
        batch.rows,
        batch.attempts,
        strict=True,
    )
    assert list(facts) == [
        (each.id, each.tenant, each.source, each.reply_to, each.rows, each.attempt)
        for each in requests
    ]
    assert data_of(batch) == b"".join(bytes(each.tensors[0]) for each in requests)
    assert batch.tensors[0].member_bytes is None
