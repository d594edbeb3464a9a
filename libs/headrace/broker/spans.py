"""Parts of a log that end, read with a reader of the caller's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from headrace.broker.interface import Reader, Record, TopicPartition
from headrace.clock import Clock
from headrace.errors import BusTimeout

__all__ = ["Span", "read_spans", "spans_since"]

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
