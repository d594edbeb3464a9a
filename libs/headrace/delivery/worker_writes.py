"""What a worker has written and not heard of, by number."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from headrace.delivery.worker_decisions import (
    WriteDone,
    WriteJoin,
    WriteLeave,
    WriteReport,
)

__all__ = ["Writes"]

Numbered = WriteJoin | WriteReport | WriteDone | WriteLeave
_N = TypeVar("_N", WriteJoin, WriteReport, WriteDone, WriteLeave)


class Writes:
    def __init__(self) -> None:
        self._count = 0
        self._open: dict[int, Numbered] = {}

    def next_number(self) -> int:
        """Of a write whose end is of no interest."""
        self._count += 1
        return self._count

    def number(self, write: _N) -> _N:
        number = self.next_number()
        numbered = msgspec.structs.replace(write, write=number)
        self._open[number] = numbered
        return numbered

    def ended(self, number: int) -> Numbered | None:
        return self._open.pop(number, None)

    @property
    def are_open(self) -> bool:
        return bool(self._open)

    @property
    def has_leave(self) -> bool:
        return any(isinstance(write, WriteLeave) for write in self._open.values())
