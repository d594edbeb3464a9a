"""Some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa

__all__ = [
    "CHUNK_BYTES",
    "CHUNK_ROWS_MAX",
    "Chunk",
    "cut",
    "mended",
    "rows_of_bytes",
]

CHUNK_BYTES: Final = 4 * 1024 * 1024
CHUNK_ROWS_MAX: Final = 16_384
"""A chunk has no more than either, but at least a row."""


class Chunk(NamedTuple):
    """Rows ``first`` … of a file. ``broken``: by row of the chunk, why it cannot be
    run; what cannot be read of it is null."""

    first: int
    batch: pa.RecordBatch
    broken: dict[int, str]

    def up_to(self, end: int) -> Chunk:
        """Without the rows from ``end`` on."""
        return self._replace(batch=self.batch.slice(0, end - self.first))

    def from_row(self, start: int) -> Chunk:
        """Without the rows before ``start``."""
        skipped = max(start - self.first, 0)
        if not skipped:
            return self
        broken = {
            row - skipped: text for row, text in self.broken.items() if row >= skipped
        }
        return Chunk(self.first + skipped, self.batch.slice(skipped), broken)


def mended(chunk: Chunk) -> Chunk:
    """With text in all columns of text: what is not UTF-8 breaks its row. No format's
    reader looks, and every writer would stop at it."""
    batch = chunk.batch
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        broken: dict[int, str] = {}
        columns = [
            _mended(name, column, broken)
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
        return Chunk(chunk.first, batch, broken | chunk.broken)
    return chunk


def _mended(name: str, column: pa.Array, broken: dict[int, str]) -> pa.Array:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        found = []
        for row, value in enumerate(column):
            try:
                found.append(value.as_py())
            except UnicodeDecodeError as error:
                is_text = isinstance(value, pa.StringScalar | pa.LargeStringScalar)
                raw = value.as_buffer().to_pybytes() if is_text else None
                found.append(None if raw is None else raw.decode(errors="replace"))
                broken[row] = f"column '{name}' is not UTF-8: {error}"
        return pa.array(found, column.type)
    return column


def rows_of_bytes(row_bytes: float) -> int:
    """Rows of a chunk, where one has so many bytes."""
    return max(1, min(CHUNK_ROWS_MAX, int(CHUNK_BYTES / max(row_bytes, 1))))


def cut(first: int, batch: pa.RecordBatch) -> Iterator[Chunk]:
    """A batch of any size as chunks."""
    if not batch.num_rows:
        return
    rows = rows_of_bytes(batch.get_total_buffer_size() / batch.num_rows)
    for at in range(0, batch.num_rows, rows):
        yield Chunk(first + at, batch.slice(at, rows), {})
