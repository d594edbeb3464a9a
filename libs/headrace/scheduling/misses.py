"""Why a request that cannot make its deadline cannot."""

from __future__ import annotations

from headrace.domain import Reason, Refuse
from headrace.scheduling.backlog import Backlog, Line
from headrace.scheduling.queue import Entry
from headrace.scheduling.slots import Slots

__all__ = ["missed"]


def missed(
    slots: Slots,
    backlog: Backlog,
    line: Line,
    entry: Entry,
    start_us: int,
    now_us: int,
) -> Refuse:
    """The refusal of ``entry``, which could start at ``start_us`` at the soonest."""
    request = entry.request
    if entry.deadline_us <= now_us:
        return Refuse(request, Reason.EXPIRED, "its time limit passed in the queue")
    has = line.slots
    if not any(slot.usable for slot in slots if slot.number in has):
        text = "no worker that has the version can be sent to"
        return Refuse(request, Reason.NO_CAPACITY, text, line.drain_us())
    text = backlog.shortfall(line, entry, start_us, now_us)
    return Refuse(request, Reason.DEADLINE_UNATTAINABLE, text)
