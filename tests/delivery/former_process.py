"""A batch former's process in the simulation: the shell around one production Lane."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, assert_never

from headrace.delivery import Lane, LaneState
from headrace.delivery.decisions import (
    Alarm,
    Cancelled,
    Commit,
    Decision,
    DropLane,
    FetchPositions,
    OpenLink,
    PausePartition,
    ReadCompletions,
    ReadKeys,
    ReadOne,
    ReadRequests,
    ReadToEnds,
    Rejoin,
    ResumePartition,
    StopReading,
    WriteBatch,
    WriteClaim,
    WriteDeadLetters,
    WriteReplies,
    WriteStale,
    WriteSync,
)
from headrace.delivery.events import (
    Assigned,
    ClaimSeen,
    ClaimWritten,
    CommitEnded,
    CommitOutcome,
    Completed,
    Event,
    GapNoticed,
    Lost,
    OwnHeartbeatRead,
    PartitionState,
    PositionsFetched,
    Revoked,
    SlotHeard,
    StaleWritten,
    StatusAdvanced,
    Ticked,
    VersionsChanged,
    WriteEnded,
)
from headrace.domain import Priority, Source
from headrace.wire.topics import Topics
from tests.delivery.broker import Partition, Producer
from tests.delivery.builders import MS, SECOND, TOPICS
from tests.delivery.process import Process
from tests.delivery.readers import Readers
from tests.delivery.records import (
    LETHAL,
    Ask,
    BatchRecord,
    SyncRecord,
    keys_read,
    record_read,
    reply_partition,
)
from tests.delivery.scheduler import Watched
from tests.delivery.streams import Streams

if TYPE_CHECKING:
    from tests.delivery.world import World

__all__ = ["FormerProcess"]

CLAIMS: Partition = (TOPICS.lanes, 0)
COMPLETIONS: Partition = (TOPICS.completions, 0)
GAP_US = 500 * MS
SPIN_MAX = 200
"""Ticks at one instant after which the lane is spinning."""


class FormerProcess(Process):
    """One start of the former ``instance``."""

    def __init__(self, world: World, instance: int) -> None:
        super().__init__(world)
        self.instance = instance
        self.uuid = f"former-{instance}-{world.next_id()}"
        self.lane: Lane | None = None
        self.scheduler: Watched | None = None
        self._orders = Producer(world, self)
        self._answers = Producer(world, self)
        self._readers = Readers(self, self._take)
        self.streams = Streams(self)
        self._term = 0
        self._ticks_at = (0, 0)
        self._tick_at_us: int | None = None
        self._ends: dict[Partition, int] = {}
        self._heard: dict[Process, Event] = {}
        self._on_let_go: Callable[[], None] | None = None

    def start(self) -> None:
        self.after(self.world.latency_us(), partial(self.world.group.join, self))
        self.after(0, self._beat)

    # -- the group

    def assigned(self) -> None:
        self.call(self._assigned)

    def revoked(self, let_go: Callable[[], None]) -> None:
        """The group waits until the lane is let go, or this process is out."""

        def revoke() -> None:
            if self.lane is None:
                let_go()
                return
            self._on_let_go = let_go
            self.tell(Revoked())

        self.call(revoke)

    def fenced(self) -> None:
        """Another process has this instance id: exit 76."""
        self.call(self.die)

    def woke(self, frozen_us: int) -> None:
        if frozen_us > GAP_US:
            self.tell(GapNoticed())
        self.after(self.world.random.randrange(300) * MS, self._out_of_group)

    def _out_of_group(self) -> None:
        if not self.world.group.is_member(self):
            self._rejoin()

    def _rejoin(self) -> None:
        self.tell(Lost())
        member = self.world.group.members.get(self.instance)
        if member is not None and member is not self:
            self.die()
        else:
            self.world.group.join(self)

    def _assigned(self) -> None:
        if not self.world.group.is_member(self) or self.lane is not None:
            return
        self._term += 1
        world = self.world
        ids = (f"b{world.next_id()}" for _ in count())
        self.scheduler = Watched(world.new_policy(ids))
        self.lane = Lane(
            0,
            former=self.uuid,
            worker_slots=range(world.slots),
            topics=TOPICS,
            scheduler=self.scheduler,
            limits=world.limits,
        )
        self.tell(VersionsChanged((world.version,)))
        for sender, heard in self._heard.items():
            self.tell(heard)
            self.streams.heard(sender)
        self.tell(Assigned())

    # -- status

    def _beat(self) -> None:
        self.world.beat(self)
        self.after(250 * MS, self._beat)

    def hear(self, event: SlotHeard | StatusAdvanced, sender: Process) -> None:
        """A heartbeat of ``sender`` was read."""
        self._heard[sender] = event
        if sender is self:
            self.tell(OwnHeartbeatRead())
        self.tell(event)
        self.streams.heard(sender)

    # -- the loop

    def tell(self, event: Event) -> None:
        if self.lane is None:
            return
        for decision in self.lane.handle(event, self.now_us()):
            self._carry_out(decision)
            if self.lane is None:
                return
        self._schedule_tick()

    def _schedule_tick(self) -> None:
        if self.lane is None:
            return
        wakeup_us = self.lane.wakeup_at_us()
        if wakeup_us is None:
            return
        at_us = max(wakeup_us, self.now_us())
        if self._tick_at_us is not None and self._tick_at_us <= at_us:
            return
        self._tick_at_us = at_us
        self.after(at_us - self.now_us(), self._tick)

    def _tick(self) -> None:
        now_us = self.now_us()
        if self._tick_at_us is None or self._tick_at_us > now_us:
            return
        self._tick_at_us = None
        if self.lane is None:
            return
        if self._ends:
            self.after(MS, self._schedule_tick)
            return
        wakeup_us = self.lane.wakeup_at_us()
        if wakeup_us is not None and wakeup_us <= now_us:
            at_us, ticks = self._ticks_at
            self._ticks_at = (now_us, ticks + 1 if at_us == now_us else 1)
            assert self._ticks_at[1] < SPIN_MAX, "the lane wants ticks that do nothing"
            self.tell(Ticked())
        self._schedule_tick()

    # -- what the lane wants

    def _carry_out(self, decision: Decision) -> None:  # noqa: C901 - the union
        lane = self.lane
        assert lane is not None
        match decision:
            case WriteClaim():
                self._produce(CLAIMS, self.uuid, self._claimed, 2 * SECOND)
            case OpenLink():
                self.streams.open(decision)
            case WriteSync(slot=slot, epoch=epoch, k=k):
                sync = SyncRecord(epoch, self.uuid, k, decision.incarnation)
                self._order(slot, epoch, sync, decision)
            case WriteBatch(dispatch=dispatch, epoch=epoch):
                late = dispatch.latest_start_us
                batch = BatchRecord(
                    batch=dispatch.batch,
                    epoch=epoch,
                    former=self.uuid,
                    incarnation=decision.incarnation,
                    latest_start_log_us=None if late is None else self.log_us(late),
                    members=dispatch.requests,
                )
                self._order(dispatch.slot, epoch, batch, decision)
            case WriteReplies(write=write, terminals=terminals):
                self._write_all(
                    write,
                    [(reply_partition(each.reply_to), each) for each in terminals],
                )
            case WriteDeadLetters(write=write, letters=letters):
                self._write_all(
                    write, [((TOPICS.dead_letters(e.model), 0), e) for e in letters]
                )
            case WriteStale(write=write):
                stale = StaleWritten(
                    decision.topic, decision.partition, decision.ranges
                )
                self._write_all(write, [(COMPLETIONS, stale)])
            case Commit():
                self._commit(decision)
            case DropLane():
                self._drop()
            case Rejoin():
                self.after(self.world.latency_us(), self._rejoin)
            case ReadKeys():
                self.after(200 * MS, partial(self._tell_keys, self._term))
            case Alarm(event=event):
                self.world.alarms.append(event)
            case Cancelled():
                pass  # its record is the evidence
            case _:
                self._change_reading(decision)

    def _change_reading(  # noqa: C901 - the union
        self,
        decision: FetchPositions
        | ReadRequests
        | ReadOne
        | ReadCompletions
        | ReadToEnds
        | StopReading
        | PausePartition
        | ResumePartition,
    ) -> None:
        match decision:
            case FetchPositions():
                self._fetch(decision)
            case ReadRequests(positions=positions):
                for topic, number, position in positions:
                    self._readers.read((topic, number), position)
            case ReadOne(topic=topic, partition=number, offset=offset):
                self._readers.read((topic, number), offset, single=True)
            case ReadCompletions(position=position):
                self._readers.read(COMPLETIONS, position)
                self._readers.read(CLAIMS, self.world.log.end(CLAIMS))
            case ReadToEnds():
                self._ends = {COMPLETIONS: self.world.log.end(COMPLETIONS)}
                self._check_ends()
            case StopReading(partitions=partitions):
                every = list(self._readers.positions)
                for each in every if partitions is None else partitions:
                    self._readers.stop(each)
            case PausePartition(topic=topic, partition=number):
                self._readers.pause((topic, number))
            case ResumePartition(topic=topic, partition=number):
                self._readers.resume((topic, number))
            case _:
                assert_never(decision)

    def _tell_keys(self, term: int) -> None:
        if term == self._term:
            self.tell(keys_read(self.world.log.records, self.now_us()))

    def _drop(self) -> None:
        assert self.lane is not None
        assert self.lane.state is LaneState.OUT
        for partition in list(self._readers.positions):
            self._readers.stop(partition)
        self.streams.close()
        self.lane = self.scheduler = None
        self._ends = {}
        self._tick_at_us = None
        self._term += 1
        let_go, self._on_let_go = self._on_let_go, None
        if let_go is not None:
            let_go()

    def die(self) -> None:
        super().die()
        self.streams.close()
        let_go, self._on_let_go = self._on_let_go, None
        if let_go is not None:
            self.world.after(2 * SECOND, let_go)

    # -- writing

    def _claimed(self, offset: int | None) -> None:
        self.tell(ClaimWritten(offset))

    def _ended(self, term: int, write: int, offset: int | None) -> None:
        if term == self._term:
            self.tell(WriteEnded(write, offset))

    def _order(
        self, slot: int, epoch: int, record: Any, decision: WriteSync | WriteBatch
    ) -> None:
        owns = self.world.group.owner == self.instance
        self.world.history.wrote_under(self, epoch, owns=owns)
        if decision.link is not None:
            self.streams.send(decision.link, record)
            return
        on_end = partial(self._ended, self._term, decision.write)
        self._orders.produce((TOPICS.batches, slot), record, on_end, SECOND)

    def _produce(
        self,
        partition: Partition,
        record: Any,
        on_end: Callable[[int | None], None],
        timeout_us: int,
    ) -> None:
        term = self._term

        def end(offset: int | None) -> None:
            if term == self._term:
                on_end(offset)

        self._answers.produce(partition, record, end, timeout_us)

    def _write_all(self, write: int, records: list[tuple[Partition, Any]]) -> None:
        left = len(records)
        offsets: list[int | None] = []

        def on_end(offset: int | None) -> None:
            nonlocal left
            left -= 1
            offsets.append(offset)
            if not left:
                acked = None not in offsets
                self.tell(WriteEnded(write, offsets[-1] if acked else None))

        for partition, record in records:
            self._produce(partition, record, on_end, 2 * SECOND)

    def _commit(self, commit: Commit) -> None:
        term = self._term

        def on_end(outcome: CommitOutcome) -> None:
            if outcome is CommitOutcome.FENCED:
                self.die()
            elif term == self._term:
                self.tell(CommitEnded(commit.commit, outcome))

        self.world.group.commit(self, commit.entries, on_end)

    def _fetch(self, fetch: FetchPositions) -> None:
        term = self._term
        log, group = self.world.log, self.world.group

        def answer() -> None:
            if term != self._term:
                return
            models = ("m",) if fetch.models is None else fetch.models
            states = []
            for model in models:
                for priority in Priority:
                    topic = TOPICS.requests(model)
                    number = Topics.request_partition(0, priority)
                    partition = (topic, number)
                    committed, metadata = group.committed.get(partition, (None, ""))
                    state = PartitionState(
                        topic, number, 0, log.end(partition), committed, metadata
                    )
                    states.append(state)
            end = log.end(COMPLETIONS)
            self.after(
                self.world.latency_us(),
                lambda: self._answer(term, PositionsFetched(tuple(states), 0, end)),
            )

        self.after(self.world.latency_us(), answer)

    def _answer(self, term: int, event: PositionsFetched) -> None:
        if term == self._term:
            self.tell(event)

    # -- reading

    def _take(self, partition: Partition, offset: int, record: Any) -> None:
        if isinstance(record, Ask) and record.kind == LETHAL:
            self.world.deaths[record.id] += 1
            self.world.kill_former(self.instance)
            return
        self.tell(self._decode(partition, offset, record))
        self._check_ends()

    def _check_ends(self) -> None:
        position = self._readers.positions.get(COMPLETIONS)
        if self._ends and (position is None or position >= self._ends[COMPLETIONS]):
            self._ends = {}

    def _decode(self, partition: Partition, offset: int, record: Any) -> Event:
        if partition == COMPLETIONS:
            return Completed(offset, record)
        if partition == CLAIMS:
            return ClaimSeen(offset) if record != self.uuid else Ticked()
        return record_read(record, Source(*partition, offset), self)
