"""Members of a batch as columns: tables of what repeats, and indices into them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from headrace.domain import Source
from headrace.wire._generated import headrace_pb2 as pb

__all__ = ["SourceTable", "collapsed", "expanded", "index_into", "sources_of"]

_T = TypeVar("_T")


def index_into(values: Iterable[_T]) -> tuple[list[_T], list[int]]:
    """The distinct values in order of appearance, and each value's place."""
    places: dict[_T, int] = {}
    index = [places.setdefault(value, len(places)) for value in values]
    return list(places), index


def collapsed(values: Sequence[_T]) -> Sequence[_T]:
    """One entry where all are equal."""
    return values[:1] if values and values.count(values[0]) == len(values) else values


def expanded(column: Sequence[_T], members: int) -> Sequence[_T]:
    """The inverse of :func:`collapsed`.

    Raises ValueError for a column of another length.
    """
    if len(column) == members:
        return column
    if len(column) != 1:
        raise ValueError(f"a column of {len(column)} for {members} members")
    return list(column) * members


class SourceTable:
    """Sources as the three columns that messages have for them."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self.offsets: list[int] = []
        partitions = []
        for topic, partition, offset in sources:
            partitions.append((topic, partition))
            self.offsets.append(offset)
        found, self.index = index_into(partitions)
        self.table = [
            pb.SourcePartition(topic=topic, partition=partition)
            for topic, partition in found
        ]


class _HasSources(Protocol):
    @property
    def sources(self) -> Sequence[pb.SourcePartition]: ...
    @property
    def source_index(self) -> Sequence[int]: ...
    @property
    def offsets(self) -> Sequence[int]: ...


def sources_of(message: _HasSources) -> list[Source]:
    """Raises IndexError or ValueError for columns that do not fit together."""
    table = [(each.topic, each.partition) for each in message.sources]
    return [
        Source(*table[index], offset)
        for index, offset in zip(message.source_index, message.offsets, strict=True)
    ]
