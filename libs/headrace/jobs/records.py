"""Rows on their way into the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from headrace.clock import wall_us
from headrace.domain import Datatype, Priority, ReplyAddress, ServedVersion, Tensor
from headrace.errors import RequestError
from headrace.jobs.chunks import Chunk
from headrace.jobs.columns import Columns, Rows
from headrace.jobs.desk import Desk
from headrace.wire import (
    TIMEOUT_MAX_US,
    Compatibility,
    Headers,
    NewRequest,
    RequestEncoder,
    cancel_headers,
    compatibility,
    decode_plain_request,
    pack_bytes,
    unpack_bytes,
)
from headrace.wire import headers as names
from headrace.wire.jobs import JobSpec, RowRange

__all__ = ["JobRequests", "NewRecord", "RecordMaker", "row_of", "source_of"]

T = TypeVar("T")

FRAMING_BYTES = 8 * 1024
"""Of a request's limit, for what stands around its tensors."""


class NewRecord(NamedTuple):
    rows: RowRange
    headers: Headers
    value: bytes


def source_of(spec: JobSpec) -> str:
    """``ce_source`` of the job's records."""
    return f"headrace/jobs/{spec.tenant}/{spec.job}"


def row_of(request: bytes, place: int) -> tuple[Tensor, ...]:
    """One row of a record that carries several: their inputs' first axis."""
    return tuple(_row(tensor, place) for tensor in decode_plain_request(request).inputs)


def _row(tensor: Tensor, place: int) -> Tensor:
    rows = tensor.shape[0]
    shape = (1, *tensor.shape[1:])
    if tensor.datatype is Datatype.BYTES:
        elements = unpack_bytes(tensor.name, tensor.data)
        count = len(elements) // rows
        data = pack_bytes(elements[place * count : (place + 1) * count])
    else:
        size = len(tensor.data) // rows
        data = bytes(tensor.data[place * size : (place + 1) * size])
    return Tensor(tensor.name, tensor.datatype, shape, data)


class JobRequests:
    """Requests as one job's, and what takes them back."""

    def __init__(self, spec: JobSpec, results: str) -> None:
        self._spec = spec
        self._address = ReplyAddress(results, None)
        self._encoder = RequestEncoder(source_of(spec), self._address)

    def record(
        self,
        rows: RowRange,
        key: Compatibility,
        tensors: tuple[Tensor, ...],
        client_id: str = "",
    ) -> NewRecord:
        spec = self._spec
        request = NewRequest(
            id=rows.id_in(spec.job),
            tenant=spec.tenant,
            model=spec.model,
            version=spec.version,
            priority=spec.priority,
            deadline_us=self._deadline_us(),
            compatibility=key,
            tensors=tensors,
            client_id=client_id,
        )
        headers, value = self._encoder.encode(request, wall_us())
        headers.append((names.ITEM, b"%d" % rows.first))
        return NewRecord(rows, headers, value)

    def cancel(self, rows: RowRange) -> Headers:
        """Of the record that takes this one back."""
        return cancel_headers(
            rows.id_in(self._spec.job),
            self._spec.tenant,
            self._address,
            source=self._encoder.source,
            log_us=wall_us(),
        )

    def _deadline_us(self) -> int | None:
        deadline_us = self._spec.deadline_us
        if self._spec.priority is Priority.BULK:
            return deadline_us
        # A request of another priority has a deadline.
        longest_us = wall_us() + TIMEOUT_MAX_US
        return longest_us if deadline_us is None else min(deadline_us, longest_us)


class RecordMaker:
    """Makes the records of one job, from chunks of its input."""

    def __init__(
        self,
        spec: JobSpec,
        served: ServedVersion,
        columns: Columns,
        *,
        results: str,
        payload_bytes_max: int,
    ) -> None:
        self._served = served
        self._columns = columns
        self._rows_max = min(spec.rows_max, columns.rows_max)
        self._bytes_max = max(payload_bytes_max - FRAMING_BYTES, 1)
        self._requests = JobRequests(spec, results)

    def records(self, chunk: Chunk, desk: Desk[T]) -> Iterator[NewRecord]:
        """The chunk's records that the desk wants, in order; rows that break the
        signature are told to it."""
        rows = self._columns.rows(chunk.batch, chunk.broken)
        at = 0
        for first, end in self._ranges(rows, 0):
            _tell(desk, chunk, rows, at, first)
            at = end
            wanted = RowRange(chunk.first + first, end - first)
            if desk.planned(wanted):
                yield from self._made(rows, chunk.first, wanted, desk)
        _tell(desk, chunk, rows, at, chunk.batch.num_rows)

    def again(self, chunk: Chunk, gap: RowRange, desk: Desk[T]) -> Iterator[NewRecord]:
        """The records of the rows of ``gap`` that lie in the chunk; of rows that break
        the signature an earlier publisher may have known."""
        start = max(gap.first - chunk.first, 0)
        stop = min(gap.end - chunk.first, chunk.batch.num_rows)
        rows = self._columns.rows(chunk.batch.slice(0, stop), chunk.broken)
        at = start
        for first, end in self._ranges(rows, start):
            _tell(desk, chunk, rows, at, first)
            at = end
            wanted = RowRange(chunk.first + first, end - first)
            yield from self._made(rows, chunk.first, wanted, desk)
        _tell(desk, chunk, rows, at, stop)

    def record(self, rows: RowRange, tensors: tuple[Tensor, ...]) -> NewRecord:
        """Raises :class:`headrace.errors.RequestError` for inputs that disagree."""
        key = compatibility(
            self._served,
            [tensor.shape for tensor in tensors],
            [tensor.data for tensor in tensors],
        )
        return self._requests.record(rows, key, tensors)

    def cancel(self, rows: RowRange) -> Headers:
        return self._requests.cancel(rows)

    def _ranges(self, rows: Rows, start: int) -> list[tuple[int, int]]:
        return rows.ranges(start, rows_max=self._rows_max, bytes_max=self._bytes_max)

    def _made(
        self, rows: Rows, base: int, wanted: RowRange, desk: Desk[T]
    ) -> Iterator[NewRecord]:
        first = wanted.first - base
        try:
            yield self.record(wanted, rows.tensors(first, first + wanted.rows))
        except RequestError as error:
            # Rows of one record have one shape: what is wrong with one is with all.
            for row in range(wanted.first, wanted.end):
                desk.broken(row, str(error))


def _tell(desk: Desk[T], chunk: Chunk, rows: Rows, first: int, end: int) -> None:
    """Between the records lie the rows that break the signature."""
    for row in range(first, end):
        desk.broken(chunk.first + row, rows.wrong[row])
