"""Every unsettled request of a lane, once, with all the offsets where it lies.

A request is QUEUED, then FLYING in its newest batch, and so on in turns; it ends
SETTLED, by way of VERDICT when it ends without a result. A record with the identity of
an entry that is still here joins it and settles with it: two entries of one identity
could end differently, and a client would see an error although its request succeeded.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from headrace.delivery.decisions import PausePartition, ResumePartition
from headrace.delivery.limits import LaneLimits
from headrace.delivery.outbox import Outbox
from headrace.delivery.watermark import PartitionLog
from headrace.domain import Reason, Request, Source
from headrace.wire.kept import is_keyed

__all__ = ["Entry", "EntryState", "Keyed", "Ledger"]


class EntryState(Enum):
    """Where a request stands with the present owner of its lane."""

    QUEUED = "queued"
    FLYING = "flying"
    VERDICT = "verdict"
    """It ends without a result: the decision is made, its evidence not yet acked."""
    SETTLED = "settled"


class Keyed(Enum):
    """Where a request with an idempotency key stands."""

    WAITING = "waiting"
    """Until it is known which keys were answered before this ownership."""
    ASKED = "asked"
    FORGOTTEN = "forgotten"
    """Its end is no answer to a repetition."""
    TOLD = "told"
    """The same, and it is written: what is read with the key now is another try."""


class Entry:
    """One request. ``sources`` are all the offsets of its identity, first read first;
    ``first_flight_us`` is None until this owner has dispatched it."""

    __slots__ = (
        "batch",
        "first_flight_us",
        "has_failed",
        "is_alone",
        "is_cancelled",
        "is_overdue",
        "keyed",
        "last",
        "losses",
        "request",
        "sources",
        "state",
        "suspect",
        "why",
        "writes_left",
    )

    def __init__(self, request: Request) -> None:
        self.request = request
        self.sources = [request.source]
        self.state = EntryState.QUEUED
        self.batch = ""
        self.first_flight_us: int | None = None
        self.is_overdue = False
        """It had expired before it was read (D2)."""

        self.is_alone = False
        """Nobody else is in its newest batch."""

        self.has_failed = False
        """A batch with it on board failed as a whole."""

        self.losses = 0
        """Workers that were lost with it on board."""

        self.is_cancelled = False
        """Its client wants no answer: it has no next attempt."""

        self.keyed: Keyed | None = None
        self.suspect = False
        """Its next attempt runs alone: a worker crashed with it on board, or two were
        lost."""

        self.why = ""
        """How it came to be queued again; empty before that."""

        self.last = Reason.ATTEMPTS_EXHAUSTED
        """Why it ends, if its next attempt fails as the last one did."""

        self.writes_left = 0
        """Records that must be acked before a verdict is settled."""

    def flies_in(self, batch: str) -> bool:
        return self.state is EntryState.FLYING and self.batch == batch


Log = PartitionLog[Entry]
Address = tuple[str, int]


class Ledger:
    """The request partitions of a lane and the entries that lie in them."""

    def __init__(self, limits: LaneLimits, out: Outbox) -> None:
        self.logs: dict[Address, Log] = {}
        self._limits = limits
        self._out = out
        self._by_key: dict[str, Entry] = {}
        self._told: dict[str, list[Entry]] = {}
        self.settled_keys: list[str] = []
        """Ids of requests with a key that have had a final answer, not yet taken."""

        # Facts about offsets that no reader has reached yet: ends of requests in
        # partitions that are not open, and the batches in which requests of the
        # predecessor still fly.
        self._early: dict[Address, dict[int, int | None]] = {}
        self._aloft: dict[Source, str] = {}

    def open(self, log: Log) -> None:
        """Take in a partition; what is known of its offsets already counts."""
        self.logs[log.topic, log.partition] = log
        for offset, done in self._early.pop((log.topic, log.partition), {}).items():
            log.settle(offset, done)

    def entries(self) -> Iterator[Entry]:
        """Every unsettled request once, in the order in which they were read."""
        return iter(self._by_key.values())

    def by_key(self, key: str) -> Entry | None:
        return self._by_key.get(key)

    def at(self, source: Source) -> Entry | None:
        """The unsettled request at ``source``, when it is read."""
        log = self.logs.get(source[:2])
        return log.entries.get(source[2]) if log else None

    def add(self, request: Request) -> Entry | None:
        """The new entry of a record just read; None when there is nothing to do with
        it: it was read before, is settled, or has joined another."""
        topic, partition, offset = source = request.source
        log = self.logs.get((topic, partition))
        if log is None:
            return None
        if not log.read(offset):
            if log.was_ahead and request.made_by_us and is_keyed(request.id):
                self.settled_keys.append(request.id)
            return None
        entry = self._by_key.get(request.key)
        if entry is not None:
            entry.sources.append(source)
            log.entries[offset] = entry
            return None
        return self._enter(log, request)

    def skip(self, source: Source) -> bool:
        """A record that needs no end was read; False: before, or not for us."""
        log = self.logs.get(source[:2])
        return log is not None and log.skip(source.offset)

    def lose(self, log: Log, log_start: int, stand_in: Request) -> Entry:
        """Records up to ``log_start`` are gone, unread; ``stand_in``, whose source is
        the first of them, is the entry that ends for all of them."""
        log.lose(stand_in.source.offset, log_start)
        return self._enter(log, stand_in)

    def told(self, entry: Entry) -> None:
        """An end that is no repetition's has been written, acked or not: a record that
        is read from now on may have been sent by a client that knows of it."""
        if entry.keyed is Keyed.FORGOTTEN:
            entry.keyed = Keyed.TOLD
            self._let_go(entry)
            self._told.setdefault(entry.request.key, []).append(entry)

    def is_told(self, key: str) -> bool:
        """Whether such an end of the key is not acked yet."""
        return key in self._told

    def settle(self, entry: Entry, done_offset: int | None) -> None:
        """The request has its evidence, for each of its offsets."""
        entry.state = EntryState.SETTLED
        self._let_go(entry)
        if self._told:
            self._untell(entry)
        if entry.keyed is Keyed.ASKED:
            self.settled_keys.append(entry.request.id)
        for source in entry.sources:
            topic, partition, offset = source
            log = self.logs[topic, partition]
            log.settle(offset, done_offset)
            if source == entry.request.source:
                log.bytes_open -= entry.request.size_bytes
            if log.is_paused and log.has_room(self._limits):
                log.is_paused = False
                self._out.put(ResumePartition(topic, partition))

    def settle_ahead(self, source: Source, done_offset: int) -> None:
        """A request that is not read, or was settled before, has its evidence."""
        topic, partition, offset = source
        log = self.logs.get((topic, partition))
        if log is not None:
            log.settle(offset, done_offset)
        else:
            self._early.setdefault((topic, partition), {})[offset] = done_offset

    def cut(self, log: Log, log_end: int) -> list[Entry]:
        """The log ends below its reader: nobody will read again what lay beyond, and
        other records will lie there. The entries that are left without an offset are
        returned and no longer here."""
        orphans = []
        for entry in log.cut(log_end):
            address = (log.topic, log.partition)
            entry.sources = [
                source
                for source in entry.sources
                if source[:2] != address or source.offset < log_end
            ]
            if entry.request.source.offset >= log_end:
                log.bytes_open -= entry.request.size_bytes
            if not entry.sources:
                self._let_go(entry)
                self._untell(entry)
                orphans.append(entry)
        return orphans

    def aloft(self, source: Source, batch: str) -> None:
        """The request at ``source``, not read yet, flies in a predecessor's batch."""
        log = self.logs.get(source[:2])
        if log is None or source.offset >= log.position:
            self._aloft[source] = batch

    def landed(self, source: Source) -> str | None:
        """Once, the predecessor's batch in which the request just read flies."""
        return self._aloft.pop(source, None) if self._aloft else None

    def _let_go(self, entry: Entry) -> None:
        key = entry.request.key
        if self._by_key.get(key) is entry:
            del self._by_key[key]

    def _untell(self, entry: Entry) -> None:
        key = entry.request.key
        told = [each for each in self._told.pop(key, ()) if each is not entry]
        if told:
            self._told[key] = told

    def _enter(self, log: Log, request: Request) -> Entry:
        entry = Entry(request)
        self._by_key[request.key] = entry
        log.entries[request.source.offset] = entry
        log.bytes_open += request.size_bytes
        if not log.is_paused and log.is_full(self._limits):
            log.is_paused = True
            self._out.put(PausePartition(log.topic, log.partition))
        return entry
