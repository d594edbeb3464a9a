"""What a killed publisher had sent that it told nobody of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headrace.broker import (
    KafkaConnection,
    KafkaReader,
    Span,
    TopicPartition,
    read_spans,
)
from headrace.clock import SystemClock
from headrace.jobs.records import source_of
from headrace.wire import headers as names
from headrace.wire.jobs import JobSpec, RowRange

__all__ = ["published_since"]

LOOK_UP_S: Final = 10.0
READ_AT_ONCE: Final = 1000
READ_US_MAX: Final = 600_000_000


def published_since(
    connection: KafkaConnection,
    topic: str,
    positions: Mapping[int, int],
    spec: JobSpec,
) -> set[RowRange]:
    """The job's records in a topic of requests from these offsets on.

    Raises :class:`headrace.errors.BusError`.
    """
    source = source_of(spec).encode()
    places = {TopicPartition(topic, number): at for number, at in positions.items()}
    reader = KafkaReader(connection)
    found = set()
    try:
        ranges = reader.log_ranges([*places], LOOK_UP_S) if places else {}
        spans = {
            one: Span(max(at, ranges[one].start), ranges[one].end)
            for one, at in places.items()
            if max(at, ranges[one].start) < ranges[one].end
        }
        for record in read_spans(
            reader,
            spans,
            records_max=READ_AT_ONCE,
            us_max=READ_US_MAX,
            clock=SystemClock(),
        ):
            headers = dict(record.headers)
            if headers.get(names.CE_SOURCE) != source or record.value is None:
                continue
            request_id = headers.get(names.CE_ID) or b""
            rows = RowRange.of_id(spec.job, request_id.decode(errors="replace"))
            if rows is not None:
                found.add(rows)
    finally:
        reader.close()
    return found
