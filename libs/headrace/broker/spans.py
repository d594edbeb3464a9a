"""Parts of a log that end, read with a reader of the caller's."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from headrace.broker.interface import Reader, Record, TopicPartition
from headrace.clock import Clock
from headrace.errors import BusTimeout

__all__ = ["Span", "read_kept", "read_places", "read_spans", "spans_since"]

NEAR: Final = 1_000
"""Offsets between two wanted records that are read over rather than skipped."""

RECORDS_MAX: Final = 1_000
"""What one read returns at most."""

_SPAN_MAX: Final = 10_000
"""Offsets that are read within one bound of time."""

_READ_WAIT_S: Final = 0.1


class Span(NamedTuple):
    """A partition's offsets from ``first`` up to ``end``, which is not read."""

    first: int
    end: int


def spans_since(
    reader: Reader,
    partitions: Sequence[TopicPartition],
    since_us: int,
    timeout_s: float,
) -> dict[TopicPartition, Span]:
    """What was appended since that log time, of each partition that has any. Raises
    :class:`BusError`."""
    firsts = reader.offsets_since(partitions, since_us, timeout_s)
    logs = reader.log_ranges(partitions, timeout_s)
    return {
        one: Span(firsts[one], logs[one].end)
        for one in partitions
        if firsts[one] < logs[one].end
    }


def read_spans(
    reader: Reader,
    spans: Mapping[TopicPartition, Span],
    *,
    records_max: int,
    us_max: int,
    clock: Clock,
) -> Iterator[Record]:
    """Their records, and some behind an end while others are read. Raises
    :class:`BusError`, and :class:`BusTimeout` after ``us_max``."""
    left = {one: span.end for one, span in spans.items()}
    until_us = clock.now_us() + us_max
    reader.assign({one: span.first for one, span in spans.items()})
    try:
        while left:
            for record in reader.read(records_max, _READ_WAIT_S):
                one = TopicPartition(record.topic, record.partition)
                # What lies at the end of a log is never compacted away.
                if record.offset + 1 >= left.get(one, record.offset + 2):
                    del left[one]
                if one in spans:
                    yield record
            if clock.now_us() > until_us:
                raise BusTimeout(
                    f"{', '.join(f'{t} [{p}]' for t, p in left)} was not read",
                    code="_TIMED_OUT",
                )
    finally:
        reader.unassign([*spans])


def read_places(
    reader: Reader,
    places: Mapping[TopicPartition, Iterable[int]],
    *,
    us_max: int,
    clock: Clock,
    near: int = NEAR,
) -> Iterator[Record]:
    """The records at these offsets, which must lie in their log, without those that
    compaction or retention has removed meanwhile. Raises as :func:`read_spans`, whose
    ``us_max`` counts for each partition's next few thousand offsets."""
    left = {one: sorted(set(offsets)) for one, offsets in places.items()}
    wanted = {one: set(offsets) for one, offsets in left.items()}
    while spans := {
        one: span
        for one, offsets in left.items()
        if (span := _next_span(offsets, wanted[one], near)) is not None
    }:
        for record in read_spans(
            reader, spans, records_max=RECORDS_MAX, us_max=us_max, clock=clock
        ):
            one = TopicPartition(record.topic, record.partition)
            # Also those behind the end of this span.
            if record.offset in wanted[one]:
                wanted[one].discard(record.offset)
                yield record


def read_kept(
    reader: Reader,
    places: Mapping[TopicPartition, Iterable[int]],
    *,
    us_max: int,
    clock: Clock,
) -> Iterator[Record]:
    """As :func:`read_places` of any offsets: those that are in the log."""
    logs = reader.log_ranges([*places], us_max / 1e6)
    kept = {
        one: [each for each in offsets if logs[one].start <= each < logs[one].end]
        for one, offsets in places.items()
    }
    yield from read_places(reader, kept, us_max=us_max, clock=clock)


def _next_span(offsets: list[int], wanted: Container[int], near: int) -> Span | None:
    """Takes from ``offsets`` those that it covers, and before them those that are not
    wanted any more. None: no other is."""
    while offsets and offsets[0] not in wanted:
        del offsets[0]
    if not offsets:
        return None
    count = 1
    while (
        count < len(offsets)
        and offsets[count] - offsets[count - 1] <= near
        and offsets[count] - offsets[0] < _SPAN_MAX
    ):
        count += 1
    first, last = offsets[0], offsets[count - 1]
    del offsets[:count]
    return Span(first, last + 1)
