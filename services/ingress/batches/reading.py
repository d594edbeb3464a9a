"""The lines of a batch's input, a piece at a time, so that memory stays flat."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, Final, NamedTuple

__all__ = ["Line", "LineChunk", "Lines", "read_lines"]

BLOCK_BYTES: Final = 256 * 1024
CHUNK_BYTES: Final = 1024 * 1024
CHUNK_LINES_MAX: Final = 1000
"""A chunk has no more than either, but at least a line."""

_MARK: Final = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """``item``: its place among those that are not blank, from 0; ``number``: in the
    file, from 1; ``data`` None: it is longer than is allowed."""

    item: int
    number: int
    data: bytes | None


class LineChunk(NamedTuple):
    first: int
    lines: list[Line]


def read_lines(file: IO[bytes], bytes_max: int) -> Iterator[Line]:
    """Every line but blank ones."""
    item = 0
    for number, data in enumerate(_split(file, bytes_max), 1):
        text = data.removeprefix(_MARK) if data and number == 1 else data
        if text is None or text.strip():
            yield Line(item, number, text)
            item += 1


class Lines:
    """The lines of a file that ``opened`` opens anew for each pass. ``rows``: how many
    there are, once somebody has counted."""

    def __init__(self, opened: Callable[[], IO[bytes]], bytes_max: int) -> None:
        self._opened = opened
        self._bytes_max = bytes_max
        self.rows: int | None = None

    def all(self) -> Iterator[Line]:
        with self._opened() as file:
            yield from read_lines(file, self._bytes_max)

    def chunks(self, start: int = 0) -> Iterator[LineChunk]:
        """The lines from the item ``start`` on."""
        lines: list[Line] = []
        size = 0
        for line in self.all():
            if line.item < start:
                continue
            lines.append(line)
            size += len(line.data or b"")
            if size >= CHUNK_BYTES or len(lines) >= CHUNK_LINES_MAX:
                yield LineChunk(lines[0].item, lines)
                lines, size = [], 0
        if lines:
            yield LineChunk(lines[0].item, lines)


def _split(file: IO[bytes], bytes_max: int) -> Iterator[bytes | None]:
    """None: a line of more than ``bytes_max``."""
    begun = bytearray()
    is_over = False
    while block := file.read(BLOCK_BYTES):
        start = 0
        while (end := block.find(b"\n", start)) >= 0:
            is_over = is_over or len(begun) + end - start > bytes_max
            yield None if is_over else bytes(begun) + block[start:end]
            begun.clear()
            is_over = False
            start = end + 1
        is_over = is_over or len(begun) + len(block) - start > bytes_max
        if is_over:
            begun.clear()
        else:
            begun += block[start:]
    if begun or is_over:
        yield None if is_over else bytes(begun)
