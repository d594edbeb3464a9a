"""One ownership of a lane: everything that the delivery protocol asks of its former.

A lane is told what was read from the log and how its own writes ended, and says what
to write next. It holds the ownership (claim, confirming commits, the scan of a
takeover, leaving); what an owner does meanwhile is its ``work``. T1 to T9, D4 and D5
are the protocol's numbers (README.md beside this file).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import assert_never

from headrace.delivery.commits import Commits, Purpose
from headrace.delivery.decisions import (
    Alarm,
    Decision,
    DropLane,
    ReadCompletions,
    Rejoin,
    StopReading,
)
from headrace.delivery.events import (
    Assigned,
    CancelRead,
    ClaimSeen,
    ClaimWritten,
    CommitEnded,
    CommitOutcome,
    Completed,
    CompletionsAt,
    CompletionsLost,
    DrainRequested,
    Event,
    GapNoticed,
    HopsMeasured,
    KeysRead,
    LinkFound,
    LinkLost,
    Lost,
    OwnHeartbeatRead,
    PositionsFetched,
    ReadingLost,
    Refused,
    RequestRead,
    RequestRejected,
    Revoked,
    SlotHeard,
    StatusAdvanced,
    Ticked,
    VersionsChanged,
    WriteEnded,
)
from headrace.delivery.leases import LeaseWatch
from headrace.delivery.limits import LaneLimits
from headrace.delivery.links import Links
from headrace.delivery.outbox import Outbox
from headrace.delivery.roster import Roster
from headrace.delivery.slot import UNKNOWN
from headrace.delivery.suspects import Turn
from headrace.delivery.takeover import Taking
from headrace.delivery.work import Work
from headrace.domain import Scheduler
from headrace.wire.topics import Topics

__all__ = ["Lane", "LaneState"]


class LaneState(StrEnum):
    """``OUT`` before the assignment and after the end: a Lane serves one ownership."""

    OUT = "out"
    TAKING = "taking"
    SCANNING = "scanning"
    ACTIVE = "active"
    LEAVING = "leaving"


class Lane:
    """The decisions of a lane's former, from its assignment until it is let go.

    ``former`` is the uuid that this process drew at its start; ``worker_slots`` are
    those that serve the lane. Facts that concern every lane (heartbeats, versions) are
    taken in at any time, also before ``Assigned``.
    """

    def __init__(  # noqa: PLR0913 - what makes a lane this one
        self,
        lane: int,
        *,
        former: str,
        worker_slots: Iterable[int],
        topics: Topics,
        scheduler: Scheduler,
        limits: LaneLimits | None = None,
        turn: Turn | None = None,
    ) -> None:
        """``turn`` is shared with the other lanes of the process."""
        self._lane = lane
        self._former = former
        self._worker_slots = tuple(worker_slots)
        self._topics = topics
        self._scheduler = scheduler
        self._limits = limits or LaneLimits()
        self._turn = turn or Turn()
        self._out = Outbox()
        self._roster: Roster[tuple[int, int]] = Roster(
            pause_us=self._limits.heartbeat_late_us
        )
        self._leases = LeaseWatch(self._limits)
        self._links = Links(self._out)
        self._versions: VersionsChanged | None = None
        self._commits = Commits(
            claims=(topics.lanes, lane), limits=self._limits, out=self._out
        )
        self._state = LaneState.OUT
        self._taking = self._new_taking()
        self._work = self._new_work()
        self._scan_end = 0
        self._census_until_us = self._leave_by_us = 0
        self._flush_by_us: int | None = None
        self._last_commit: int | None = None

    @property
    def state(self) -> LaneState:
        return self._state

    @property
    def epoch(self) -> int:
        """The confirmed epoch; -1 before the first."""
        return self._work.epoch

    def unsettled(self) -> dict[tuple[str, int], int]:
        """Requests read and not settled, per request partition."""
        return {key: len(log.entries) for key, log in self._work.ledger.logs.items()}

    def handle(self, event: Event, now_us: int) -> list[Decision]:
        """Take in one event and say what follows from it now."""
        if isinstance(event, RequestRead):
            # One for each request of the platform; everything else comes per batch.
            if self._state in _READING:
                self._work.read(event, now_us)
        else:
            self._take_in(event, now_us)
            self._act(now_us, is_tick=isinstance(event, Ticked))
        return self._out.take()

    def reads_at(self, topic: str, partition: int) -> int:
        """Where the next record of a partition that it reads will lie."""
        return self._work.ledger.logs[topic, partition].position

    def handle_all(self, events: Iterable[Event], now_us: int) -> list[Decision]:
        """As :meth:`handle` of facts that were learned together: what follows is
        decided once, from all of them. Neither requests nor ticks."""
        for event in events:
            self._take_in(event, now_us)
        self._act(now_us, is_tick=False)
        return self._out.take()

    def wakeup_at_us(self) -> int | None:
        """The next instant at which ``Ticked`` can change anything."""
        match self._state:
            case LaneState.OUT:
                return None
            case LaneState.TAKING:
                return self._taking.wakeup_at_us()
            case LaneState.SCANNING:
                has_scanned = self._work.position >= self._scan_end
                return self._census_until_us if has_scanned else None
            case LaneState.ACTIVE:
                return self._work.wakeup_at_us()
            case LaneState.LEAVING:
                if self._last_commit is not None:
                    return None
                return self._flush_by_us or self._leave_by_us
            case _:
                assert_never(self._state)

    def _new_taking(self) -> Taking:
        return Taking(
            self._lane, limits=self._limits, commits=self._commits, out=self._out
        )

    def _new_work(self) -> Work:
        return Work(
            self._lane,
            former=self._former,
            worker_slots=self._worker_slots,
            topics=self._topics,
            scheduler=self._scheduler,
            limits=self._limits,
            roster=self._roster,
            leases=self._leases,
            commits=self._commits,
            links=self._links,
            turn=self._turn,
            out=self._out,
        )

    # -- what comes in

    def _take_in(self, event: Event, now_us: int) -> None:  # noqa: C901 - the union
        match event:
            case Completed():
                self._complete(event, now_us)
            case WriteEnded():
                self._work.write_ended(event, now_us)
            case CommitEnded():
                self._commit_ended(event, now_us)
            case SlotHeard(slot=slot, incarnation=incarnation, log_us=log_us):
                self._roster.heard((slot, incarnation), log_us)
                self._roster.heard((slot, UNKNOWN), log_us)
            case LinkFound() | LinkLost():
                self._work.link_changed(event, now_us)
            case StatusAdvanced(log_us=log_us):
                self._roster.advance(log_us)
            case OwnHeartbeatRead():
                self._work.own_heartbeat_read(now_us)
            case HopsMeasured():
                self._work.tell_scheduler(event, now_us)
            case VersionsChanged():
                self._versions = event
                self._work.versions_changed(event, now_us)
            case (
                RequestRejected()
                | CancelRead()
                | KeysRead()
                | ReadingLost()
                | CompletionsAt()
            ):
                self._read(event, now_us)
            case CompletionsLost():
                self._completions_lost(event, now_us)
            case Assigned() | ClaimWritten() | ClaimSeen() | PositionsFetched():
                self._take(event, now_us)
            case Revoked() | DrainRequested() | Lost() | GapNoticed():
                self._interrupt(event, now_us)
            case RequestRead() | Ticked():
                pass
            case _:
                assert_never(event)

    def _read(
        self,
        event: RequestRejected | CancelRead | KeysRead | ReadingLost | CompletionsAt,
        now_us: int,
    ) -> None:
        if self._state not in _READING:
            return
        match event:
            case RequestRejected():
                self._work.partitions.rejected(event)
            case CancelRead():
                self._work.cancels.read(event, now_us)
            case KeysRead():
                self._work.keys.read(event, now_us)
            case ReadingLost():
                self._work.partitions.reading_lost(event, now_us)
            case CompletionsAt(position=position):
                self._work.position = max(self._work.position, position)
            case _:
                assert_never(event)

    def _complete(self, event: Completed, now_us: int) -> None:
        if self._state not in _READING:
            return
        refused = event.completion
        if (
            self._state is LaneState.SCANNING
            and isinstance(refused, Refused)
            and refused.reason == "epoch"
            and refused.epoch_seen >= self._work.epoch
        ):
            self._start_over(refused.epoch_seen + 1)
        else:
            self._work.complete(event, now_us)

    def _commit_ended(self, event: CommitEnded, now_us: int) -> None:
        purpose = self._commits.ended(event)
        accepted = event.outcome is CommitOutcome.ACCEPTED
        self._work.commit_ended(event, accepted=accepted)
        if purpose is None:
            return
        if event.commit == self._last_commit:
            self._drop(now_us)
        elif event.outcome is CommitOutcome.NOT_MEMBER:
            self._drop(now_us)
            self._out.put(Rejoin())
        elif event.outcome is CommitOutcome.FENCED:
            self._drop(now_us)
        elif purpose is Purpose.TAKE:
            self._taking.commit_ended(event, now_us)
        elif purpose is not Purpose.TICK:
            self._work.confirmed(event, now_us)
        elif not accepted:
            self._commits.put_off(now_us)

    def _completions_lost(self, lost: CompletionsLost, now_us: int) -> None:
        if self._state not in _READING:
            return
        position = self._work.position
        facts: dict[str, str | int] = {
            "topic": self._topics.completions,
            "position": position,
            "log_start": lost.log_start,
            "log_end": lost.log_end,
        }
        self._out.put(Alarm("position.lost", facts))
        if position <= lost.log_end:
            self._work.position = max(position, lost.log_start)
            self._out.put(ReadCompletions(self._lane, self._work.position))
        elif self._state is not LaneState.LEAVING:
            # The topic was replaced: offsets, and with them incarnations and epochs,
            # start anew, so the lane is taken anew.
            self._work.close(now_us)
            self._state = LaneState.TAKING
            self._out.put(StopReading(self._lane))
            self._taking = self._new_taking()
            self._taking.begin()

    # -- ownership

    def _take(
        self,
        event: Assigned | ClaimWritten | ClaimSeen | PositionsFetched,
        now_us: int,
    ) -> None:
        match event:
            case Assigned():
                self._state = LaneState.TAKING
                self._taking.begin()
            case ClaimWritten(offset=offset):
                self._taking.claim_written(offset, now_us)
            case ClaimSeen(offset=offset):
                # Anyone can claim; only a refused commit says that the lane is lost.
                if offset > self._taking.claim:
                    self._commits.want(everything=True)
            case PositionsFetched():
                self._positions_fetched(event, now_us)
            case _:
                assert_never(event)

    def _positions_fetched(self, event: PositionsFetched, now_us: int) -> None:
        if self._work.partitions.is_fetching:
            self._work.partitions.is_fetching = False
            if self._state is LaneState.ACTIVE:
                self._work.positions_fetched(event)
        elif self._state is LaneState.TAKING:
            takeover = self._taking.positions_fetched(event)
            if takeover is None:
                return
            self._state = LaneState.SCANNING
            self._scan_end = takeover.scan_end
            self._census_until_us = now_us + self._limits.census_us
            self._work = self._new_work()
            self._work.scan(takeover, now_us)
            if self._versions is not None:
                self._work.versions_changed(self._versions, now_us)
            self._out.put(ReadCompletions(self._lane, takeover.scan_from))

    def _start_over(self, epoch_min: int = 0) -> None:
        """A takeover in doubt is made again from T3: its reading, too."""
        self._state = LaneState.TAKING
        self._out.put(StopReading(self._lane))
        self._taking.start_over(epoch_min)

    def _interrupt(
        self, event: Revoked | DrainRequested | Lost | GapNoticed, now_us: int
    ) -> None:
        match event:
            case Lost():
                if self._state is not LaneState.OUT:
                    self._drop(now_us)
            case Revoked() | DrainRequested():
                self._leave(now_us)
            case GapNoticed():
                if self._state is LaneState.ACTIVE:
                    self._work.gap_noticed()
                elif self._state is LaneState.SCANNING:
                    self._start_over()
                elif self._state is LaneState.TAKING:
                    self._taking.start_over()
            case _:
                assert_never(event)

    # -- what follows

    def _act(self, now_us: int, *, is_tick: bool) -> None:
        match self._state:
            case LaneState.OUT:
                pass
            case LaneState.TAKING:
                self._taking.on_time(now_us)
            case LaneState.SCANNING:
                self._count_slots(now_us)
            case LaneState.ACTIVE:
                self._work.go_on(now_us, is_tick=is_tick)
            case LaneState.LEAVING:
                self._finish(now_us)
            case _:
                assert_never(self._state)

    def _count_slots(self, now_us: int) -> None:
        """T8 and T9. Who is heard at all is known once ``status`` is read."""
        self._work.ask_slots(now_us)
        if self._work.position < self._scan_end:
            return
        all_reported = (
            self._work.have_slots_reported() and self._roster.newest_us is not None
        )
        if all_reported or now_us >= self._census_until_us:
            self._state = LaneState.ACTIVE
            self._work.activate(now_us)
            self._work.go_on(now_us, is_tick=False)

    def _leave(self, now_us: int) -> None:
        if self._state in {LaneState.TAKING, LaneState.SCANNING}:
            self._drop(now_us)
        elif self._state is LaneState.ACTIVE:
            self._state = LaneState.LEAVING
            self._leave_by_us = now_us + self._limits.drain_us
            self._work.close(now_us)
            self._out.put(StopReading(self._lane, tuple(self._work.ledger.logs)))

    def _finish(self, now_us: int) -> None:
        """What flies may still end; what was written may still be acked; then one last
        commit. The successor adopts or reads again whatever is left."""
        if self._last_commit is not None:
            return
        if self._flush_by_us is None:
            if self._work.has_flying and now_us < self._leave_by_us:
                return
            self._flush_by_us = now_us + self._limits.flush_us
        if self._work.has_unacked and now_us < self._flush_by_us:
            return
        self._last_commit = self._commits.leave(
            self._work.ledger, self._work.epoch, self._work.position
        )
        if self._last_commit is None:
            self._drop(now_us)

    def _drop(self, now_us: int) -> None:
        self._work.close(now_us)
        self._state = LaneState.OUT
        self._out.put(DropLane(self._lane))


_READING = frozenset({LaneState.SCANNING, LaneState.ACTIVE, LaneState.LEAVING})
"""States in which what is read from the lane's partitions is of this ownership."""
