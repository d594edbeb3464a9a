"""Until when a request may take, by the clock of the log."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.domain import Priority
from headrace.wire import headers as names
from headrace.wire.records import Record
from headrace.wire.topics import PRIORITIES

__all__ = [
    "BULK_TIMEOUT_MAX_US",
    "CLOCK_SLACK_US",
    "TIMEOUT_DEFAULT_US",
    "TIMEOUT_MAX_US",
    "deadline_of",
]

TIMEOUT_DEFAULT_US = 5_000_000
"""Time limit where neither the request nor its model names one."""

TIMEOUT_MAX_US = 600_000_000
"""Longest time limit of an online request; the HTTP API refuses more."""

BULK_TIMEOUT_MAX_US = 7 * 86_400_000_000
CLOCK_SLACK_US = 5_000_000
"""A deadline that is further from its record's log time than the longest time limit
and this does not count (D2). Who writes one knows the log's clock only about, and the
log keeps whole milliseconds of it."""


def deadline_of(
    record: Record, headers: Mapping[str, bytes | None], timeout_us: int
) -> tuple[int | None, bool]:
    """D2: the deadline in log time (None: bulk, which has none), and whether it had
    passed when the record was appended. ``timeout_us`` is the model's time limit.

    Raises :class:`headrace.errors.RequestError`.
    """
    bulk = record.partition % PRIORITIES == Priority.BULK
    away_us_max = CLOCK_SLACK_US + (BULK_TIMEOUT_MAX_US if bulk else TIMEOUT_MAX_US)
    deadline_us = names.number(headers, names.DEADLINE)
    if deadline_us is not None:
        left_us = deadline_us - record.timestamp_us
        if -away_us_max <= left_us <= away_us_max:
            return deadline_us, left_us <= 0
    if bulk:
        return None, False
    return record.timestamp_us + timeout_us, False
