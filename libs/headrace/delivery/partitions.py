"""The request partitions of a lane: opened at a takeover and when a model appears,
and followed when their log is cut or has lost records.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headrace.delivery.attempts import Attempts
from headrace.delivery.commits import Commits
from headrace.delivery.decisions import Alarm, FetchPositions, ReadRequests
from headrace.delivery.events import PositionsFetched, ReadingLost, RequestRejected
from headrace.delivery.ledger import Ledger, Log
from headrace.delivery.limits import LaneLimits
from headrace.delivery.outbox import Outbox
from headrace.delivery.suspects import Suspects, Turn, stand_in
from headrace.delivery.takeover import Start, start_of
from headrace.delivery.verdicts import Verdicts
from headrace.delivery.watermark import PartitionLog
from headrace.domain import Reason, ServedVersion, Source
from headrace.wire.topics import Topics

__all__ = ["Partitions"]


class Partitions:
    """Which partitions are read, and from where."""

    def __init__(  # noqa: PLR0913 - what a partition's fate touches
        self,
        lane: int,
        topics: Topics,
        *,
        limits: LaneLimits,
        ledger: Ledger,
        attempts: Attempts,
        verdicts: Verdicts,
        commits: Commits,
        turn: Turn,
        out: Outbox,
    ) -> None:
        self.suspects = Suspects(
            lane,
            topics=topics,
            limits=limits,
            turn=turn,
            ledger=ledger,
            verdicts=verdicts,
            commits=commits,
            out=out,
        )
        self._lane = lane
        self._topics = topics
        self._limits = limits
        self._ledger = ledger
        self._attempts = attempts
        self._verdicts = verdicts
        self._commits = commits
        self._out = out
        self._models: set[str] = set()
        self._missing: set[str] = set()
        self._ask_at_us = 0
        self.is_fetching = False

    def open(self, starts: Iterable[Start], *, is_committed: bool) -> None:
        """Read these partitions from now on."""
        positions = []
        for start in starts:
            address = (start.topic, start.partition)
            if address in self._ledger.logs:
                continue
            log: Log = PartitionLog(
                *address, position=start.watermark, takeovers=start.takeovers
            )
            if is_committed:
                log.committed = start.watermark
                log.marked_committed = start.found
            if start.found is not None:
                log.found, log.found_deaths = start.found
            self._ledger.open(log)
            self._models.add(self._topics.model_of(start.topic))
            if start.read_from > start.watermark:
                self._lose(log, start.read_from)
            if start.alarm:
                self._out.put(start.alarm)
            until = start.suspects_until(self._limits)
            if until > start.read_from:
                self.suspects.watch(log, until)
            else:
                positions.append((*address, start.read_from))
        self._missing -= self._models
        if positions:
            self._out.put(ReadRequests(tuple(positions)))

    def versions_changed(self, served: Iterable[ServedVersion]) -> None:
        self._missing = {each.model for each in served} - self._models
        self._ask_at_us = 0

    def on_time(self, now_us: int) -> None:
        """Ask for the partitions of models that appeared; again where their topic was
        not there yet."""
        if self._missing and not self.is_fetching and now_us >= self._ask_at_us:
            self.is_fetching = True
            self._ask_at_us = now_us + self._limits.ask_again_us
            self._out.put(FetchPositions(self._lane, tuple(sorted(self._missing))))

    def wakeup_at_us(self) -> int | None:
        return self._ask_at_us if self._missing and not self.is_fetching else None

    def fetched(self, fetched: PositionsFetched) -> int:
        """A model appeared. Its partitions are committed at once, so that a partition
        without a commit is always one that was idle beyond all retention. Returns the
        highest epoch found."""
        self.is_fetching = False
        starts = [start_of(state) for state in fetched.partitions]
        self.open(starts, is_committed=False)
        self._commits.want()
        epochs = [start.committed.epoch for start in starts if start.committed]
        return max(epochs, default=-1)

    def reading_lost(self, lost: ReadingLost, now_us: int) -> None:
        """A reader fell out of the log's range: records went unread, or the log was
        cut or replaced."""
        log = self._ledger.logs.get((lost.topic, lost.partition))
        if log is None:
            return
        facts: dict[str, str | int] = {"topic": log.topic, "partition": log.partition}
        if log.position < lost.log_start:
            facts |= {"first": log.position, "last": lost.log_start - 1}
            self._out.put(Alarm("retention.gap", facts))
            self._lose(log, lost.log_start)
        elif log.position > lost.log_end:
            facts |= {"position": log.position, "log_end": lost.log_end}
            self._out.put(Alarm("position.lost", facts))
            for entry in self._ledger.cut(log, lost.log_end):
                self._attempts.forget(entry, now_us)
            self._commits.want()
        self.suspects.forget((log.topic, log.partition))
        self._out.put(ReadRequests(((log.topic, log.partition, log.position),)))

    def rejected(self, event: RequestRejected) -> None:
        """A record that can never run: its verdict is all that it gets."""
        made_up = stand_in(event.source, event.model)
        request = msgspec.structs.replace(
            made_up,
            id=event.id,
            tenant=event.tenant,
            reply_to=event.reply_to,
            client_id=event.client_id,
        )
        entry = self._ledger.add(request)
        if entry is not None:
            self._verdicts.fail(entry, event.reason, event.text)

    def _lose(self, log: Log, log_start: int) -> None:
        """One dead letter names the range; W stays below it until that is acked."""
        first = log.position
        source = Source(log.topic, log.partition, first)
        made_up = stand_in(source, self._topics.model_of(log.topic))
        entry = self._ledger.lose(log, log_start, made_up)
        text = f"records {first} to {log_start - 1} left the log before they were read"
        self._verdicts.fail(entry, Reason.RETENTION_GAP, text)
