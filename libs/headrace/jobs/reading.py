"""Rows of files in order, a chunk at a time, from any row on.

Every format gives chunks of a few megabytes, so that memory does not grow with the
file. What cannot be read keeps its place: a row of nulls, with what was wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

import pyarrow as pa

from headrace.errors import RequestError
from headrace.jobs.chunks import Chunk, mended
from headrace.jobs.columnar import ArrowRows, ArrowStreamRows, NumpyRows, ParquetRows
from headrace.jobs.store import reachable, suffixes
from headrace.jobs.textual import CsvRows, Fed, JsonRows, schema_of_lines

__all__ = ["INPUT_FORMATS", "InputRows"]


class _File(Protocol):
    """``rows`` None: nobody knows before the end."""

    schema: pa.Schema
    rows: int | None

    def chunks(self, start: int) -> Iterator[Chunk]:
        """From the chunk that has the row ``start``, or from an earlier one."""
        ...


_OPENED: Final[dict[str, Callable[[str], _File]]] = {
    ".arrow": ArrowRows,
    ".arrows": ArrowStreamRows,
    ".csv": CsvRows,
    ".feather": ArrowRows,
    ".npy": NumpyRows,
    ".parquet": ParquetRows,
    ".pq": ParquetRows,
}
_OF_LINES: Final = (".jsonl", ".ndjson")
INPUT_FORMATS: Final = sorted([*_OPENED, *_OF_LINES])
_MAY_BE_PACKED: Final = frozenset({".csv", ".jsonl", ".ndjson"})


HEADS_MAX: Final = 16
"""Files of lines whose first lines say what their columns hold."""


class InputRows:
    """The rows of these files, one after the other. All files have the columns of the
    first one. ``fed``: what is made of columns of JSON; None: not known yet.

    Raises :class:`headrace.errors.RequestError`, as do its methods.
    """

    def __init__(self, urls: Sequence[str], fed: Fed | None = None) -> None:
        self._urls = urls
        self._fed = fed
        self._files: dict[str, _File] = {}
        self._of_lines = [url for url in urls if suffixes(url)[0] in _OF_LINES]
        self._lines_schema: pa.Schema | None = None
        self.schema = self._file(urls[0]).schema

    def with_fed(self, fed: Fed) -> InputRows:
        """The same rows, once it is known which columns feed a model."""
        return InputRows(self._urls, fed) if self._of_lines else self

    def check(self) -> None:
        """Whether each file can be read and has the columns of the first one."""
        for url in self._urls:
            self._file(url)

    @property
    def rows(self) -> int | None:
        """None: some format does not tell."""
        total = 0
        for url in self._urls:
            rows = self._file(url).rows
            if rows is None:
                return None
            total += rows
        return total

    def chunks(self, start: int = 0) -> Iterator[Chunk]:
        """The rows from ``start`` on."""
        before = 0
        for url in self._urls:
            file = self._file(url)
            if file.rows is not None and before + file.rows <= start:
                before += file.rows
                continue
            end = before
            with _readable(url):
                for chunk in map(mended, file.chunks(max(start - before, 0))):
                    first = before + chunk.first
                    end = first + chunk.batch.num_rows
                    if end > start:
                        yield chunk._replace(first=first).from_row(start)
            before = end if file.rows is None else before + file.rows

    def _file(self, url: str) -> _File:
        file = self._files.get(url)
        if file is None:
            with _readable(url):
                file = self._files[url] = self._opened(url)
            first = self._files[self._urls[0]]
            if not file.schema.equals(first.schema):
                raise RequestError(
                    f"{url} has the columns {_told(file.schema)}, but "
                    f"{self._urls[0]} has {_told(first.schema)}"
                )
        return file

    def _opened(self, url: str) -> _File:
        kind, packed = suffixes(url)
        if kind not in INPUT_FORMATS or (packed and kind not in _MAY_BE_PACKED):
            raise RequestError(
                f"{url} is of no format that can be read: its name must end in "
                f"{', '.join(INPUT_FORMATS)}; "
                f"{', '.join(sorted(_MAY_BE_PACKED))} may be packed (.gz, .zst, ...)"
            )
        if kind not in _OF_LINES:
            return _OPENED[kind](url)
        if self._lines_schema is None:
            heads = self._of_lines[:HEADS_MAX]
            self._lines_schema = schema_of_lines(heads, self._fed)
        return JsonRows(url, self._lines_schema, self._fed)


@contextmanager
def _readable(url: str) -> Iterator[None]:
    with reachable(url):
        try:
            yield
        except pa.ArrowException as error:
            raise RequestError(f"{url} cannot be read: {error}") from error


def _told(schema: pa.Schema) -> str:
    shown = ", ".join(f"{field.name}: {field.type}" for field in list(schema)[:10])
    return f"{shown} …" if len(schema) > 10 else shown
