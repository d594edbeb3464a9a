"""Answers in any order become rows in the input's order, each once.

Nothing here knows what an answer is. Records overlap where a range was sent again row
by row: of two answers to a row the first one counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

__all__ = ["Answers", "Part"]

T = TypeVar("T")


class Part(NamedTuple, Generic[T]):
    """Rows ``first`` … of the input: ``rows`` of ``answer``'s from its row ``skip``."""

    first: int
    rows: int
    skip: int
    answer: T

    @property
    def end(self) -> int:
        return self.first + self.rows


class Answers(Generic[T]):
    """``frontier``: every row before it was taken."""

    def __init__(self) -> None:
        self.frontier = 0
        self._ahead: dict[int, Part[T]] = {}

    def __len__(self) -> int:
        """Parts that wait for the rows before them."""
        return len(self._ahead)

    def add(self, first: int, rows: int, answer: T) -> bool:
        """False: every row of it has an answer that came before, as far as is seen."""
        return self._put(Part(first, rows, 0, answer))

    def withdraw(self, row: int) -> None:
        """Forget the answer that begins at that row, if it was not taken."""
        self._ahead.pop(row, None)

    def has(self, row: int) -> bool:
        """Whether an answer begins at that row, or it was taken."""
        return row < self.frontier or row in self._ahead

    def take(self) -> Iterator[Part[T]]:
        """The parts that follow on what was taken, in order."""
        while (part := self._ahead.pop(self.frontier, None)) is not None:
            self.frontier = part.end
            # What began inside is answered already, but may reach further.
            for row in range(part.first + 1, part.end):
                inner = self._ahead.pop(row, None)
                if inner is not None and inner.end > part.end:
                    self._put(inner)
            yield part

    def gaps(self, end: int) -> Iterator[tuple[int, int]]:
        """Rows before ``end`` without an answer, as first and the one behind."""
        at = self.frontier
        for first in sorted(self._ahead):
            if first >= end:
                break
            if first > at:
                yield at, first
            at = max(at, self._ahead[first].end)
        if at < end:
            yield at, end

    def _put(self, part: Part[T]) -> bool:
        passed = self.frontier - part.first
        if passed > 0:
            part = Part(
                self.frontier, part.rows - passed, part.skip + passed, part.answer
            )
        if part.rows <= 0:
            return False
        known = self._ahead.get(part.first)
        if known is not None and known.rows >= part.rows:
            return False
        self._ahead[part.first] = part
        return True
