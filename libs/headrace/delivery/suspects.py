"""A record that kills its former, found by what is committed beside it.

An owner that dies leaves no word of why. But a partition whose watermark stands where
it stood, with something unread behind it, owner after owner, may hold what killed them.
From the third owner on its records are read one at a time, over all lanes of a process,
and each only when a commit that names it is accepted. Whoever finds such a name reads
that record by itself once more, since its reader may have lost the lane and lived; at
the second death it is a dead letter, unread.
"""

from __future__ import annotations

from enum import Enum

from headrace.delivery.commits import Commits
from headrace.delivery.decisions import ReadOne, ReadRequests
from headrace.delivery.ledger import Address, Ledger, Log
from headrace.delivery.limits import LaneLimits
from headrace.delivery.outbox import Outbox
from headrace.delivery.verdicts import Verdicts
from headrace.domain import Reason, Request, Source
from headrace.wire.topics import Topics

__all__ = ["Suspects", "Turn", "stand_in"]

TEXT = "batch formers have ended while they read this record: it stays unread"


class Turn:
    """Shared by the lanes of a process, of which one tries a record at a time: a death
    must have one suspect."""

    def __init__(self) -> None:
        self._holder: int | None = None

    def take(self, lane: int) -> bool:
        """Whether the lane has it, from now on or already."""
        if self._holder is None:
            self._holder = lane
        return self._holder == lane

    def leave(self, lane: int) -> None:
        if self._holder == lane:
            self._holder = None


class _Step(Enum):
    NEXT = 1
    MARKING = 2
    """A commit with its name is on its way."""
    READING = 3
    TRYING = 4
    """It is read, and nothing happened yet."""
    CLEARING = 5
    """A commit without its name is on its way."""


class Suspects:
    """The partitions of a lane that are read one record at a time."""

    def __init__(  # noqa: PLR0913 - what a record's fate touches
        self,
        lane: int,
        *,
        topics: Topics,
        limits: LaneLimits,
        turn: Turn,
        ledger: Ledger,
        verdicts: Verdicts,
        commits: Commits,
        out: Outbox,
    ) -> None:
        self._lane = lane
        self._topics = topics
        self._limits = limits
        self._turn = turn
        self._ledger = ledger
        self._verdicts = verdicts
        self._commits = commits
        self._out = out
        self._watched: dict[Address, int] = {}
        self._step = _Step.NEXT
        self._tried = 0
        self._offset = 0
        self._until_us = 0
        self._again_at_us: int | None = None

    def watch(self, log: Log, until: int) -> None:
        """Read the records of ``log`` before ``until`` one at a time."""
        self._watched[log.topic, log.partition] = until

    def forget(self, address: Address) -> None:
        """The partition is read otherwise from now on."""
        if self._watched and address == next(iter(self._watched)):
            self._step, self._tried = _Step.NEXT, 0
            self._turn.leave(self._lane)
            self._ledger.logs[address].suspect = None
            self._commits.want()
        self._watched.pop(address, None)

    def close(self) -> None:
        self._watched.clear()
        self._turn.leave(self._lane)

    def on_time(self, now_us: int) -> None:
        self._again_at_us = None
        while self._watched and self._goes_on(now_us):
            pass

    def wakeup_at_us(self) -> int | None:
        return self._again_at_us

    def _goes_on(self, now_us: int) -> bool:
        """Take one step; False: something has to happen first."""
        address = self._current()
        if address is None:
            self._turn.leave(self._lane)
            return False
        if not self._turn.take(self._lane):
            self._again_at_us = now_us + self._limits.again_us
            return False
        log = self._ledger.logs[address]
        match self._step:
            case _Step.NEXT:
                return self._next(log, self._watched[address])
            case _Step.MARKING | _Step.CLEARING if log.marked_committed != log.marked:
                return False
            case _Step.MARKING:
                self._read(log)
                return False
            case _Step.CLEARING:
                self._step = _Step.NEXT
                return True
            case _Step.READING:
                return self._has_come(log, now_us)
            case _Step.TRYING:
                self._try(log, now_us)
                return False

    def _has_come(self, log: Log, now_us: int) -> bool:
        if log.position <= self._offset:
            return False
        self._step = _Step.NEXT
        if log.suspect is not None:
            self._step = _Step.TRYING
            self._until_us = now_us + self._limits.suspect_us
        return True

    def _try(self, log: Log, now_us: int) -> None:
        """It has survived when it has its end, or nothing has happened for so long."""
        if log.suspect in log.entries and now_us < self._until_us:
            self._again_at_us = self._until_us
            return
        if log.suspect == log.found:
            log.found = None
        log.suspect = None
        self._tried += 1
        self._commits.want()
        self._step = _Step.CLEARING

    def _current(self) -> Address | None:
        """The first partition; of those that come next, one that may be read."""
        if self._step is not _Step.NEXT:
            return next(iter(self._watched))
        for address, until in self._watched.items():
            if not self._ledger.logs[address].is_paused:
                # To the front, where it stays while its record is tried.
                others = {k: v for k, v in self._watched.items() if k != address}
                self._watched = {address: until, **others}
                return address
        return None

    def _next(self, log: Log, until: int) -> bool:
        offset, found = log.position, log.found
        if offset >= until or self._tried >= self._limits.suspects_max:
            if log.marked or log.marked_committed:
                return False  # what it ended at is not behind the watermark yet
            self._release(log)
        elif offset == found and log.found_deaths >= self._limits.suspect_deaths:
            source = Source(log.topic, log.partition, offset)
            model = self._topics.model_of(log.topic)
            entry = self._ledger.add(stand_in(source, model))
            if entry is not None:
                self._verdicts.fail(entry, Reason.CRASH, TEXT)
        elif log.knows(offset):
            log.read(offset)
        elif found is not None and offset < found:
            self._read(log)  # the predecessor has, and lived
            return False
        elif offset != found and log.marked is not None:
            return False  # that name stands in every commit until its letter is acked
        else:
            log.suspect = offset
            self._commits.want()
            self._step = _Step.MARKING
            return False
        return True

    def _read(self, log: Log) -> None:
        self._offset = log.position
        self._out.put(ReadOne(log.topic, log.partition, self._offset))
        self._step = _Step.READING

    def _release(self, log: Log) -> None:
        address = (log.topic, log.partition)
        del self._watched[address]
        self._tried = 0
        self._turn.leave(self._lane)
        self._out.put(ReadRequests(((*address, log.position),)))


def stand_in(source: Source, model: str) -> Request:
    """Something to settle, where there is no request to be had."""
    _, priority = Topics.lane_and_priority(source.partition)
    return Request(
        key="/".join(map(str, source)),
        id="",
        tenant="",
        model=model,
        version="",
        shape="",
        rows=1,
        length=0,
        priority=priority,
        arrived_us=0,
        deadline_us=None,
        reply_to=None,
        source=source,
        tensors=(),
        size_bytes=0,
        made_by_us=False,
    )
