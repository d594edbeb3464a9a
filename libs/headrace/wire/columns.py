"""Members of a batch as columns: tables of what repeats, and indices into them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar, overload

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


class SourceTable(Sequence[Source]):
    """Sources as the three columns that messages have for them; what stands in none
    of them is made when it is asked for."""

    __slots__ = ("offsets", "partitions", "places")

    def __init__(self, sources: Iterable[Source]) -> None:
        partitions, offsets = [], []
        for topic, partition, offset in sources:
            partitions.append((topic, partition))
            offsets.append(offset)
        self.offsets: Sequence[int] = offsets
        self.places: Sequence[int]
        self.partitions, self.places = index_into(partitions)

    @classmethod
    def read(cls, message: _HasSources) -> SourceTable:
        """Raises IndexError or ValueError for columns that do not fit together."""
        table = cls(())
        table.partitions = [(each.topic, each.partition) for each in message.sources]
        table.places, table.offsets = message.source_index[:], message.offsets[:]
        if len(table.places) != len(table.offsets):
            raise ValueError("source_index and offsets of different length")
        if table.places:
            table.partitions[max(table.places)]
            if min(table.places) < 0:
                raise ValueError("a source_index below 0")
        return table

    @property
    def table(self) -> list[pb.SourcePartition]:
        """The table that the indices point into."""
        return [
            pb.SourcePartition(topic=topic, partition=partition)
            for topic, partition in self.partitions
        ]

    def __len__(self) -> int:
        return len(self.offsets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment] # as a list has none

    @overload
    def __getitem__(self, place: int) -> Source: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Source]: ...
    def __getitem__(self, place: int | slice) -> Source | Sequence[Source]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        return Source(*self.partitions[self.places[place]], self.offsets[place])


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
