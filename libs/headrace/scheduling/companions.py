"""Who rides along in a batch of a more urgent priority, where it has room."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.domain import Priority
from headrace.scheduling.fairness import TenantClocks
from headrace.scheduling.queue import Band, Entry
from headrace.scheduling.selection import Selection, Times

__all__ = ["companions"]


def companions(  # noqa: PLR0913 - a pure function of all that bears on it
    bands: Iterable[Band],
    chosen: Selection,
    times: Times,
    tenants: TenantClocks,
    *,
    late_us: int,
    rows_max: int,
    rows_wanted: int,
    bytes_max: int,
    limit_us: int | None,
) -> list[Entry]:
    """Requests of ``bands``, the more urgent first, that ride along with ``chosen``: a
    row more costs a fraction of what it would cost in a batch of its own. All deadlines
    hold, and the batch grows by no more than a bulk run may take (``limit_us``; None:
    as long as it likes); by bulk to ``rows_wanted``, as nearly as whole requests allow.
    ``late_us`` is when a run of no time would reach the client.
    """
    rows, deadline_us = chosen.rows, chosen.deadline_us
    if limit_us is not None:
        rows_max = min(rows_max, times.rows_within(limit_us + times.bound(rows)))
    space = bytes_max - sum(entry.request.size_bytes for entry in chosen.members)
    found: list[Entry] = []
    for band in bands:
        room = rows_max - rows
        if not band or room <= 0:
            continue
        for entry in band.first(room, tenants)[:room]:
            request = entry.request
            more = rows + request.rows
            if request.priority == Priority.BULK and (
                2 * more - request.rows > 2 * rows_wanted
            ):
                continue
            soonest_us = min(deadline_us, entry.deadline_us)
            if (
                more <= rows_max
                and request.size_bytes <= space
                and late_us + times.bound(more) <= soonest_us
            ):
                found.append(entry)
                rows, deadline_us = more, soonest_us
                space -= request.size_bytes
    return found
