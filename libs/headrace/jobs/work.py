"""What a job is made of, for whoever publishes it: items, their records, an output.

The items of a job are the rows of files, or the lines of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from headrace.domain import Tensor
from headrace.jobs.answers import Part
from headrace.jobs.desk import Desk
from headrace.jobs.outputs import RowError
from headrace.jobs.records import NewRecord
from headrace.wire import Headers
from headrace.wire.jobs import RowRange

__all__ = ["Answer", "Items", "Maker", "Sink", "Work"]

T = TypeVar("T")

Answer = tuple[Tensor, ...] | RowError


class Items(Protocol):
    """``rows`` None: nobody knows how many there are. A chunk has a ``first``."""

    @property
    def rows(self) -> int | None: ...

    def chunks(self, start: int = 0) -> Iterator[Any]: ...


class Maker(Protocol):
    """As :class:`headrace.jobs.records.RecordMaker`; knows the chunks of its items."""

    def records(self, chunk: Any, desk: Desk[T]) -> Iterator[NewRecord]: ...
    def again(
        self, chunk: Any, gap: RowRange, desk: Desk[T]
    ) -> Iterator[NewRecord]: ...
    def record(self, rows: RowRange, tensors: tuple[Tensor, ...]) -> NewRecord: ...
    def cancel(self, rows: RowRange) -> Headers: ...


class Sink(Protocol):
    """As :class:`headrace.jobs.output.Output`."""

    def add(self, part: Part[Answer]) -> None: ...
    def put(self) -> None: ...
    def drop(self) -> None: ...


class Work(NamedTuple):
    """``keeps_some``: a job that is cancelled writes what it has, too."""

    items: Items
    maker: Maker
    output: Sink
    keeps_some: bool = False
