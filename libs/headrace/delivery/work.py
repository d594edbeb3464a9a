"""What an owner does with its lane: requests, runs, workers, verdicts, commits.

Facts are taken in at any time; what follows from them is written by ``go_on``, which
the lane calls while it is ACTIVE. Until then, and while the owner must prove itself
again, everything is only noted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from headrace.delivery.attempts import Attempts
from headrace.delivery.cancels import Cancels
from headrace.delivery.commits import Commits
from headrace.delivery.confirming import Confirming
from headrace.delivery.decisions import Alarm
from headrace.delivery.events import (
    CommitEnded,
    Completed,
    Done,
    Joined,
    Left,
    LinkFound,
    LinkLost,
    PositionsFetched,
    Refused,
    Reported,
    RequestRead,
    StaleWritten,
    VersionsChanged,
    WriteEnded,
)
from headrace.delivery.keys import Keys
from headrace.delivery.leases import LeaseWatch
from headrace.delivery.ledger import EntryState, Ledger
from headrace.delivery.limits import LaneLimits
from headrace.delivery.links import Links
from headrace.delivery.outbox import Outbox
from headrace.delivery.partitions import Partitions
from headrace.delivery.roster import Roster
from headrace.delivery.slots import Slots
from headrace.delivery.suspects import Turn
from headrace.delivery.takeover import Takeover
from headrace.delivery.verdicts import Verdicts
from headrace.domain import (
    Arrived,
    BatchEnded,
    Dispatch,
    HopsMeasured,
    Refuse,
    Scheduler,
    Source,
    Ticked,
)
from headrace.wire.topics import Topics

__all__ = ["Work"]


class Work:
    """Everything that a takeover finds out anew."""

    def __init__(  # noqa: PLR0913 - a lane's whole surroundings
        self,
        lane: int,
        *,
        former: str,
        worker_slots: Iterable[int],
        topics: Topics,
        scheduler: Scheduler,
        limits: LaneLimits,
        roster: Roster[tuple[int, int]],
        leases: LeaseWatch,
        commits: Commits,
        links: Links,
        turn: Turn,
        out: Outbox,
    ) -> None:
        self._former = former
        self._commits = commits
        self._out = out
        self.epoch = -1
        self.position = 0
        """Where the next completion will be read."""

        self._is_active = False
        self.ledger = ledger = Ledger(limits, out)
        self._verdicts = verdicts = Verdicts(
            lane=lane, topics=topics, limits=limits, ledger=ledger, out=out
        )
        self._attempts = attempts = Attempts(
            scheduler=scheduler, ledger=ledger, verdicts=verdicts, limits=limits
        )
        self.cancels = Cancels(ledger=ledger, attempts=attempts, limits=limits)
        self.keys = Keys(
            lane, topics, ledger=ledger, attempts=attempts, limits=limits, out=out
        )
        self._slots = Slots(
            worker_slots,
            lane=lane,
            limits=limits,
            roster=roster,
            leases=leases,
            ledger=ledger,
            attempts=attempts,
            links=links,
            out=out,
        )
        self._confirming = Confirming(
            lane, limits=limits, ledger=ledger, commits=commits, out=out
        )
        self.partitions = Partitions(
            lane,
            topics,
            limits=limits,
            ledger=ledger,
            attempts=attempts,
            verdicts=verdicts,
            commits=commits,
            turn=turn,
            out=out,
        )

    # -- from a takeover to its end

    def scan(self, takeover: Takeover, now_us: int) -> None:
        """T6 to T8: read on from where the predecessor committed, ask every slot, and
        do nothing else."""
        self.epoch = takeover.epoch
        self.position = takeover.scan_from
        self.partitions.open(takeover.starts, is_committed=True)
        self.keys.scan()
        self._slots.is_scanning = True
        self._slots.ask_all(now_us)

    def ask_slots(self, now_us: int) -> None:
        self._slots.flush(self.epoch, now_us)

    def have_slots_reported(self) -> bool:
        """T9. Whoever joins from now on is asked anew."""
        self._slots.is_scanning = False
        return self._slots.have_reported()

    def activate(self, now_us: int) -> None:
        self._is_active = True
        self._commits.start(now_us)
        self._attempts.open(now_us)

    def close(self, now_us: int) -> None:
        """Dispatch no more; facts are still taken in."""
        self._is_active = False
        self.partitions.suspects.close()
        self._slots.close(now_us)
        self._attempts.close(now_us)

    @property
    def has_flying(self) -> bool:
        return self._slots.has_flying

    @property
    def has_unacked(self) -> bool:
        """Whether ends of requests are written whose acks are not here yet."""
        return self._verdicts.has_unacked

    # -- facts

    def read(self, event: RequestRead, now_us: int) -> None:
        entry = self.ledger.add(event.request)
        if entry is None:
            return
        entry.is_overdue = event.overdue
        reply_to = event.request.reply_to
        if reply_to is not None and reply_to.partition is None:
            self.keys.mark(entry)
        if self.cancels.overtook(entry, now_us):
            return
        batch = self.ledger.landed(event.request.source)
        if batch is None or not self._slots.adopt(entry, batch, now_us):
            if entry.keyed is not None and self.keys.holds(entry, now_us):
                return
            self._attempts.enqueue(entry, now_us)
            if self._attempts.decided:
                self._carry_out(now_us)

    def complete(self, event: Completed, now_us: int) -> None:
        if event.offset < self.position:
            return  # read twice
        self.position = event.offset + 1
        match event.completion:
            case Done() as done:
                self._slots.done(done, event.offset, now_us)
            case Joined(slot=slot, previous_exit=previous_exit):
                self._slots.joined(slot, event.offset, previous_exit, now_us)
            case Reported() as report:
                self._slots.reported(report, self.epoch, self._former, now_us)
            case Left(slot=slot, incarnation=incarnation):
                self._slots.left(slot, incarnation, now_us)
            case Refused() as refused:
                self._refused(refused, now_us)
            case StaleWritten() as stale:
                for first, last in stale.ranges:
                    for offset in range(first, last + 1):
                        source = Source(stale.topic, stale.partition, offset)
                        self._attempts.settle_at(source, event.offset, now_us)
            case _:
                assert_never(event.completion)

    def versions_changed(self, event: VersionsChanged, now_us: int) -> None:
        self._attempts.versions_changed(event.served, now_us)
        self.partitions.versions_changed(event.served)

    def positions_fetched(self, event: PositionsFetched) -> None:
        found = self.partitions.fetched(event)
        if found >= self.epoch:
            self.outrun(found)

    def write_ended(self, event: WriteEnded, now_us: int) -> None:
        if not self._verdicts.write_ended(event.write, event.offset, now_us):
            self._slots.write_ended(event.write, event.offset, now_us)

    def commit_ended(self, event: CommitEnded, *, accepted: bool) -> None:
        self._verdicts.commit_ended(event.commit, accepted=accepted)

    def confirmed(self, event: CommitEnded, now_us: int) -> None:
        """An answer to a commit on which the lane's output waits."""
        epoch = self._confirming.commit_ended(event, self.epoch, now_us)
        if epoch != self.epoch:
            self.epoch = epoch
            self._slots.ask_all(now_us)

    def link_changed(self, event: LinkFound | LinkLost, now_us: int) -> None:
        match event:
            case LinkFound():
                self._slots.link_found(event, now_us)
            case LinkLost():
                self._slots.link_lost(event, now_us)
            case _:
                assert_never(event)

    def own_heartbeat_read(self, now_us: int) -> None:
        self._slots.own_heartbeat_read(now_us)

    def gap_noticed(self) -> None:
        self._confirming.gap_noticed(self.epoch, self.position)

    def outrun(self, seen: int) -> None:
        """Someone has seen an epoch as high as ours that is not ours."""
        if not self._is_active:
            return
        self._out.put(Alarm("epoch.outrun", {"epoch": self.epoch, "seen": seen}))
        self._confirming.outrun(seen, self.epoch, self.position)

    def tell_scheduler(self, event: HopsMeasured, now_us: int) -> None:
        self._attempts.tell(event, now_us)

    # -- what follows

    def go_on(self, now_us: int, *, is_tick: bool) -> None:
        """Write everything that is due."""
        confirming = self._confirming
        if confirming.is_needed:
            confirming.on_time(self.epoch, self.position, now_us, is_tick=is_tick)
            if confirming.is_needed:
                return
        self._slots.on_time(now_us)
        if self.ledger.settled_keys:
            self.keys.remember_settled(now_us)
        self.keys.on_time(now_us)
        self._attempts.end_backoffs(now_us)
        self._slots.tell_scheduler(now_us)
        if is_tick and self._attempts.scheduler_is_due(now_us):
            self._attempts.tell(Ticked(), now_us)
        self._carry_out(now_us)
        self.partitions.suspects.on_time(now_us)
        self._slots.flush(self.epoch, now_us)
        self._commit(now_us)
        self.partitions.on_time(now_us)
        self._verdicts.flush(self.epoch, now_us)

    def wakeup_at_us(self) -> int | None:
        if self._confirming.is_needed:
            return self._confirming.wakeup_at_us()
        if self._verdicts.has_decided:
            return 0
        instants = (
            self._slots.wakeup_at_us(),
            self._attempts.wakeup_at_us(),
            self._commits.wakeup_at_us(urgent=self._verdicts.wants_commit),
            self._verdicts.again_at_us,
            self.partitions.wakeup_at_us(),
            self.partitions.suspects.wakeup_at_us(),
        )
        return min((at for at in instants if at is not None), default=None)

    def _refused(self, refused: Refused, now_us: int) -> None:
        match refused.reason:
            case "epoch":
                if refused.epoch_seen >= self.epoch:
                    self.outrun(refused.epoch_seen)
            case "lane":
                self._slots.left(refused.slot, refused.incarnation, now_us)
            case "cap":
                self._slots.refused_cap(refused.slot, refused.incarnation, now_us)
            case _:
                pass  # its incarnation: the join tells

    def _commit(self, now_us: int) -> None:
        urgent = self._verdicts.wants_commit
        if not self._commits.is_due(now_us, urgent=urgent):
            return
        if self._commits.all_is_due(now_us):
            self._attempts.give_up_old(now_us)
            urgent = self._verdicts.wants_commit
        commit = self._commits.tick(
            self.ledger, self.epoch, self.position, now_us, urgent=urgent
        )
        if commit is not None:
            self._verdicts.commit_sent(commit)

    def _carry_out(self, now_us: int) -> None:
        """Do what the scheduler decided; what it is told meanwhile may decide more."""
        if not self._is_active or self._confirming.is_needed:
            return
        attempts = self._attempts
        while attempts.decided:
            decided, attempts.decided = attempts.decided, []
            for decision in decided:
                match decision:
                    case Dispatch():
                        if not self._slots.dispatch(decision, self.epoch, now_us):
                            self._put_back(decision, now_us)
                    case Refuse(request=request):
                        entry = self.ledger.by_key(request.key)
                        if entry is None or entry.state is not EntryState.QUEUED:
                            continue
                        if not self._slots.resume(entry, now_us):
                            self._verdicts.refuse(entry, decision, now_us)
                    case _:
                        assert_never(decision)
            self._slots.tell_scheduler(now_us)

    def _put_back(self, dispatch: Dispatch, now_us: int) -> None:
        """Nothing was sent: the members are where they were."""
        self._attempts.tell(BatchEnded(dispatch.batch, dispatch.slot, None), now_us)
        self._slots.tell_again(dispatch.slot, now_us)
        for request in dispatch.requests:
            entry = self.ledger.by_key(request.key)
            if entry is not None and entry.state is EntryState.QUEUED:
                self._attempts.tell(Arrived(entry.request), now_us)
