"""Recorded requests with their answers as one flat Parquet file.

A request is a row; a tensor is a list of its elements in row-major order beside a list
of its extents. Versions may differ in their signatures: what one does not have is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.comparison import array_of
from headrace.domain import Datatype, Tensor
from headrace.errors import (
    PayloadLost,
    RequestError,
    SetupError,
    StoreUnavailable,
    UndecodableRecord,
)
from headrace.replay.payloads import Payloads
from headrace.replay.recorded import Ending, Recorded
from headrace.replay.running import Replayed
from headrace.wire import Record, decode_plain_request
from headrace.wire import headers as names

__all__ = ["ParquetExport"]

GROUP_ROWS: Final = 5_000
_EMPTY: tuple[Tensor, ...] = ()

_INSTANT: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final = {
    Datatype.BOOL: pa.bool_(),
    Datatype.UINT8: pa.uint8(),
    Datatype.UINT16: pa.uint16(),
    Datatype.UINT32: pa.uint32(),
    Datatype.UINT64: pa.uint64(),
    Datatype.INT8: pa.int8(),
    Datatype.INT16: pa.int16(),
    Datatype.INT32: pa.int32(),
    Datatype.INT64: pa.int64(),
    # Few readers know half floats.
    Datatype.FP16: pa.float32(),
    Datatype.BF16: pa.float32(),
    Datatype.FP32: pa.float32(),
    Datatype.FP64: pa.float64(),
    Datatype.BYTES: pa.string(),
}

_Column = tuple[str, pa.DataType, Callable[[Recorded], object]]


def _told(of: Callable[[Ending], object]) -> Callable[[Recorded], object]:
    """Null where there is no answer, or where it does not say."""
    return lambda one: (of(one.ending) or None) if one.ending else None


def _client_id(record: Record) -> str | None:
    try:
        return decode_plain_request(record.value or b"").client_id or None
    except UndecodableRecord:
        return None


_RECORDED: Final[Sequence[_Column]] = (
    ("request_id", pa.string(), lambda one: one.id),
    ("tenant", pa.string(), lambda one: one.tenant),
    ("model", pa.string(), lambda one: one.model),
    ("priority", pa.string(), lambda one: one.priority.name.lower()),
    ("asked_version", pa.string(), lambda one: _header(one, names.VERSION)),
    ("client_id", pa.string(), lambda one: _client_id(one.record)),
    ("x_request_id", pa.string(), lambda one: _header(one, names.X_REQUEST_ID)),
    ("traceparent", pa.string(), lambda one: _header(one, names.TRACEPARENT)),
    ("topic", pa.string(), lambda one: one.record.topic),
    ("partition", pa.int32(), lambda one: one.record.partition),
    ("offset", pa.int64(), lambda one: one.record.offset),
    ("rows", pa.int32(), lambda one: one.rows),
    ("asked_at", _INSTANT, lambda one: one.record.timestamp_us),
    ("ended_at", _INSTANT, lambda one: one.ending and one.ending.at_us),
    ("latency_ms", pa.float64(), lambda one: _ms(one.latency_us)),
    ("status", pa.string(), lambda one: one.ending and one.ending.status),
    ("text", pa.string(), _told(lambda ending: ending.text)),
    ("version", pa.string(), _told(lambda ending: ending.version)),
    ("run_ms", pa.float64(), _told(lambda ending: ending.run_us / 1000)),
    ("batch_rows", pa.int32(), _told(lambda ending: ending.batch_rows)),
)


class ParquetExport:
    """Writes ``path``, which appears when it is whole.

    Raises :class:`headrace.errors.SetupError`, as do its methods, when a file cannot
    be written.
    """

    def __init__(self, path: Path, payloads: Payloads, *, is_replayed: bool) -> None:
        """``is_replayed``: it gets columns of what was answered now. Answers come with
        their data; those of requests are asked of ``payloads``."""
        self._payloads = payloads
        self._path = path
        self._is_replayed = is_replayed
        self._waiting: list[tuple[Recorded, Replayed | None]] = []
        try:
            self._folder = TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.")
        except OSError as error:
            raise self._unwritable(error) from error
        self._parts: list[Path] = []
        self._writer: pq.ParquetWriter | None = None
        self.rows = 0

    def take(self, recorded: Recorded, replayed: Replayed | None = None) -> None:
        self._waiting.append((recorded, replayed))
        self.rows += 1
        if len(self._waiting) >= GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        """Nothing more comes."""
        if self._waiting or not self._parts:
            self._flush()
        assert self._writer is not None
        try:
            self._writer.close()
            if len(self._parts) > 1:
                self._parts = [_united(self._parts, Path(self._folder.name) / "whole")]
            self._parts[0].replace(self._path)
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            self._folder.cleanup()

    def discard(self) -> None:
        """Nothing of it is left."""
        if self._writer is not None:
            self._writer.close()
        self._folder.cleanup()

    def _flush(self) -> None:
        table = self._table(self._waiting)
        self._waiting = []
        try:
            if self._writer is None or self._writer.schema != table.schema:
                if self._writer is not None:
                    self._writer.close()
                part = Path(self._folder.name) / str(len(self._parts))
                self._parts.append(part)
                self._writer = pq.ParquetWriter(part, table.schema, compression="zstd")
            self._writer.write_table(table)
        except OSError as error:
            raise self._unwritable(error) from error

    def _table(self, rows: Sequence[tuple[Recorded, Replayed | None]]) -> pa.Table:
        columns: dict[str, pa.Array] = {
            name: pa.array([of(recorded) for recorded, _ in rows], kind)
            for name, kind, of in _RECORDED
        }
        columns |= _tensors("input", [self._inputs(recorded) for recorded, _ in rows])
        then = [one.ending.outputs if one.ending else _EMPTY for one, _ in rows]
        columns |= _tensors("output", then)
        if self._is_replayed:
            now = [replayed for _, replayed in rows]
            for name in ("status", "text", "version"):
                said = [(each and getattr(each, name)) or None for each in now]
                columns[f"replayed_{name}"] = pa.array(said, pa.string())
            outputs = [_EMPTY if each is None else each.outputs for each in now]
            columns |= _tensors("replayed", outputs)
        return pa.table(columns)

    def _inputs(self, recorded: Recorded) -> tuple[Tensor, ...]:
        try:
            return self._payloads.inputs(recorded)
        except (RequestError, UndecodableRecord, PayloadLost, StoreUnavailable):
            return _EMPTY

    def _unwritable(self, error: OSError) -> SetupError:
        return SetupError(f"export {self._path} cannot be written: {error}")


def _tensors(kind: str, rows: Sequence[Sequence[Tensor]]) -> dict[str, pa.Array]:
    """The columns ``<kind>_<name>`` and ``<kind>_<name>_shape``. One name with several
    datatypes has a column for each, with the datatype behind its name."""
    found: dict[str, dict[Datatype, list[Tensor | None]]] = {}
    for number, tensors in enumerate(rows):
        for each in tensors:
            column = found.setdefault(each.name, {}).setdefault(
                each.datatype, [None] * len(rows)
            )
            column[number] = each
    columns = {}
    for name in sorted(found):
        for datatype, values in found[name].items():
            told = f"{kind}_{name}"
            if len(found[name]) > 1:
                told += f"_{datatype.lower()}"
            columns[told] = _lists(datatype, values)
            shapes = [None if each is None else each.shape for each in values]
            columns[f"{told}_shape"] = pa.array(shapes, pa.list_(pa.int64()))
    return columns


def _lists(datatype: Datatype, values: Sequence[Tensor | None]) -> pa.Array:
    kind = _TYPES[datatype]
    if datatype is Datatype.BYTES:
        texts = [None if each is None else _texts(each) for each in values]
        return pa.array(texts, pa.list_(kind))
    arrays = [_flat(each) for each in values]
    sizes = [0 if each is None else len(each) for each in arrays]
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    whole = [each for each in arrays if each is not None]
    flat = np.concatenate(whole) if whole else np.empty(0)
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()),
        pa.array(flat).cast(kind),
        mask=pa.array([each is None for each in arrays]),
    )


def _flat(tensor: Tensor | None) -> np.ndarray[Any, Any] | None:
    if tensor is None:
        return None
    try:
        flat = array_of(tensor).reshape(-1)
    except (RequestError, ValueError):
        return None
    return flat.astype(np.float32) if tensor.datatype is Datatype.FP16 else flat


def _texts(tensor: Tensor) -> list[str] | None:
    flat = _flat(tensor)
    if flat is None:
        return None
    return [each.decode(errors="replace") for each in flat]


def _united(parts: Iterable[Path], whole: Path) -> Path:
    """One file of parts with different columns."""
    files = [pq.ParquetFile(part) for part in parts]
    schema = pa.unify_schemas(
        [file.schema_arrow for file in files], promote_options="permissive"
    )
    with pq.ParquetWriter(whole, schema, compression="zstd") as writer:
        for file in files:
            for batch in file.iter_batches(GROUP_ROWS):
                columns = {name: batch.column(name) for name in batch.schema.names}
                writer.write_table(
                    pa.table(
                        [
                            columns[field.name].cast(field.type)
                            if field.name in columns
                            else pa.nulls(batch.num_rows, field.type)
                            for field in schema
                        ],
                        schema=schema,
                    )
                )
            file.close()
    return whole


def _header(recorded: Recorded, name: str) -> str | None:
    value = dict(recorded.record.headers).get(name)
    return None if value is None else value.decode(errors="replace")


def _ms(time_us: int | None) -> float | None:
    return None if time_us is None else time_us / 1000
