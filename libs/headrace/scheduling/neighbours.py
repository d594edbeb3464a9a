"""Who rides along in a batch of longer requests of the same model, padded further."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.scheduling.line import Line
from headrace.scheduling.queue import Entry
from headrace.scheduling.selection import Times

__all__ = ["Riders", "neighbours"]

Riders = list[tuple[Line, list[Entry]]]


def neighbours(  # noqa: PLR0913 - a pure function of all that bears on it
    lines: Iterable[Line],
    members: Sequence[Entry],
    times: Times,
    *,
    priority: int,
    slot: int,
    late_us: int,
    rows_max: int,
    bytes_max: int,
) -> Riders:
    """Of ``lines``, the longest first, those whose requests of ``priority`` ride along
    with ``members``: all of them, so that they need no batch of their own, and only
    where the device spends less on them so than on that batch. Every deadline holds.
    ``late_us`` is when a run of no time would reach the client.
    """
    found: Riders = []
    rows = sum(entry.request.rows for entry in members)
    space = bytes_max - sum(entry.request.size_bytes for entry in members)
    deadline_us = min(entry.deadline_us for entry in members)
    for line in lines:
        band = line.queue.bands[priority]
        more = band.rows
        if rows + more > rows_max:
            continue
        entries = list(band)
        size = sum(entry.request.size_bytes for entry in entries)
        soonest_us = min(deadline_us, band.head.deadline_us)
        if (
            size <= space
            and late_us + times.bound(rows + more) <= soonest_us
            and all(entry.request.avoid != slot for entry in entries)
            and times.expected(rows + more) - times.expected(rows)
            < line.times.expected(more)
        ):
            found.append((line, entries))
            rows, space, deadline_us = rows + more, space - size, soonest_us
    return found
