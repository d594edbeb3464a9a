"""Who rides along in a batch of a more urgent priority, where it has room."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.domain import Priority
from headrace.scheduling.fairness import TenantClocks
from headrace.scheduling.queue import NEVER_US, Band, Entry
from headrace.scheduling.selection import Selection, Times

__all__ = ["Berths", "companions"]


class Berths(NamedTuple):
    """What a batch may grow to."""

    late_us: int
    """When a run of no time would reach the client."""
    rows_max: int
    rows_wanted: int
    """To which bulk fills it, as nearly as whole requests allow."""
    bytes_max: int
    limit_us: int | None
    """How much longer its run may become; None: as long as it likes."""


class _Load(NamedTuple):
    """A batch and who rides along in it."""

    rows: int
    size: int
    deadline_us: int
    rows_max: int
    found: list[Entry]


def companions(
    bands: Iterable[tuple[Band, float]],
    chosen: Selection,
    times: Times,
    tenants: TenantClocks,
    berths: Berths,
) -> list[Entry]:
    """Requests of ``bands``, the more urgent first, that ride along with ``chosen``: a
    row more costs a fraction of what it would cost in a batch of its own. All deadlines
    hold. Heads of a band that leave no room for what is behind them stay where a batch
    of their own would be given up for that: by the band's gate.
    """
    rows_max = berths.rows_max
    if berths.limit_us is not None:
        longest_us = berths.limit_us + times.bound(chosen.rows)
        rows_max = min(rows_max, times.rows_within(longest_us))
    if chosen.deadline_us != NEVER_US:
        spare_us = chosen.deadline_us - berths.late_us
        rows_max = min(rows_max, times.rows_within(spare_us))
    size = sum(entry.request.size_bytes for entry in chosen.members)
    load = _Load(chosen.rows, size, chosen.deadline_us, rows_max, [])
    for band, gate in bands:
        room = load.rows_max - load.rows
        if room <= 0:
            break
        entries = band.first(2 * room, tenants)
        more = _with(load, entries[:room], times, berths)
        full_us = berths.late_us + times.bound(
            min(load.rows + band.rows, load.rows_max)
        )
        if entries[0].deadline_us < full_us:
            first = bisect_left(entries, (full_us,))
            behind = _with(load, entries[first : first + room], times, berths)
            if more.rows < gate * behind.rows:
                more = behind
        load = more
    return load.found


def _with(load: _Load, entries: Sequence[Entry], times: Times, berths: Berths) -> _Load:
    """``load`` and those of ``entries`` that fit, one after another."""
    rows, size, deadline_us, rows_max, found = load
    found = list(found)
    late_us = berths.late_us
    for entry in entries:
        request = entry.request
        more = rows + request.rows
        if request.priority == Priority.BULK and (
            2 * more - request.rows > 2 * berths.rows_wanted
        ):
            continue
        fitting = rows_max
        if entry.deadline_us < deadline_us:
            fitting = min(times.rows_within(entry.deadline_us - late_us), rows_max)
        if more <= fitting and size + request.size_bytes <= berths.bytes_max:
            found.append(entry)
            rows, rows_max = more, fitting
            size += request.size_bytes
            deadline_us = min(deadline_us, entry.deadline_us)
            if rows == rows_max:
                break
    return _Load(rows, size, deadline_us, rows_max, found)
