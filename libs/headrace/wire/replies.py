"""Answers on their way back: many in one record to an ingress, one to anybody else.

A worker writes results alone, a batch former errors alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from operator import sub
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import msgspec
from google.protobuf.message import DecodeError

from headrace.domain import Datatype, PayloadRef, Reason, Source, Tensor, Terminal
from headrace.errors import UndecodableRecord
from headrace.wire import headers as names
from headrace.wire._generated import headrace_pb2 as pb
from headrace.wire._generated import open_inference_pb2 as oip
from headrace.wire.batches import FORMS_KEPT, Batch
from headrace.wire.columns import collapsed, expanded
from headrace.wire.compatibility import LENGTH, ROWS
from headrace.wire.framing import Piece, frame, leading, member_bytes, uneven
from headrace.wire.payloads import (
    dataref_bytes,
    payload_message,
    payloads_of,
    tensors_from,
)
from headrace.wire.records import Outgoing, Record

__all__ = [
    "Answer",
    "BatchedOutput",
    "Replies",
    "RunFacts",
    "decode_replies",
    "encode_refusals",
    "encode_replies",
    "plain_refusal",
    "plain_reply",
]

_T = TypeVar("_T")

Pieces = Sequence[bytes | memoryview]

REPLY_TENSORS = 11
TENSOR_CONTENTS = 4
RAW_OUTPUT_CONTENTS = 6


class BatchedOutput(NamedTuple):
    """One output of a batch. ``shape`` has :data:`headrace.wire.ROWS` on the batch
    axis and :data:`headrace.wire.LENGTH` on an axis cut to each member's length; with
    neither, all members share the contents."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    contents: bytes | memoryview
    bounds: tuple[int, ...]
    """Member i has the bytes from ``bounds[i]`` to ``bounds[i + 1]``."""

    @classmethod
    def of(
        cls, name: str, datatype: Datatype, shape: tuple[int, ...], pieces: Pieces
    ) -> BatchedOutput:
        """From each member's piece, or the one that all share."""
        bounds = tuple(accumulate(map(len, pieces), initial=0))
        return cls(name, datatype, shape, b"".join(pieces), bounds)

    def piece(self, member: int) -> bytes | memoryview:
        return self.contents[self.bounds[member] : self.bounds[member + 1]]


class RunFacts(msgspec.Struct, frozen=True):
    """How a batch ran; ``worker`` is ``<slot>/<incarnation>``."""

    worker: str
    wait_us: int
    input_us: int
    run_us: int
    output_us: int


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What one request gets: outputs, or a reason and its text."""

    id: str
    tenant: str
    rows: int
    attempt: int
    outputs: tuple[Tensor, ...]
    reason: Reason | None
    text: str
    retry_after_us: int | None
    payload: PayloadRef | None = None
    """Where the outputs' data are, if they are not here."""

    def with_payload(self, content: memoryview) -> Answer:
        """The answer with its data. Raises ValueError where that does not fit."""
        assert self.payload is not None
        outputs = tensors_from(self.payload, self.outputs, content)
        return msgspec.structs.replace(self, outputs=outputs, payload=None)


class Replies(msgspec.Struct, frozen=True):
    """A record of ``replies.<cell>``. Model and version are those that ran; both are
    empty in a record of errors."""

    batch: str
    model: str
    version: str
    epoch: int
    batch_rows: int
    facts: RunFacts
    answers: list[Answer]


def encode_replies(
    batch: Batch,
    members: Sequence[int],
    outputs: Sequence[BatchedOutput],
    facts: RunFacts,
    payloads: Mapping[int, PayloadRef] = MappingProxyType({}),
) -> bytes:
    """Results of these members of ``batch``, in its order, all with one reply address;
    ``outputs`` are of the whole batch. Those in ``payloads``, by their place in
    ``members``, have empty pieces."""
    is_whole = len(members) == len(batch.ids)

    def of_members(column: list[_T]) -> list[_T]:
        return column if is_whole else [column[member] for member in members]

    rows = of_members(batch.rows)
    body: list[Piece] = []
    for output in outputs:
        body += _reply_tensor(output, None if is_whole else members, rows)
    message = pb.Replies(
        batch=bytes.fromhex(batch.batch),
        model=batch.model,
        version=batch.version,
        worker=facts.worker,
        epoch=batch.stamp.epoch,
        batch_rows=sum(batch.rows),
        wait_us=facts.wait_us,
        input_us=facts.input_us,
        run_us=facts.run_us,
        output_us=facts.output_us,
        ids=of_members(batch.ids),
        tenants=collapsed(of_members(batch.tenants)),
        rows=rows,
        lengths=of_members(batch.lengths) if batch.lengths else (),
        attempts=collapsed(of_members(batch.attempts)),
        payloads=[payload_message(place, ref) for place, ref in payloads.items()],
    )
    body.append(message.SerializeToString())
    return b"".join(body)


def _reply_tensor(
    output: BatchedOutput, members: Sequence[int] | None, rows: list[int]
) -> list[Piece]:
    """An output in a reply; ``members`` None: of all."""
    pieces: list[Piece] = [output.contents]
    sizes: list[int] = []
    if ROWS in output.shape or LENGTH in output.shape:
        if members is not None:
            pieces = list(map(output.piece, members))
            sizes = member_bytes(pieces, rows)
        else:
            sizes = uneven(list(map(sub, output.bounds[1:], output.bounds)), rows)
    described = _described(output.name, output.datatype, output.shape, tuple(sizes))
    return frame(REPLY_TENSORS, [*frame(TENSOR_CONTENTS, pieces), described])


@lru_cache(FORMS_KEPT)
def _described(
    name: str, datatype: Datatype, shape: tuple[int, ...], sizes: tuple[int, ...]
) -> bytes:
    """A reply tensor without its contents."""
    return pb.ReplyTensor(
        name=name, datatype=datatype, shape=shape, member_bytes=sizes
    ).SerializeToString()


def encode_refusals(epoch: int, terminals: Sequence[Terminal]) -> bytes:
    """Errors for requests that all have one reply address."""
    return pb.Replies(
        epoch=epoch,
        ids=[terminal.id for terminal in terminals],
        tenants=collapsed([terminal.tenant for terminal in terminals]),
        rows=[1] * len(terminals),
        attempts=collapsed([terminal.attempt for terminal in terminals]),
        reasons=[terminal.reason for terminal in terminals],
        texts=[terminal.text for terminal in terminals],
        retry_after_us=[terminal.retry_after_us or 0 for terminal in terminals],
    ).SerializeToString()


def decode_replies(record: Record) -> Replies | None:
    """None for a plain reply, which is not for an ingress. Tensors are slices of the
    record's value.

    Raises :class:`headrace.errors.UndecodableRecord`.
    """
    headers = dict(record.headers)
    if names.CE_ID in headers:
        return None
    names.check_schema(headers)
    try:
        return _replies(memoryview(record.value or b""))
    except (DecodeError, ValueError, IndexError) as error:
        raise UndecodableRecord(f"no replies: {error}") from error


def plain_reply(
    batch: Batch,
    member: int,
    outputs: Sequence[Tensor],
    payload: PayloadRef | None = None,
) -> Outgoing:
    """A result as any reader of the protocol understands it. With ``payload`` the
    outputs' data are there, and a header says so."""
    message = oip.ModelInferResponse(
        model_name=batch.model,
        model_version=batch.version,
        id=batch.client_ids[member] if batch.client_ids else "",
    )
    raws: list[Piece] = []
    for output in outputs:
        message.outputs.add(
            name=output.name, datatype=output.datatype, shape=output.shape
        )
        if payload is None:
            raws += frame(RAW_OUTPUT_CONTENTS, [output.data])
    value = b"".join([message.SerializeToString(), *raws])
    headers = _plain_headers(batch.ids[member], batch.sources[member], names.STATUS_OK)
    if payload is not None:
        headers.append((names.DATAREF, dataref_bytes(payload)))
    return Outgoing(batch.ids[member].encode(), headers, value)


def plain_refusal(terminal: Terminal) -> Outgoing:
    """An error for whoever reads plain replies; its text is the response's parameter
    ``error``."""
    message = oip.ModelInferResponse(
        model_name=terminal.model,
        model_version=terminal.version,
        id=terminal.client_id,
        parameters={"error": oip.InferParameter(string_param=terminal.text)},
    )
    headers = _plain_headers(terminal.id, terminal.source, names.STATUS_ERROR)
    headers.append((names.REASON, terminal.reason.encode()))
    return Outgoing(terminal.id.encode(), headers, message.SerializeToString())


def _plain_headers(
    request_id: str, source: Source, status: bytes
) -> list[tuple[str, bytes | None]]:
    return [
        (names.CE_ID, request_id.encode()),
        (names.STATUS, status),
        (names.SOURCE, names.source_text(source)),
        *names.PROTOBUF_HEADERS,
    ]


def _replies(view: memoryview) -> Replies:
    parts, rest = leading(view, REPLY_TENSORS)
    message = pb.Replies.FromString(bytes(rest))
    if message.tensors:
        raise ValueError("tensors behind other fields")
    members = len(message.ids)
    rows = list(message.rows)
    lengths = list(message.lengths) or [0] * members
    if len(rows) != members or min(rows, default=0) < 1:
        raise ValueError(f"rows {rows} for {members} members")
    columns = [_outputs(part, rows, lengths) for part in parts]
    reasons = [Reason(each) for each in message.reasons]
    outcomes: Iterator[tuple[Reason | None, str, int]] = (
        zip(reasons, message.texts, message.retry_after_us, strict=True)
        if reasons
        else iter([(None, "", 0)] * members)
    )
    outputs: Iterator[tuple[Tensor, ...]] = (
        zip(*columns, strict=True) if columns else iter([()] * members)
    )
    answers = [
        Answer(id_, tenant, count, attempt, tensors, reason, text, retry or None, ref)
        for id_, tenant, count, attempt, tensors, (reason, text, retry), ref in zip(
            message.ids,
            expanded(message.tenants, members),
            rows,
            expanded(message.attempts, members),
            outputs,
            outcomes,
            _payloads(message),
            strict=True,
        )
    ]
    facts = RunFacts(
        worker=message.worker,
        wait_us=message.wait_us,
        input_us=message.input_us,
        run_us=message.run_us,
        output_us=message.output_us,
    )
    return Replies(
        batch=message.batch.hex(),
        model=message.model,
        version=message.version,
        epoch=message.epoch,
        batch_rows=message.batch_rows,
        facts=facts,
        answers=answers,
    )


def _payloads(message: pb.Replies) -> Iterable[PayloadRef | None]:
    """One for each member."""
    members = range(len(message.ids))
    return map(payloads_of(message.payloads, len(members)).get, members)


def _outputs(part: memoryview, rows: list[int], lengths: list[int]) -> list[Tensor]:
    """The members' slices of one output."""
    (contents,), rest = leading(part, TENSOR_CONTENTS)
    described = pb.ReplyTensor.FromString(bytes(rest))
    name, datatype = described.name, Datatype(described.datatype)
    dims = tuple(described.shape)
    if ROWS not in dims and LENGTH not in dims:
        return [Tensor(name, datatype, dims, contents)] * len(rows)
    sizes = list(described.member_bytes)
    if not sizes:
        unit = len(contents) // sum(rows)
        sizes = [unit * count for count in rows]
    if sum(sizes) != len(contents):
        raise ValueError(f"output '{name}' does not divide among its members")
    shapes = {
        pair: tuple({ROWS: pair[0], LENGTH: pair[1]}.get(dim, dim) for dim in dims)
        for pair in set(zip(rows, lengths, strict=True))
    }
    bounds = pairwise(accumulate(chain((0,), sizes)))
    return [
        Tensor(name, datatype, shapes[pair], contents[start:end])
        for (start, end), pair in zip(
            bounds, zip(rows, lengths, strict=True), strict=True
        )
    ]
