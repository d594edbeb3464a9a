"""The requests waiting for one (model version, shape), by priority and deadline."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import NamedTuple

from headrace.domain import Priority, Request

__all__ = ["NEVER_US", "Entry", "KeyQueue", "QueueKey"]

NEVER_US = 1 << 62
"""The deadline of a request that has none."""


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


class KeyQueue:
    """One sorted list per priority. Arrivals mostly append and departures mostly take
    the head, so a list beats a heap and can be looked at in order."""

    def __init__(self, key: QueueKey) -> None:
        self.key = key
        self.bands: tuple[list[Entry], ...] = tuple([] for _ in Priority)

    def __len__(self) -> int:
        return sum(len(band) for band in self.bands)

    def push(self, request: Request, seq: int) -> Entry:
        deadline_us = request.deadline_us
        entry = Entry(NEVER_US if deadline_us is None else deadline_us, seq, request)
        band = self.bands[request.priority]
        if band and entry < band[-1]:
            insort(band, entry)
        else:
            band.append(entry)
        return entry

    def remove(self, entry: Entry) -> None:
        band = self.bands[entry.request.priority]
        place = bisect_left(band, entry)
        assert band[place].seq == entry.seq
        del band[place]

    def remove_all(self, entries: list[Entry]) -> None:
        """Remove entries, usually the heads of their bands."""
        for priority in {entry.request.priority for entry in entries}:
            band = self.bands[priority]
            gone = {
                entry.seq for entry in entries if entry.request.priority == priority
            }
            count = len(gone)
            if all(entry.seq in gone for entry in band[:count]):
                del band[:count]
            else:
                last = max(
                    bisect_left(band, entry)
                    for entry in entries
                    if entry.request.priority == priority
                )
                band[: last + 1] = [
                    entry for entry in band[: last + 1] if entry.seq not in gone
                ]
