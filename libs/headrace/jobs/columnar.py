"""Files that say what their columns hold: Parquet, Arrow, NumPy's arrays."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import IO, Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from headrace.errors import RequestError
from headrace.jobs.chunks import Chunk, cut, rows_of_bytes
from headrace.jobs.store import read

__all__ = ["ArrowRows", "ArrowStreamRows", "NumpyRows", "ParquetRows"]

PAGE_BYTES = 1024 * 1024
NPY_COLUMN = "array"
"""What the one column of a ``.npy`` file is called."""


class ParquetRows:
    """One row group after the other, each read in pages."""

    def __init__(self, url: str) -> None:
        self._url = url
        with read(url) as file:
            metadata = parquet.ParquetFile(file).metadata
            self.schema: pa.Schema = metadata.schema.to_arrow_schema()
        self.rows: int | None = metadata.num_rows
        groups = [metadata.row_group(each) for each in range(metadata.num_row_groups)]
        self._groups = [group.num_rows for group in groups]
        size = sum(group.total_byte_size for group in groups)
        self._chunk_rows = rows_of_bytes(size / max(metadata.num_rows, 1))

    def chunks(self, start: int) -> Iterator[Chunk]:
        first, skipped = 0, 0
        while skipped < len(self._groups) and first + self._groups[skipped] <= start:
            first += self._groups[skipped]
            skipped += 1
        with read(self._url) as raw:
            file = parquet.ParquetFile(raw, buffer_size=PAGE_BYTES, pre_buffer=False)
            for batch in file.iter_batches(
                self._chunk_rows,
                row_groups=range(skipped, len(self._groups)),
                use_threads=False,
            ):
                yield Chunk(first, batch, {})
                first += batch.num_rows


class ArrowRows:
    """The file form of Arrow's IPC (Feather 2): batches as they were written."""

    def __init__(self, url: str) -> None:
        self._url = url
        with read(url) as file, pa.ipc.open_file(file) as opened:
            self.schema: pa.Schema = opened.schema
        self.rows: int | None = None

    def chunks(self, start: int) -> Iterator[Chunk]:
        del start  # a batch's rows are known once it is read
        first = 0
        with read(self._url) as file, pa.ipc.open_file(file) as opened:
            for number in range(opened.num_record_batches):
                batch = opened.get_batch(number)
                yield from cut(first, batch)
                first += batch.num_rows


class ArrowStreamRows:
    """The streaming form of Arrow's IPC."""

    def __init__(self, url: str) -> None:
        self._url = url
        with read(url) as file, pa.ipc.open_stream(file) as opened:
            self.schema: pa.Schema = opened.schema
        self.rows: int | None = None

    def chunks(self, start: int) -> Iterator[Chunk]:
        del start
        first = 0
        with read(self._url) as file, pa.ipc.open_stream(file) as opened:
            for batch in opened:
                yield from cut(first, batch)
                first += batch.num_rows


class NumpyRows:
    """An array whose first axis is its rows, as a column of fixed-size lists."""

    def __init__(self, url: str) -> None:
        self._url = url
        with read(url) as file:
            shape, self._dtype = _npy_header(url, file)
            self._begin = file.tell()
        self.rows: int | None = shape[0]
        self._dims = shape[1:]
        self._row_bytes = self._dtype.itemsize * prod(self._dims)
        empty = self._column(b"")
        self.schema = pa.schema([(NPY_COLUMN, empty.type)])

    def chunks(self, start: int) -> Iterator[Chunk]:
        assert self.rows is not None
        rows = rows_of_bytes(self._row_bytes)
        with read(self._url) as file:
            file.seek(self._begin + start * self._row_bytes)
            for first in range(start, self.rows, rows):
                count = min(rows, self.rows - first)
                data = file.read(count * self._row_bytes)
                if len(data) < count * self._row_bytes:
                    whole = first + len(data) // self._row_bytes
                    raise RequestError(
                        f"{self._url} has {whole} rows, but its header tells of "
                        f"{self.rows}"
                    )
                column = self._column(data)
                batch = pa.RecordBatch.from_arrays([column], schema=self.schema)
                yield Chunk(first, batch, {})

    def _column(self, data: bytes) -> pa.Array:
        values = np.frombuffer(data, self._dtype)
        if self._dtype.kind in "US":
            array = pa.array(values.astype(str).tolist(), pa.string())
        else:
            native = values.astype(self._dtype.newbyteorder("="), copy=False)
            array = pa.array(native)
        for extent in reversed(self._dims):
            array = pa.FixedSizeListArray.from_arrays(array, extent)
        return array


def _npy_header(url: str, file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    major, _ = np.lib.format.read_magic(file)
    reading = {
        1: np.lib.format.read_array_header_1_0,
        2: np.lib.format.read_array_header_2_0,
    }.get(major)
    if reading is None:
        raise RequestError(f"{url} is of version {major} of its format, not 1 or 2")
    shape, is_fortran, dtype = reading(file)
    if is_fortran and len(shape) > 1:
        raise RequestError(
            f"{url} has its columns one after the other (Fortran order): save it with "
            "numpy.ascontiguousarray"
        )
    if not shape:
        raise RequestError(f"{url} holds a single element, not rows")
    if dtype.kind not in "biufUS":
        raise RequestError(f"{url} holds {dtype}, not numbers, bools or text")
    if 0 in shape[1:]:
        raise RequestError(f"{url} has rows without elements (shape {shape})")
    return shape, dtype
