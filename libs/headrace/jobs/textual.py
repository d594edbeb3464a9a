"""Files of lines: CSV and JSON Lines. A line that breaks the format breaks its row."""

from __future__ import annotations

import csv
import io
import itertools
from bisect import insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import IO, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pyarrow import json as arrow_json

from headrace.errors import RequestError
from headrace.jobs.chunks import CHUNK_BYTES, Chunk
from headrace.jobs.lines import SINGLY_MAX, inferred_singly, rows_of, unified
from headrace.jobs.store import read
from headrace.jobs.values import floats_of

__all__ = ["CsvRows", "Fed", "JsonRows", "schema_of_lines"]

LINE_BYTES_MAX: Final = 64 * 1024 * 1024
"""A longer line ends the reading: a file without line ends would be read whole."""

HEAD_BYTES: Final = 1024 * 1024
"""The names of a CSV's columns are looked for in so many of its first bytes."""

_BOM: Final = b"\xef\xbb\xbf"


class CsvRows:
    """With the columns' names in its first line. All columns are text: those that feed
    the model become its numbers, the others stay what they are."""

    rows: int | None = None

    def __init__(self, url: str) -> None:
        self._url = url
        with read(url) as file:
            begins = file.read(HEAD_BYTES).removeprefix(_BOM).decode(errors="replace")
            self._has_rows = "\n" in begins or len(begins) == HEAD_BYTES
        names = next(csv.reader(io.StringIO(begins)), [])
        if not names or len(set(names)) < len(names):
            raise RequestError(
                f"{url}: its first line must name the columns, each once; it begins "
                f"{begins[:100]!r}"
            )
        self.schema = pa.schema([(name, pa.string()) for name in names])

    def chunks(self, start: int) -> Iterator[Chunk]:
        del start  # only whoever reads a line knows where the next one begins
        if not self._has_rows:
            return
        broken: list[_Line] = []

        def skip(row: arrow_csv.InvalidRow) -> str:
            text = (
                f"the line has {row.actual_columns} fields, expected "
                f"{row.expected_columns}"
            )
            # Counted from 1, and the names are the first.
            insort(broken, _Line(row.number - 2, text, row.text))
            return "skip"

        first = 0
        with (
            read(self._url) as file,
            arrow_csv.open_csv(
                file,
                arrow_csv.ReadOptions(use_threads=False, block_size=CHUNK_BYTES),
                arrow_csv.ParseOptions(
                    newlines_in_values=True, invalid_row_handler=skip
                ),
                arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(self.schema.names, pa.binary()),
                    strings_can_be_null=False,
                ),
            ) as opened,
        ):
            for read_batch in opened:
                # Text or not, which is looked at later, row by row.
                texts = [each.view(pa.string()) for each in read_batch.columns]
                batch = pa.RecordBatch.from_arrays(texts, schema=self.schema)
                chunk = _with_broken(first, batch, broken)
                first += chunk.batch.num_rows
                yield chunk
        if broken:
            yield _with_broken(first, _nothing(self.schema), broken, at_end=True)


class Fed(NamedTuple):
    """The columns that feed a model, and those of them that feed its inputs of
    floating point: these hold numbers of any kind."""

    columns: frozenset[str]
    floats: frozenset[str]


def schema_of_lines(urls: Sequence[str], fed: Fed | None) -> pa.Schema:
    """The types of members are those of the first lines of these files, text where
    they differ or where there is none yet. ``fed`` None: any column may feed a model.

    Raises :class:`headrace.errors.RequestError`.
    """
    columns = None if fed is None else fed.columns
    parts = []
    for url in urls:
        with read(url) as file:
            block = next(_blocks(url, file), None)
            parts += [] if block is None else [_inferred(block.texts, columns)]
    if not parts:
        raise RequestError(f"{urls[0]} has no line, so that its columns are not known")
    found = unified(parts, columns)
    if fed is None:
        return found
    return pa.schema([(each.name, _settled(each, fed)) for each in found])


class JsonRows:
    """An object in each line; empty lines are passed over. What does not fit
    ``schema`` breaks its row, and members that it does not have are left out."""

    rows: int | None = None

    def __init__(self, url: str, schema: pa.Schema, fed: Fed | None) -> None:
        self._url = url
        self._fed = None if fed is None else fed.columns
        self.schema = schema

    def chunks(self, start: int) -> Iterator[Chunk]:
        del start
        first = 0
        with read(self._url) as file:
            for block in _blocks(self._url, file):
                table, wrong = _parsed(block.texts, self.schema, self._fed)
                (batch,) = table.combine_chunks().to_batches()
                broken = {
                    row: f"line {block.numbers[row]} of {PurePosixPath(self._url).name}"
                    f": {text}"
                    for row, text in wrong.items()
                }
                yield Chunk(first, batch, broken)
                first += len(block.texts)


def _with_broken(
    first: int,
    batch: pa.RecordBatch,
    broken: list[_Line],
    *,
    at_end: bool = False,
) -> Chunk:
    """The batch with what can be read of a line where one was passed over; takes those
    lines out of ``broken``."""
    found: dict[int, _Line] = {}
    end = first + batch.num_rows
    while broken and (at_end or broken[0].row < end):
        line = broken.pop(0)
        found[line.row - first] = line
        end += 1
    if not found:
        return Chunk(first, batch, {})
    good, bad = iter(range(batch.num_rows)), itertools.count(batch.num_rows)
    places = [next(bad if row in found else good) for row in range(end - first)]
    all_rows = pa.Table.from_batches([batch, _read_of(found.values(), batch.schema)])
    (mended,) = all_rows.combine_chunks().to_batches()
    texts = {row: line.text for row, line in found.items()}
    return Chunk(first, mended.take(pa.array(places, pa.int64())), texts)


class _Line(NamedTuple):
    """A line that was passed over: the row in its place, why, and what it is."""

    row: int
    text: str
    content: str


def _read_of(lines: Iterable[_Line], schema: pa.Schema) -> pa.RecordBatch:
    """The fields of each line in the columns from the first on; null where it has none
    left, and without those that it has too many."""
    rows = [next(csv.reader(io.StringIO(line.content)), []) for line in lines]
    columns = zip(*(_fitted(row, len(schema)) for row in rows), strict=True)
    arrays = [pa.array(column, pa.string()) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _fitted(fields: list[str], count: int) -> list[str | None]:
    return [*fields[:count], *[None] * (count - len(fields))]


class _Block(NamedTuple):
    """Lines that are not empty, and which of the file's they are, from 1 on."""

    texts: list[bytes]
    numbers: list[int]


def _blocks(url: str, file: IO[bytes]) -> Iterator[_Block]:
    """Some lines at a time."""
    rest = b""
    is_first = True
    before = 1
    while data := file.read(CHUNK_BYTES):
        if is_first:
            data, is_first = data.removeprefix(_BOM), False
        whole, ends, rest = (rest + data).rpartition(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise RequestError(f"{url} has a line of more than {LINE_BYTES_MAX} bytes")
        if not ends:
            continue
        lines = whole.split(b"\n")
        kept = [(line, before + at) for at, line in enumerate(lines) if line.strip()]
        before += len(lines)
        if kept:
            yield _Block([line for line, _ in kept], [number for _, number in kept])
    if rest.strip():
        yield _Block([rest], [before])


def _inferred(lines: list[bytes], fed: Collection[str] | None) -> pa.Schema:
    """The members of these lines, without those lines that cannot be read."""
    try:
        found = _read(lines, None).schema
    except pa.ArrowInvalid:
        if len(lines) <= SINGLY_MAX:
            return inferred_singly(lines, fed)
        half = len(lines) // 2
        halves = [_inferred(lines[:half], fed), _inferred(lines[half:], fed)]
        return unified(halves, fed)
    return pa.schema([(each.name, _untimed(each.type)) for each in found])


def _parsed(
    lines: list[bytes], schema: pa.Schema, fed: Collection[str] | None
) -> tuple[pa.Table, dict[int, str]]:
    """The lines as a table, and by line what is wrong with it. A part that cannot be
    read is halved until it is small enough to be looked at line by line."""
    try:
        table = _read(lines, schema)
        # A number that was too large, or one that is called so: its line tells.
        floats = (each for column in table.columns for each in floats_of(column))
        if not any(pc.any(pc.is_inf(each)).as_py() for each in floats):
            return table, {}
    except pa.ArrowInvalid:
        pass
    if len(lines) <= SINGLY_MAX:
        return rows_of(lines, schema, fed)
    half = len(lines) // 2
    first, broken = _parsed(lines[:half], schema, fed)
    second, more = _parsed(lines[half:], schema, fed)
    moved = {row + half: text for row, text in more.items()}
    return pa.concat_tables([first, second]), broken | moved


def _read(lines: list[bytes], schema: pa.Schema | None) -> pa.Table:
    block = b"\n".join(lines)
    table = arrow_json.read_json(
        pa.BufferReader(block),
        arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
        arrow_json.ParseOptions(
            explicit_schema=schema,
            unexpected_field_behavior="infer" if schema is None else "ignore",
        ),
    )
    if table.num_rows != len(lines):
        raise pa.ArrowInvalid("not one object")
    return table


def _nothing(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([], field.type) for field in schema], schema=schema
    )


def _untimed(kind: pa.DataType) -> pa.DataType:
    """Text that could be a time is text: the lines after it may hold another."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    return _with_elements(kind, _untimed)


def _settled(field: pa.Field, fed: Fed) -> pa.DataType:
    if field.name in fed.floats:
        return _widened(field.type)
    return field.type if field.name in fed.columns else _told(field.type)


def _widened(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(kind):
        return pa.float64()
    return _with_elements(kind, _widened)


def _told(kind: pa.DataType) -> pa.DataType:
    """What nothing was seen of is text, which can hold whatever comes."""
    if pa.types.is_null(kind):
        return pa.string()
    return _with_elements(kind, _told)


def _with_elements(
    kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]
) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(change(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, change(each.type)) for each in kind])
    return kind
