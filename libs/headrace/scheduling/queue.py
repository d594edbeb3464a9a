"""The requests waiting for one (model version, shape), by priority and deadline."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import chain
from typing import NamedTuple

from headrace.domain import Priority, Request
from headrace.scheduling.fairness import TenantClocks

__all__ = ["NEVER_US", "Band", "Entry", "KeyQueue", "QueueKey"]

NEVER_US = 1 << 62
"""The deadline of a request that has none."""

DUE_BITS = 6
"""Leading bits of a time limit that count."""

TENANTS_SEEN_MAX = 64
"""Tenants of one band that are considered for a batch: the least served ones."""


class QueueKey(NamedTuple):
    """Requests with equal keys may share a batch."""

    model: str
    version: str
    shape: str


class Entry(NamedTuple):
    """Sorts by deadline, then by order of arrival; ``seq`` is unique."""

    deadline_us: int
    seq: int
    request: Request


class Band:
    """One priority of a queue: a sorted list per tenant. Arrivals mostly append and
    departures mostly take heads, so lists beat heaps and can be looked at in order."""

    def __init__(self) -> None:
        self._by_tenant: dict[str, list[Entry]] = {}
        self._head: Entry | None = None
        self._count = 0
        self.rows = 0
        self.due: dict[int, int] = {}
        """Rows by deadline; see :func:`_about`."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        return chain.from_iterable(self._by_tenant.values())

    @property
    def head(self) -> Entry:
        """The entry with the earliest deadline; the band must not be empty."""
        if self._head is None:
            self._head = min(entries[0] for entries in self._by_tenant.values())
        return self._head

    def tenants(self) -> Iterable[str]:
        return self._by_tenant

    def first(self, count: int, tenants: TenantClocks) -> Sequence[Entry]:
        """Entries to choose a batch from, in order of deadline: all of a sole
        tenant's, otherwise the first ``count`` of each, so that nobody's requests
        are hidden behind another's backlog."""
        lists = self._by_tenant
        if len(lists) == 1:
            (entries,) = lists.values()
            return entries
        seen: Iterable[str] = lists
        if len(lists) > TENANTS_SEEN_MAX:
            seen = nsmallest(TENANTS_SEEN_MAX, lists, key=tenants.clock)
        return sorted(chain.from_iterable(lists[tenant][:count] for tenant in seen))

    def push(self, entry: Entry) -> None:
        own = self._by_tenant.get(entry.request.tenant)
        if own is None:
            self._by_tenant[entry.request.tenant] = [entry]
        elif entry < own[-1]:
            insort(own, entry)
        else:
            own.append(entry)
        self._count += 1
        self.rows += entry.request.rows
        due_us = _about(entry)
        self.due[due_us] = self.due.get(due_us, 0) + entry.request.rows
        if self._count == 1 or (self._head is not None and entry < self._head):
            self._head = entry

    def remove(self, entries: Sequence[Entry]) -> None:
        by_tenant: dict[str, list[Entry]] = {}
        due = self.due
        for entry in entries:
            by_tenant.setdefault(entry.request.tenant, []).append(entry)
            due_us = _about(entry)
            due[due_us] -= entry.request.rows
            if not due[due_us]:
                del due[due_us]
        for tenant, gone in by_tenant.items():
            own = self._by_tenant[tenant]
            _take_out(own, gone)
            if not own:
                del self._by_tenant[tenant]
        self._count -= len(entries)
        self.rows -= sum(entry.request.rows for entry in entries)
        self._head = None


def _about(entry: Entry) -> int:
    """The deadline, up to a thirty-second part of the time limit sooner: requests of
    one time limit have few such instants between them, however many wait."""
    limit_us = entry.deadline_us - entry.request.arrived_us
    finest = max(limit_us.bit_length() - DUE_BITS, 0)
    return entry.deadline_us >> finest << finest


def _take_out(own: list[Entry], gone: list[Entry]) -> None:
    """Delete ``gone`` from the sorted ``own``; both begin at the head, mostly."""
    count = len(gone)
    if own[:count] == gone:
        del own[:count]
        return
    seqs = {entry.seq for entry in gone}
    last = bisect_left(own, max(gone)) + 1
    own[:last] = [entry for entry in own[:last] if entry.seq not in seqs]


class KeyQueue:
    """The bands of one key."""

    def __init__(self, key: QueueKey) -> None:
        self.key = key
        self.bands: tuple[Band, ...] = tuple(Band() for _ in Priority)

    def __len__(self) -> int:
        return sum(len(band) for band in self.bands)

    def push(self, request: Request, seq: int) -> Entry:
        deadline_us = request.deadline_us
        entry = Entry(NEVER_US if deadline_us is None else deadline_us, seq, request)
        self.bands[request.priority].push(entry)
        return entry

    def remove(self, entries: Sequence[Entry]) -> set[Priority]:
        """Take queued entries out, of the priorities that are returned."""
        priorities = {entry.request.priority for entry in entries}
        if len(priorities) == 1:
            (priority,) = priorities
            self.bands[priority].remove(entries)
            return priorities
        for priority in priorities:
            self.bands[priority].remove(
                [entry for entry in entries if entry.request.priority == priority]
            )
        return priorities
