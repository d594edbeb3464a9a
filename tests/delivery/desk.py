"""A lane on a desk: told facts by hand, in virtual time, with its decisions kept."""

from collections.abc import Iterable
from itertools import count
from typing import TypeVar

from headrace.delivery import CommitMetadata, Lane, LaneLimits, LaneState
from headrace.delivery.decisions import (
    Commit,
    Decision,
    FetchPositions,
    WriteBatch,
    WriteClaim,
    WriteSync,
)
from headrace.delivery.events import (
    Assigned,
    ClaimWritten,
    CommitEnded,
    CommitOutcome,
    Completed,
    Event,
    OwnHeartbeatRead,
    PartitionState,
    PositionsFetched,
    RequestRead,
    SlotHeard,
    StatusAdvanced,
    Ticked,
    VersionsChanged,
    WriteEnded,
)
from headrace.domain import (
    Completion,
    Done,
    DoneMember,
    HeldBatch,
    Joined,
    MemberStatus,
    Priority,
    Reported,
    Request,
    ServedVersion,
    Source,
)
from tests.delivery.builders import MS, SECOND, TOPICS, a_partition, a_version
from tests.delivery.scheduler import FifoScheduler

__all__ = ["FORMER", "Desk", "a_desk", "batches_in", "found", "ids", "send"]

FORMER = "former"
D = TypeVar("D")


class Desk:
    """``incarnations``: the process in each slot, whose heartbeats come while time
    passes, unless the slot stands in ``silent``."""

    def __init__(
        self,
        *,
        slots: int = 2,
        cap: int = 2,
        batch_max: int = 4,
        p99_us: int = 20 * MS,
        limits: LaneLimits | None = None,
        versions: tuple[ServedVersion, ...] = (a_version(),),
    ) -> None:
        self.now_us = 10 * SECOND
        self.limits = limits or LaneLimits(cap=cap)
        ids = (f"b{number}" for number in count(1))
        self.scheduler = FifoScheduler(ids, batch_max=batch_max, p99_us=p99_us)
        self.lane = Lane(
            0,
            former=FORMER,
            worker_slots=range(slots),
            topics=TOPICS,
            scheduler=self.scheduler,
            limits=self.limits,
        )
        self.incarnations = dict.fromkeys(range(slots), 0)
        self.silent: set[int] = set()
        self.reads_status = True
        self.said: list[Decision] = []
        self.completions_end = 0
        self.accepts_commits = True
        """Answer every commit at once."""

        self._beat_at_us = 0
        self.tell(VersionsChanged(versions))

    # -- talking

    def tell(self, event: Event) -> list[Decision]:
        """What the lane says to ``event`` and, where commits are accepted at once, to
        their answers."""
        decisions = self.lane.handle(event, self.now_us)
        self.said += decisions
        if self.accepts_commits:
            for commit in [each for each in decisions if isinstance(each, Commit)]:
                accepted = CommitEnded(commit.commit, CommitOutcome.ACCEPTED)
                decisions = [*decisions, *self.tell(accepted)]
        return decisions

    def tick(self) -> list[Decision]:
        """As many ticks as the lane wants at this instant."""
        decisions: list[Decision] = []
        for _ in range(10):
            wakeup_us = self.lane.wakeup_at_us()
            if wakeup_us is None or wakeup_us > self.now_us:
                return decisions
            decisions += self.tell(Ticked())
        raise AssertionError("the lane wants ticks that do nothing")

    def let_pass(self, us: int) -> list[Decision]:
        """Time, with the heartbeats that come meanwhile."""
        decisions: list[Decision] = []
        until_us = self.now_us + us
        while self.now_us < until_us:
            if self.now_us >= self._beat_at_us:
                self._beat_at_us = self.now_us + 250 * MS
                decisions += self.hear()
            decisions += self.tick()
            self.now_us = min(until_us, self.now_us + 10 * MS)
        return [*decisions, *self.tick()]

    def hear(self) -> list[Decision]:
        """One heartbeat of everyone who is not silent."""
        if not self.reads_status:
            return []
        decisions = self.tell(OwnHeartbeatRead())
        decisions += self.tell(StatusAdvanced(self.now_us))
        for slot, incarnation in self.incarnations.items():
            if slot not in self.silent:
                decisions += self.tell(SlotHeard(slot, incarnation, self.now_us))
        return decisions

    def complete(self, completion: Completion) -> list[Decision]:
        """The next record of the lane's completions."""
        offset = self.completions_end
        self.completions_end += 1
        if isinstance(completion, Joined):
            self.incarnations[completion.slot] = offset
        return self.tell(Completed(offset, completion))

    def ended(self, write: int, offset: int | None = 0) -> list[Decision]:
        return self.tell(WriteEnded(write, offset))

    # -- a takeover

    def take(
        self,
        partitions: Iterable[PartitionState] | None = None,
        *,
        claim: int = 0,
        completions_start: int = 0,
    ) -> list[Decision]:
        """T1 to T7: until the lane is SCANNING."""
        if partitions is None:
            partitions = [a_partition(priority=priority) for priority in Priority]
        self.hear()
        assert self.tell(Assigned()) == [WriteClaim(0)]
        assert self.tell(ClaimWritten(claim)) == [FetchPositions(0, None)]
        states = tuple(partitions)
        end = self.completions_end
        self.tell(PositionsFetched(states, completions_start, end))
        decisions = self.tell(PositionsFetched((), completions_start, end))
        assert self.lane.state is LaneState.SCANNING
        return decisions

    def activate(
        self, partitions: Iterable[PartitionState] | None = None, *, claim: int = 0
    ) -> list[Decision]:
        """A lane whose slots have all reported; their joins are long past."""
        for slot in self.incarnations:
            self.incarnations[slot] = self.completions_end
            self.completions_end += 1
        decisions = self.take(partitions, claim=claim)
        for slot in self.incarnations:
            decisions += self.report(slot)
        assert self.lane.state is LaneState.ACTIVE
        return decisions

    def report(
        self,
        slot: int,
        *,
        held: Iterable[HeldBatch] = (),
        k: int | None = None,
        epoch: int | None = None,
        former: str = FORMER,
        draining: bool = False,
    ) -> list[Decision]:
        """The slot answers the last sync, unless told otherwise."""
        if k is None:
            syncs = [each for each in self.all(WriteSync) if each.slot == slot]
            k = syncs[-1].k
        report = Reported(
            slot=slot,
            incarnation=self.incarnations[slot],
            epoch=self.lane.epoch if epoch is None else epoch,
            former=former,
            k=k,
            draining=draining,
            models=frozenset(),
            held=tuple(held),
        )
        return self.complete(report)

    # -- work

    def read(self, *requests: Request) -> list[Decision]:
        """Requests are read, and dispatched where there is room."""
        decisions: list[Decision] = []
        for request in requests:
            decisions += self.tell(RequestRead(request))
        return [*decisions, *self.tick()]

    def done(
        self,
        batch: WriteBatch,
        status: MemberStatus = MemberStatus.OK,
        reason: str = "",
        *,
        statuses: Iterable[MemberStatus] = (),
        incarnation: int | None = None,
        name: str = "",
    ) -> list[Decision]:
        """The batch's done, with one outcome for all members or one each, and what
        the scheduler makes of it."""
        requests = batch.dispatch.requests
        each = list(statuses) or [status] * len(requests)
        members = tuple(
            DoneMember(request.source, request.id, status, reason, reason)
            for request, status in zip(requests, each, strict=True)
        )
        known = batch.incarnation if incarnation is None else incarnation
        slot = batch.dispatch.slot
        done = Done(name or batch.dispatch.batch, slot, known, 1, 0, 1, members)
        return [*self.complete(done), *self.tick()]

    def done_elsewhere(self, source: Source) -> list[Decision]:
        """A success of a batch of which the lane knows nothing."""
        member = DoneMember(source, "?", MemberStatus.OK, "", "")
        return self.complete(
            Done("theirs", 0, self.incarnations[0], 1, 0, 1, (member,))
        )

    # -- looking

    def all(self, kind: type[D]) -> list[D]:
        """Every decision of this kind so far."""
        return [each for each in self.said if isinstance(each, kind)]

    def free(self, slot: int) -> int:
        """Free credits of a slot, as the scheduler was told."""
        return self.scheduler.slots[slot].credits_free

    def watermark(self) -> tuple[int, CommitMetadata]:
        """The newest commit of the standard partition."""
        standard = a_partition().partition
        for commit in reversed(self.all(Commit)):
            for entry in commit.entries:
                if entry.partition == standard:
                    metadata = CommitMetadata.parse(entry.metadata)
                    assert metadata is not None
                    return entry.offset, metadata
        raise AssertionError("nothing is committed")


def found(decisions: Iterable[object], kind: type[D]) -> list[D]:
    """The decisions of one kind."""
    return [each for each in decisions if isinstance(each, kind)]


def batches_in(decisions: Iterable[Decision]) -> list[WriteBatch]:
    return found(decisions, WriteBatch)


def a_desk(*, slots: int = 1, cap: int = 1, batch_max: int = 4) -> Desk:
    """An active lane with a partition of each priority."""
    desk = Desk(slots=slots, cap=cap, batch_max=batch_max)
    desk.activate([a_partition(priority=p, log_end=99) for p in Priority])
    return desk


def send(desk: Desk, *requests: Request) -> WriteBatch:
    """The one batch in which the requests leave."""
    (batch,) = batches_in(desk.read(*requests))
    return batch


def ids(batch: WriteBatch) -> list[str]:
    return [request.id for request in batch.dispatch.requests]
