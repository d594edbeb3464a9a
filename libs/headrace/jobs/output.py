"""The output of a job: the rows of its input in order, with what the model said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import Final

import msgspec
import pyarrow as pa

from headrace.domain import ServedVersion
from headrace.errors import RequestError
from headrace.jobs.answers import Part
from headrace.jobs.chunks import Chunk
from headrace.jobs.outputs import OutputColumns, RowError
from headrace.jobs.reading import InputRows
from headrace.jobs.store import Replacing, beside, reachable, remove
from headrace.jobs.work import Answer
from headrace.jobs.writing import open_writer

__all__ = ["Output", "check_output", "errors_url", "made_of", "remove_unfinished"]

HELD_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of results; beyond, the rows so far are written before their chunk is complete."""


def errors_url(output: str) -> str:
    """The file of JSON Lines beside the output that says which rows failed, and why."""
    return f"{output}.errors.jsonl"


def made_of(output: str) -> tuple[str, ...]:
    """Every file that a job with this output writes, at whatever time."""
    whole = (output, errors_url(output))
    return (*whole, *map(beside, whole))


def remove_unfinished(output: str) -> None:
    """What a publisher that was killed has left of its output.

    Raises :class:`headrace.errors.RequestError`.
    """
    for url in (output, errors_url(output)):
        remove(beside(url))


def check_output(url: str, served: ServedVersion, rows: InputRows) -> None:
    """Whether a file of this name can hold the rows and their outputs.

    Raises :class:`headrace.errors.RequestError`.
    """
    fields = OutputColumns(served, rows.schema.names).fields
    schema = pa.schema(
        [each.with_nullable(nullable=True) for each in (*rows.schema, *fields)]
    )
    writer = open_writer(url, BytesIO(), schema, len(fields))
    # Some types are refused by their values alone, and some only at the end.
    absent = [pa.nulls(1, field.type) for field in schema]
    with _writable(url):
        writer.write(pa.RecordBatch.from_arrays(absent, schema=schema))
        writer.close()


@contextmanager
def _writable(url: str) -> Iterator[None]:
    with reachable(url):
        try:
            yield
        except pa.ArrowException as error:
            raise RequestError(f"{url} cannot be written: {error}") from error


def _bytes_of(answer: Answer) -> int:
    if isinstance(answer, RowError):
        return 0
    return sum(len(tensor.data) for tensor in answer)


class _ErrorLine(msgspec.Struct):
    row: int
    reason: str
    text: str


class Output:
    """Takes the answers in the order of the rows and writes a chunk of the input at a
    time, its columns and the outputs. Nothing stands at ``url`` before :meth:`put`.

    Raises :class:`headrace.errors.RequestError`, as do its methods.
    """

    def __init__(self, url: str, served: ServedVersion, rows: InputRows) -> None:
        self._url = url
        self._outputs = OutputColumns(served, rows.schema.names)
        fields = self._outputs.fields
        self._schema = pa.schema([*rows.schema, *fields])
        self._chunks = rows.chunks()
        self._chunk: Chunk | None = None
        self._parts: list[Part[Answer]] = []
        self._bytes = 0
        self._file = Replacing(url)
        self._errors: Replacing | None = None
        self._is_closed = False
        try:
            self._writer = open_writer(url, self._file.file, self._schema, len(fields))
        except RequestError:
            self._file.drop()
            raise

    def add(self, part: Part[Answer]) -> None:
        """The rows that follow on those added before."""
        if isinstance(part.answer, RowError):
            self._tell(part, part.answer)
        while part.rows:
            if self._chunk is None:
                self._chunk = next(self._chunks)
            end = self._chunk.first + self._chunk.batch.num_rows
            rows = min(part.end, end) - part.first
            self._parts.append(part._replace(rows=rows))
            self._bytes += _bytes_of(part.answer)
            part = Part(
                part.first + rows, part.rows - rows, part.skip + rows, part.answer
            )
            written = self._parts[-1].end
            if written == end or self._bytes >= HELD_BYTES_MAX:
                self._write(self._chunk.up_to(written))
                self._chunk = self._chunk.from_row(written) if written < end else None
                self._parts, self._bytes = [], 0

    def put(self) -> None:
        """All rows were added: the file takes its place."""
        self._close()
        if self._errors is not None:
            self._errors.put()
        else:
            remove(errors_url(self._url))
        self._file.put()

    def drop(self) -> None:
        """Leave nothing behind; without effect once it was put."""
        # A file that could not be written cannot be ended either.
        with suppress(RequestError):
            self._close()
        self._file.drop()
        if self._errors is not None:
            self._errors.drop()

    def _close(self) -> None:
        """A writer must not outlive its file: it would end it when it is collected."""
        if not self._is_closed:
            self._is_closed = True
            with _writable(self._url):
                self._writer.close()

    def _write(self, chunk: Chunk) -> None:
        columns: Sequence[pa.Array] = self._outputs.columns(self._parts)
        batch = pa.RecordBatch.from_arrays(
            [*chunk.batch.columns, *columns], schema=self._schema
        )
        with _writable(self._url):
            self._writer.write(batch)

    def _tell(self, part: Part[Answer], error: RowError) -> None:
        if self._errors is None:
            self._errors = Replacing(errors_url(self._url))
        lines = [
            _ErrorLine(row, error.reason, error.text)
            for row in range(part.first, part.end)
        ]
        with reachable(errors_url(self._url)):
            self._errors.file.write(msgspec.json.Encoder().encode_lines(lines))
