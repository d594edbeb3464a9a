"""Rows into one file, in whatever format its name asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Any, Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from headrace.errors import RequestError
from headrace.jobs.store import suffixes
from headrace.jobs.values import as_text, floats_of, json_of, needs_text, values_of

__all__ = ["OUTPUT_FORMATS", "Writer", "open_writer"]

GROUP_BYTES: Final = 8 * 1024 * 1024
GROUP_ROWS: Final = 131_072
"""A row group of Parquet is closed when it has either."""

CSV_COLUMNS_MAX: Final = 4096
"""Most columns that the elements of a row's outputs become; beyond, CSV is refused."""

ROWS_MAX: Final = 2**62
_ALIGNED: Final = 64


class Writer(Protocol):
    """``batch`` has the columns that it was opened with. ``close`` leaves the file
    open, and whole."""

    def write(self, batch: pa.RecordBatch) -> None: ...
    def close(self) -> None: ...


class _Parquet:
    def __init__(self, file: IO[bytes], schema: pa.Schema, _outputs: int) -> None:
        self._writer = parquet.ParquetWriter(file, schema, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        size = sum(each.get_total_buffer_size() for each in self._waiting)
        rows = sum(each.num_rows for each in self._waiting)
        if size >= GROUP_BYTES or rows >= GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
            self._waiting = []


class _Arrow:
    def __init__(self, file: IO[bytes], schema: pa.Schema, _outputs: int) -> None:
        self._writer = pa.ipc.new_file(file, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


class _ArrowStream(_Arrow):
    def __init__(self, file: IO[bytes], schema: pa.Schema, _outputs: int) -> None:
        self._writer = pa.ipc.new_stream(file, schema)


class _Csv:
    """A fixed-size list becomes a column for each element, ``name.0`` and so on; what
    CSV has no field for becomes text."""

    def __init__(self, file: IO[bytes], schema: pa.Schema, _outputs: int) -> None:
        self._schema = schema
        fields: list[pa.Field] = []
        for field in schema:
            count = _elements(field.type)
            kind = _element(field.type) if count is not None else field.type
            kind = pa.string() if needs_text(kind) else kind
            if count is None:
                fields.append(pa.field(field.name, kind))
            else:
                names = (f"{field.name}.{place}" for place in range(count))
                fields += [pa.field(name, kind) for name in names]
        if len(fields) > CSV_COLUMNS_MAX:
            raise RequestError(
                f"a row would have {len(fields)} columns of CSV, at most "
                f"{CSV_COLUMNS_MAX} are written: choose .parquet"
            )
        self._flat = pa.schema(fields)
        self._writer = csv.CSVWriter(file, self._flat)

    def write(self, batch: pa.RecordBatch) -> None:
        columns: list[pa.Array] = []
        for column in batch.columns:
            count = _elements(column.type)
            columns += [column] if count is None else _spread(column, count)
        columns = [as_text(each) if needs_text(each.type) else each for each in columns]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._flat))

    def close(self) -> None:
        self._writer.close()


class _JsonLines:
    def __init__(self, file: IO[bytes], _schema: pa.Schema, _outputs: int) -> None:
        self._file = file
        self._encoder = msgspec.json.Encoder(enc_hook=str)

    def write(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        columns = map(values_of, batch.columns)
        rows = [
            dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)
        ]
        if all(map(_is_finite, batch.columns)):
            self._file.write(self._encoder.encode_lines(rows))
        else:
            lines = "".join(f"{json_of(row)}\n" for row in rows)
            self._file.write(lines.encode())

    def close(self) -> None: ...


class _Numpy:
    """The outputs alone: one as a plain array, several as the fields of a structured
    one. Zeros, or NaN, where a row has none."""

    def __init__(self, file: IO[bytes], schema: pa.Schema, outputs: int) -> None:
        self._file = file
        self._rows = 0
        self._fields = list(schema)[len(schema) - outputs :]
        self._dtypes = [_npy_dtype(field) for field in self._fields]
        self._dtype = (
            self._dtypes[0]
            if outputs == 1
            else np.dtype(
                [
                    (field.name, dtype)
                    for field, dtype in zip(self._fields, self._dtypes, strict=True)
                ]
            )
        )
        self._file.write(self._header(0))

    def write(self, batch: pa.RecordBatch) -> None:
        arrays = [
            _npy_values(batch.column(field.name), dtype)
            for field, dtype in zip(self._fields, self._dtypes, strict=True)
        ]
        self._rows += batch.num_rows
        if len(arrays) == 1:
            self._file.write(arrays[0].tobytes())
            return
        found = np.empty(batch.num_rows, self._dtype)
        for field, array in zip(self._fields, arrays, strict=True):
            found[field.name] = array.reshape(found[field.name].shape)
        self._file.write(found.tobytes())

    def close(self) -> None:
        # Now the number of rows is known.
        self._file.seek(0)
        self._file.write(self._header(self._rows))
        self._file.seek(0, 2)

    def _header(self, rows: int) -> bytes:
        element, dims = self._dtype.subdtype or (self._dtype, ())
        facts = {
            "descr": np.lib.format.dtype_to_descr(element),
            "fortran_order": False,
            "shape": (rows, *dims),
        }
        longest = len(repr({**facts, "shape": (ROWS_MAX, *dims)})) + 11
        room = longest + -longest % _ALIGNED
        begins = b"\x93NUMPY\x01\x00" + (room - 10).to_bytes(2, "little")
        return begins + repr(facts).encode("latin-1").ljust(room - 11) + b"\n"


OUTPUT_FORMATS: Final[dict[str, Callable[[IO[bytes], pa.Schema, int], Writer]]] = {
    ".arrow": _Arrow,
    ".arrows": _ArrowStream,
    ".csv": _Csv,
    ".feather": _Arrow,
    ".jsonl": _JsonLines,
    ".ndjson": _JsonLines,
    ".npy": _Numpy,
    ".parquet": _Parquet,
    ".pq": _Parquet,
}


def open_writer(url: str, file: IO[bytes], schema: pa.Schema, outputs: int) -> Writer:
    """``outputs``: how many of the last columns are the model's.

    Raises :class:`headrace.errors.RequestError` for a format, or columns that it
    cannot hold.
    """
    kind, packed = suffixes(url)
    if kind not in OUTPUT_FORMATS or packed:
        raise RequestError(
            f"{url} is of no format that can be written: its name must end in "
            f"{', '.join(OUTPUT_FORMATS)}"
        )
    try:
        return OUTPUT_FORMATS[kind](file, schema, outputs)
    except pa.ArrowException as error:
        raise RequestError(f"{url}: {error}") from error


def _elements(kind: pa.DataType) -> int | None:
    """Of a fixed-size list of whatever depth; None for any other type."""
    if not pa.types.is_fixed_size_list(kind):
        return None
    count = 1
    while pa.types.is_fixed_size_list(kind):
        count, kind = count * kind.list_size, kind.value_type
    return None if pa.types.is_nested(kind) else count


def _element(kind: pa.DataType) -> pa.DataType:
    while pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return kind


def _spread(column: Any, count: int) -> list[pa.Array]:
    """A column of lists as a column for each of their elements."""
    rows = len(column)
    values = column
    while pa.types.is_fixed_size_list(values.type):
        size = values.type.list_size
        values = values.values.slice(values.offset * size, len(values) * size)
    absent = column.is_null() if column.null_count else None
    found = []
    for place in range(count):
        element = values.take(pa.array(np.arange(rows) * count + place))
        if absent is not None:
            element = pa.compute.if_else(absent, None, element)
        found.append(element)
    return found


def _is_finite(column: Any) -> bool:
    """Whether JSON has a number for each of its numbers."""
    return all(
        pa.compute.all(pa.compute.is_finite(each)).as_py() is not False
        for each in floats_of(column)
    )


def _npy_dtype(field: pa.Field) -> np.dtype[Any]:
    dims = []
    kind = field.type
    while pa.types.is_fixed_size_list(kind):
        dims.append(kind.list_size)
        kind = kind.value_type
    if pa.types.is_nested(kind) or pa.types.is_string(kind):
        raise RequestError(
            f"output '{field.name}' is {field.type}, which .npy cannot hold: choose "
            ".parquet"
        )
    return np.dtype((kind.to_pandas_dtype(), tuple(dims)))


def _npy_values(column: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    element, dims = dtype.subdtype or (dtype, ())
    rows = len(column)
    absent = column.is_null().to_numpy(zero_copy_only=False)
    while pa.types.is_fixed_size_list(column.type):
        size = column.type.list_size
        column = column.values.slice(column.offset * size, len(column) * size)
    if column.null_count:
        column = pa.compute.fill_null(column, False if element.kind == "b" else 0)
    found = column.to_numpy(zero_copy_only=False).reshape(rows, *dims)
    if absent.any():
        found = found.copy()
        found[absent] = np.nan if element.kind == "f" else 0
    return np.ascontiguousarray(found.astype(element, copy=False))
