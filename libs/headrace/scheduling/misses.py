"""Which requests cannot make their deadlines, and why."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.domain import Reason, Refuse
from headrace.scheduling.backlog import Backlog
from headrace.scheduling.line import Line
from headrace.scheduling.queue import NEVER_US, Entry
from headrace.scheduling.slots import Slots

__all__ = ["drop_certain"]


def drop_certain(
    slots: Slots,
    backlog: Backlog,
    line: Line,
    priority: int,
    start_us: int,
    now_us: int,
) -> Iterator[Refuse]:
    """Take heads out that cannot make it in a batch that starts at ``start_us``, not
    even alone."""
    band = line.queue.bands[priority]
    while band:
        head = band.head
        if head.deadline_us == NEVER_US:
            return
        if start_us <= backlog.last_start_us(line, head):
            return
        if (
            head.deadline_us > now_us
            and _takes_most(line, head)
            and not line.times.may_judge(now_us)
        ):
            backlog.watch_expiry(line, priority)
            return
        backlog.remove(line, [head])
        line.demand.settled(priority, 0, head.request.rows)
        yield _missed(slots, backlog, line, head, start_us, now_us)


def _missed(
    slots: Slots,
    backlog: Backlog,
    line: Line,
    entry: Entry,
    start_us: int,
    now_us: int,
) -> Refuse:
    """The refusal of ``entry``, which could start at ``start_us`` at the soonest."""
    request = entry.request
    if entry.deadline_us <= now_us + backlog.response_us:
        # Whoever waits for it says the same by then.
        return Refuse(request, Reason.EXPIRED, "its time limit passed in the queue")
    has = line.slots
    if not any(slot.usable for slot in slots if slot.number in has):
        text = "no worker that has the version can be sent to"
        return Refuse(request, Reason.NO_CAPACITY, text, line.drain_us())
    text = backlog.shortfall(line, entry, start_us, now_us)
    return Refuse(request, Reason.DEADLINE_UNATTAINABLE, text)


def _takes_most(line: Line, entry: Entry) -> bool:
    """Whether it is its run that makes it hopeless, not what it has waited for."""
    limit_us = entry.deadline_us - entry.request.arrived_us
    rows = entry.request.rows
    return max(2 * line.times.expected(rows), line.times.bound(rows)) > limit_us
