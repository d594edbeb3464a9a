"""Orders to a worker slot: batches and syncs, and what opens a link to one.

A batch's tensors come first in its record, each with its contents first, so that a
worker finds them as slices of the value and parses nothing of their size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise

import msgspec
from google.protobuf.message import DecodeError

from headrace.domain import (
    Datatype,
    Dispatch,
    Padding,
    PayloadRef,
    ReplyAddress,
    Request,
    ServedVersion,
)
from headrace.errors import UndecodableRecord
from headrace.wire._generated import headrace_pb2 as pb
from headrace.wire.columns import SourceTable, index_into
from headrace.wire.compatibility import LENGTH, ROWS, batched_shapes, key_part
from headrace.wire.framing import Piece, fields, frame, leading, member_bytes
from headrace.wire.headers import check_schema
from headrace.wire.payloads import payload_message, payloads_of, views_of
from headrace.wire.records import Record

__all__ = [
    "Batch",
    "BatchStamp",
    "BatchedTensor",
    "Opening",
    "Order",
    "Sync",
    "decode_order",
    "encode_batch",
    "encode_opening",
    "encode_sync",
    "parse_order",
]

ORDER_BATCH, ORDER_SYNC, ORDER_OPENING = 1, 2, 3
BATCH_TENSORS = 13
TENSOR_CONTENTS = 4

FORMS_KEPT = 256
"""What tensors say of themselves, the same in batch after batch."""

NO_REPLY = -1
PLAIN = -1


class BatchStamp(msgspec.Struct, frozen=True):
    """Who sends a batch, to whom; ``latest_start_us`` is log time, None: any."""

    lane: int
    epoch: int
    former: str
    incarnation: int
    lease_us: int
    latest_start_us: int | None


class BatchedTensor(msgspec.Struct, frozen=True):
    """One input of all members. ``shape`` has :data:`headrace.wire.ROWS` on the batch
    axis and :data:`headrace.wire.LENGTH` on the padded one; with neither, ``data``
    is the value that all members share, once.

    ``member_bytes`` None: proportional to the members' rows.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    data: memoryview
    member_bytes: tuple[int, ...] | None

    @property
    def is_shared(self) -> bool:
        return ROWS not in self.shape and LENGTH not in self.shape

    def completed(
        self, more: Mapping[int, memoryview], rows: Sequence[int]
    ) -> BatchedTensor:
        """With the parts of members that it lacks."""
        if self.is_shared:
            data = self.data if len(self.data) else next(iter(more.values()))
            return msgspec.structs.replace(self, data=data)
        sizes = self.member_bytes or [
            len(self.data) // sum(rows) * count for count in rows
        ]
        pieces = []
        for member, (start, end) in enumerate(pairwise(accumulate(sizes, initial=0))):
            pieces.append(more.get(member, self.data[start:end]))
        return msgspec.structs.replace(
            self,
            data=memoryview(b"".join(pieces)),
            member_bytes=tuple(member_bytes(pieces, rows)) or None,
        )


class Batch(msgspec.Struct, frozen=True):
    """A batch as its worker reads it; members stand in columns of equal length."""

    batch: str
    stamp: BatchStamp
    release_reason: str
    padded_rows: int
    predicted_us: int
    model: str
    version: str
    tensors: tuple[BatchedTensor, ...]
    ids: list[str]
    tenants: list[str]
    sources: SourceTable
    addresses: list[ReplyAddress | None]
    rows: list[int]
    lengths: list[int]
    """Extent on the padded axis; empty for a model without one."""

    attempts: list[int]
    client_ids: list[str]
    """Empty unless some member has a plain reply address."""

    payloads: dict[int, PayloadRef] = {}
    """Where the tensors of these members are: theirs in ``tensors`` are empty."""

    def with_payloads(self, contents: Mapping[int, memoryview]) -> Batch:
        """The batch as if all members had come with their tensors; ``contents`` of
        every member of ``payloads``.

        Raises ValueError where a reference is of another number of tensors.
        """
        fetched = {
            member: list(views_of(ref, contents[member]))
            for member, ref in self.payloads.items()
        }
        if any(len(views) != len(self.tensors) for views in fetched.values()):
            raise ValueError("a payload of another number of tensors")
        tensors = tuple(
            tensor.completed(
                {member: views[index] for member, views in fetched.items()}, self.rows
            )
            for index, tensor in enumerate(self.tensors)
        )
        return msgspec.structs.replace(self, tensors=tensors, payloads={})

    def compatibility_key(self, padding: Padding | None) -> str:
        """The key that its members share, for a version with this padding."""
        edge = padding.edge(max(self.lengths)) if padding and self.lengths else 0
        is_batched = any(not tensor.is_shared for tensor in self.tensors)
        return ";".join(
            key_part(
                tensor.name,
                tensor.datatype,
                [
                    f"~{edge}" if extent == LENGTH else str(extent)
                    for extent in tensor.shape
                    if extent != ROWS
                ],
                tensor.data if is_batched and tensor.is_shared else None,
            )
            for tensor in self.tensors
        )


class Sync(msgspec.Struct, frozen=True):
    """A former asks what the slot holds; ``k`` counts up per slot. ``incarnation``:
    of the process that it knows there, None: of none."""

    lane: int
    epoch: int
    former: str
    k: int
    incarnation: int | None = None


class Opening(msgspec.Struct, frozen=True):
    """A former begins to send to this process by a link; of its records in the topic
    only syncs up to ``k`` may still come."""

    lane: int
    epoch: int
    former: str
    k: int
    incarnation: int


Order = Batch | Sync | Opening


def encode_sync(sync: Sync) -> bytes:
    message = pb.Order(
        sync=pb.Sync(
            lane=sync.lane,
            epoch=sync.epoch,
            former=bytes.fromhex(sync.former),
            k=sync.k,
            incarnation=sync.incarnation,
        )
    )
    return message.SerializeToString()


def encode_opening(opening: Opening) -> bytes:
    message = pb.Order(
        opening=pb.Opening(
            lane=opening.lane,
            epoch=opening.epoch,
            former=bytes.fromhex(opening.former),
            k=opening.k,
            incarnation=opening.incarnation,
        )
    )
    return message.SerializeToString()


def encode_batch(dispatch: Dispatch, stamp: BatchStamp, served: ServedVersion) -> bytes:
    """All requests of ``dispatch`` have one compatibility key of ``served``.

    Raises :class:`headrace.errors.RequestError` when the key is not ``served``'s.
    """
    requests = dispatch.requests
    shapes = batched_shapes(served, requests[0].shape)
    body: list[Piece] = []
    for index, (spec, shape) in enumerate(
        zip(served.signature.inputs, shapes, strict=True)
    ):
        described = pb.BatchTensor(name=spec.name, datatype=spec.datatype, shape=shape)
        if ROWS in shape or LENGTH in shape:
            pieces = [
                request.tensors[index] if request.payload is None else b""
                for request in requests
            ]
            described.member_bytes.extend(
                member_bytes(pieces, [request.rows for request in requests])
            )
        else:
            pieces = [
                request.tensors[index]
                for request in requests
                if request.payload is None
            ][:1]
        contents = frame(TENSOR_CONTENTS, pieces)
        body += frame(BATCH_TENSORS, [*contents, described.SerializeToString()])
    body.append(_described(dispatch, stamp, served).SerializeToString())
    return b"".join(frame(ORDER_BATCH, body))


def decode_order(record: Record) -> Batch | Sync:
    """Raises :class:`headrace.errors.UndecodableRecord`."""
    check_schema(dict(record.headers))
    order = parse_order(memoryview(record.value or b""))
    if isinstance(order, Opening):
        raise UndecodableRecord("not an order: the opening of a link")
    return order


def parse_order(value: memoryview) -> Order:
    """An order without a record around it; a batch's tensors are slices of ``value``.

    Raises :class:`headrace.errors.UndecodableRecord`.
    """
    try:
        number, content = next(fields(value))
        if number == ORDER_SYNC:
            return _sync(pb.Sync.FromString(bytes(content)))
        if number == ORDER_BATCH:
            return _batch(content)
        if number == ORDER_OPENING:
            return _opening(pb.Opening.FromString(bytes(content)))
    except (DecodeError, ValueError, IndexError, StopIteration) as error:
        raise UndecodableRecord(f"not an order: {error}") from error
    raise UndecodableRecord(f"not an order: field {number}")


def _described(
    dispatch: Dispatch, stamp: BatchStamp, served: ServedVersion
) -> pb.Batch:
    requests = dispatch.requests
    sources = SourceTable(request.source for request in requests)
    tenants, tenant_index = index_into(request.tenant for request in requests)
    addresses, address_index = _addresses(requests)
    message = pb.Batch(
        batch=bytes.fromhex(dispatch.batch),
        lane=stamp.lane,
        epoch=stamp.epoch,
        former=bytes.fromhex(stamp.former),
        incarnation=stamp.incarnation,
        lease_ms=stamp.lease_us // 1000,
        latest_start_us=stamp.latest_start_us or 0,
        release_reason=dispatch.reason,
        padded_rows=dispatch.padded_rows,
        predicted_us=dispatch.predicted_us,
        model=served.model,
        version=served.version,
        sources=sources.table,
        source_index=sources.places,
        offsets=sources.offsets,
        addresses=addresses,
        address_index=address_index,
        tenants=tenants,
        tenant_index=tenant_index,
        ids=[request.id for request in requests],
        rows=[request.rows for request in requests],
        attempts=[request.attempt for request in requests],
    )
    if served.padding:
        message.lengths.extend(request.length for request in requests)
    if any(address.partition == PLAIN for address in addresses):
        message.client_ids.extend(request.client_id for request in requests)
    message.payloads.extend(
        payload_message(member, request.payload)
        for member, request in enumerate(requests)
        if request.payload is not None
    )
    return message


def _addresses(
    requests: Sequence[Request],
) -> tuple[list[pb.ReplyPartition], list[int]]:
    found, index = index_into(
        request.reply_to for request in requests if request.reply_to
    )
    places = iter(index)
    return (
        [
            pb.ReplyPartition(
                topic=topic, partition=PLAIN if partition is None else partition
            )
            for topic, partition in found
        ],
        [next(places) if request.reply_to else NO_REPLY for request in requests],
    )


def _sync(message: pb.Sync) -> Sync:
    return Sync(
        message.lane,
        message.epoch,
        message.former.hex(),
        message.k,
        message.incarnation if message.HasField("incarnation") else None,
    )


def _opening(message: pb.Opening) -> Opening:
    return Opening(
        message.lane,
        message.epoch,
        message.former.hex(),
        message.k,
        message.incarnation,
    )


def _batch(content: memoryview) -> Batch:
    tensors, rest = leading(content, BATCH_TENSORS)
    message = pb.Batch.FromString(bytes(rest))
    if message.tensors:
        raise ValueError("tensors behind other fields")
    addresses: list[ReplyAddress | None] = [
        ReplyAddress(each.topic, None if each.partition == PLAIN else each.partition)
        for each in message.addresses
    ]
    addresses.append(None)  # index NO_REPLY
    # A slice of a column is three times as fast as a list of it.
    ids = message.ids[:]
    batch = Batch(
        batch=message.batch.hex(),
        stamp=BatchStamp(
            lane=message.lane,
            epoch=message.epoch,
            former=message.former.hex(),
            incarnation=message.incarnation,
            lease_us=message.lease_ms * 1000,
            latest_start_us=message.latest_start_us or None,
        ),
        release_reason=message.release_reason,
        padded_rows=message.padded_rows,
        predicted_us=message.predicted_us,
        model=message.model,
        version=message.version,
        tensors=tuple(map(_tensor, tensors)),
        ids=ids,
        tenants=list(map(message.tenants[:].__getitem__, message.tenant_index[:])),
        sources=SourceTable.read(message),
        addresses=list(map(addresses.__getitem__, message.address_index[:])),
        rows=message.rows[:],
        lengths=message.lengths[:],
        attempts=message.attempts[:],
        client_ids=message.client_ids[:],
        payloads=payloads_of(message.payloads, len(ids)) if message.payloads else {},
    )
    _check_columns(batch)
    return batch


def _tensor(part: memoryview) -> BatchedTensor:
    (contents,), rest = leading(part, TENSOR_CONTENTS)
    name, datatype, shape, member_bytes = _form(bytes(rest))
    return BatchedTensor(name, datatype, shape, contents, member_bytes)


@lru_cache(FORMS_KEPT)
def _form(
    described: bytes,
) -> tuple[str, Datatype, tuple[int, ...], tuple[int, ...] | None]:
    message = pb.BatchTensor.FromString(described)
    sizes = tuple(message.member_bytes) or None
    return message.name, Datatype(message.datatype), tuple(message.shape), sizes


def _check_columns(batch: Batch) -> None:
    members = len(batch.ids)
    columns: Iterable[Sequence[object]] = (
        batch.tenants,
        batch.sources,
        batch.addresses,
        batch.rows,
        batch.attempts,
        batch.lengths or batch.ids,
        batch.client_ids or batch.ids,
        *(tensor.member_bytes or batch.ids for tensor in batch.tensors),
    )
    if not members or any(len(column) != members for column in columns):
        raise ValueError("columns of different length")
    if min(batch.rows) < 1:
        raise ValueError("a member without rows")
