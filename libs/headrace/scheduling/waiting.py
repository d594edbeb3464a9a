"""Whether a batch leaves now or waits for company, although a worker is idle.

Only an idle worker poses the question: without a free credit the queue grows by
itself, and is looked at anew when the credit comes.
"""

from __future__ import annotations

from headrace.domain import ReleaseReason
from headrace.scheduling.line import Line
from headrace.scheduling.queue import NEVER_US
from headrace.scheduling.selection import Selection, Terms
from headrace.scheduling.slots import Slot

__all__ = ["send_at"]

GAIN_MIN = 0.03
"""Least saving per row for which a batch waits to reach the target."""
COMPANY_MIN = 0.5
"""Expected arrivals before the last moment, below which nobody is waited for."""
COMPANY_SPACED = 8
"""Rows that must be expected from one batch to the next for the two to keep apart."""


def send_at(  # noqa: PLR0913 - a pure function of all that bears on it
    line: Line,
    chosen: Selection,
    terms: Terms,
    slot: Slot,
    *,
    priority: int,
    rows: int,
    deferral: float,
    lines: int,
    spacing_us: int,
    control_us: int,
    now_us: int,
) -> tuple[int, ReleaseReason]:
    """When the batch of ``priority`` leaves, and why then; less urgent online requests
    that ride along make it one of ``rows``. ``deferral`` is the part of the time that
    it could wait without harm which it does wait; a priority that loses requests waits
    for a full target, since each small batch loses it more. But no longer than such
    a batch runs, for each of the ``lines`` that share the workers: one that is asked
    for more than they can do is full by then. Whoever still waits has lost its requests
    to something else, a worker's death or a log that stood still.

    ``spacing_us`` is the time that two batches of a queue keep apart where the second
    is not full: each costs the processes on its way a fixed part, and where those are
    busier than the worker, many small batches take the time of fewer full ones."""
    if line.alone:
        return now_us, ReleaseReason.ALONE
    if rows >= line.rows_max(slot.number):
        return now_us, ReleaseReason.FULL
    eager = ReleaseReason.AHEAD if slot.batches else ReleaseReason.IDLE
    if chosen.deadline_us == NEVER_US:
        return now_us, eager  # it has no last moment to wait for
    pressure = terms.pressure
    has_victims = bool(chosen.victims) and pressure < 1
    if chosen.leaves_some or has_victims:
        return now_us, eager
    times = line.times
    invalid_us = chosen.deadline_us - times.bound(rows) - terms.response_us - control_us
    rate = line.demand.rows_per_us(now_us)
    apart_us = now_us
    if rate * spacing_us >= COMPANY_SPACED:
        apart_us = min(line.sent_at_us + spacing_us, invalid_us)
    if not (deferral or pressure):
        return apart_us, eager
    if rows >= terms.target_rows:
        return apart_us, ReleaseReason.TARGET
    target = terms.target_rows
    gain = 1 - (times.expected(target) * rows) / (times.expected(rows) * target)
    if gain < GAIN_MIN * (1 - pressure) or rate * (invalid_us - now_us) < COMPANY_MIN:
        return apart_us, eager
    front_us = invalid_us - (times.bound(rows + 1) - times.bound(rows))
    oldest_us = min(entry.request.arrived_us for entry in chosen.members)
    wait_until_us = oldest_us + int(deferral * (front_us - oldest_us))
    if pressure > deferral:
        waits_us = line.waits_since_us[priority]
        since_us = now_us if waits_us is None else waits_us
        full_us = since_us + lines * times.bound(target)
        last_us = oldest_us + int(pressure * (front_us - oldest_us))
        wait_until_us = max(wait_until_us, min(full_us, last_us))
    return min(invalid_us, max(wait_until_us, apart_us)), ReleaseReason.DEADLINE
