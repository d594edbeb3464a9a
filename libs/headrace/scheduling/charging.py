"""Who pays for a batch, and what each priority had by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.scheduling.choice import Choice
from headrace.scheduling.fairness import TenantClocks
from headrace.scheduling.line import Line
from headrace.scheduling.queue import Entry, QueueKey
from headrace.scheduling.shares import Shares

__all__ = ["charge"]

COMPANION_CHARGE = 0.25
"""Part of its cost that a request pays when it rides in a more urgent batch."""


def charge(  # noqa: PLR0913 - all that a batch changes of what is owed
    choice: Choice,
    members: Iterable[Entry],
    row_us: float,
    *,
    busy: Sequence[Mapping[QueueKey, Line]],
    tenants: TenantClocks,
    shares: Shares,
    now_us: int,
) -> None:
    """``members`` leave at ``row_us`` a row; ``busy`` is who still waits."""
    rows = [0] * len(busy)
    charged: dict[str, float] = {}
    for entry in members:
        request = entry.request
        part: float = request.rows
        rows[request.priority] += request.rows
        if request.priority != choice.priority:
            part *= COMPANION_CHARGE
        charged[request.tenant] = charged.get(request.tenant, 0.0) + part
    for tenant, part in charged.items():
        tenants.charge(tenant, row_us * part, now_us)
    run_us = row_us * sum(rows)
    for priority, lines in enumerate(busy):
        if priority == choice.priority:
            continue
        if rows[priority]:
            choice.line.demand.settled(priority, rows[priority], 0)
        # Who rides along has had his share, unless others of his priority wait who
        # cannot.
        if any(line is not choice.line for line in lines.values()):
            rows[priority] = 0
    parts_us = [row_us * each for each in rows]
    shares.served(run_us, parts_us, [bool(lines) for lines in busy])
