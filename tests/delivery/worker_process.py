"""A worker's process in the simulation: the shell around one production WorkerCore."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from headrace.delivery import WorkerCore, WorkerLimits
from headrace.delivery.worker_decisions import (
    Alarm,
    EndLink,
    Exit,
    Forget,
    ReadToEnd,
    Run,
    StartReading,
    Terminate,
    WorkerDecision,
    WorkerExit,
    WriteDone,
    WriteJoin,
    WriteLeave,
    WriteRefused,
    WriteReplies,
    WriteReport,
)
from headrace.delivery.worker_events import (
    ALL_OK,
    BatchRead,
    CaughtUp,
    DrainRequested,
    GapNoticed,
    GiveUp,
    HeartbeatAcked,
    LinkOpened,
    Outcome,
    RepliesEnded,
    RunEnded,
    Started,
    SyncRead,
    Ticked,
    WorkerEvent,
    WriteEnded,
)
from headrace.domain import (
    Completion,
    Done,
    DoneMember,
    HeldBatch,
    Joined,
    Left,
    MemberStatus,
    Refused,
    Reported,
    Setback,
)
from tests.delivery.broker import Partition, Producer
from tests.delivery.builders import MS, SECOND, TOPICS
from tests.delivery.process import Process
from tests.delivery.records import BatchRecord, OpeningRecord, Reply, SyncRecord

if TYPE_CHECKING:
    from tests.delivery.streams import Stream
    from tests.delivery.world import World

__all__ = ["WorkerProcess"]

COMPLETIONS: Partition = (TOPICS.completions, 0)
MODEL_ERROR = Outcome(MemberStatus.RETRY, "model_error", "the model raised")
POISON = Outcome(MemberStatus.FINAL, "poison", "not what the model takes")
OUT_OF_MEMORY = Outcome(MemberStatus.RETRY, Setback.OOM, "no memory")
DEVICE = Outcome(MemberStatus.RETRY, Setback.DEVICE, "the device is lost")
RUN_LIMIT = Outcome(MemberStatus.RETRY, Setback.RUN_LIMIT, "it was stopped")
OK = ALL_OK[0]


def limits_of(world: World) -> WorkerLimits:
    return WorkerLimits(
        cap=world.limits.cap,
        run_min_us=4 * SECOND,
        run_end_wait_us=SECOND,
        hand_back_wait_us=SECOND,
    )


class WorkerProcess(Process):
    """One start of the worker in ``slot``."""

    def __init__(self, world: World, slot: int, previous_exit: str) -> None:
        super().__init__(world)
        self.slot = slot
        self.previous_exit = previous_exit
        self.core = WorkerCore(lane=0, limits=limits_of(world))
        self._partition = (TOPICS.batches, slot)
        self._facts = Producer(world, self)
        self._replies = Producer(world, self)
        self._kept: dict[str, BatchRecord] = {}
        self._ran_us: dict[str, int] = {}
        self._ended: set[str] = set()
        self._position: int | None = None
        self._read_to: int | None = None
        self._tick_at_us: int | None = None
        self._reader = partial(self.call, self._poll)
        self.streams: list[Stream] = []
        """Of formers that have connected."""

    def start(self) -> None:
        self.after(self.world.latency_us(), self._start)
        self.after(0, self._beat)

    def drain(self) -> None:
        self.call(partial(self.tell, DrainRequested()))

    def die(self) -> None:
        super().die()
        self.world.log.unsubscribe(self._partition, self._reader)
        for stream in self.streams:
            stream.ended()

    def woke(self, frozen_us: int) -> None:
        if frozen_us > 500 * MS:
            self.tell(GapNoticed())

    def _start(self) -> None:
        self.tell(Started(self.world.log.end(self._partition)))

    def _beat(self) -> None:
        overdue_at_us = self.core.run_limit_at_us
        if overdue_at_us is None or self.now_us() < overdue_at_us:
            self.world.beat(self)
            self.tell(HeartbeatAcked())
        self.after(250 * MS, self._beat)

    def tell(self, event: WorkerEvent) -> None:
        if self.is_dead:
            return
        for decision in self.core.handle(event, self.now_us()):
            self._carry_out(decision)
            if self.is_dead:
                return
        self._schedule_tick()

    def _schedule_tick(self) -> None:
        wakeup_us = self.core.wakeup_at_us()
        if wakeup_us is None:
            return
        at_us = max(wakeup_us, self.now_us())
        if self._tick_at_us is None or at_us < self._tick_at_us:
            self._tick_at_us = at_us
            self.after(at_us - self.now_us(), self._tick)

    def _tick(self) -> None:
        if self._tick_at_us is not None and self._tick_at_us <= self.now_us():
            self._tick_at_us = None
            self.tell(Ticked())

    # -- what the core wants

    def _carry_out(  # noqa: C901 - one case for each member of the union
        self, decision: WorkerDecision
    ) -> None:
        match decision:
            case WriteJoin(write=write):
                self._say(write, Joined(self.slot, self.previous_exit))
            case WriteReport():
                self._say(decision.write, self._report(decision))
            case WriteRefused():
                refused = Refused(
                    decision.batch,
                    decision.k,
                    self.slot,
                    decision.incarnation,
                    decision.reason,
                    decision.epoch_seen,
                )
                self._say(decision.write, refused)
            case WriteDone():
                self._say(decision.write, self._done(decision))
            case WriteLeave():
                self._say(decision.write, Left(self.slot, decision.incarnation))
            case StartReading(position=position):
                self._position = position
                self.world.log.subscribe(self._partition, self._reader)
                self.after(self.world.latency_us(), self._poll)
            case ReadToEnd():
                self._read_to = self.world.log.end(self._partition)
                self.after(self.world.latency_us(), self._poll)
            case Run(batch=batch):
                self._run(batch)
            case WriteReplies(batch=batch, members=members):
                self._write_replies(batch, members)
            case Terminate(batch=batch):
                self._stop_run(batch)
            case Forget():
                pass
            case EndLink(link=link):
                for stream in self.streams:
                    if stream.number == link:
                        stream.ended()
            case Exit(why=why):
                self.world.worker_ended(self, f"exit:{why}")
            case Alarm(event=event):
                self.world.alarms.append(event)
            case _:
                assert_never(decision)

    def _say(self, write: int, completion: Completion) -> None:
        def on_end(offset: int | None) -> None:
            self.tell(WriteEnded(write, offset))

        self._facts.produce(COMPLETIONS, completion, on_end, 2 * SECOND)

    def _report(self, decision: WriteReport) -> Reported:
        held = tuple(
            HeldBatch(batch, tuple(r.source for r in self._kept[batch].members))
            for batch in decision.held
        )
        return Reported(
            slot=self.slot,
            incarnation=decision.incarnation,
            epoch=decision.epoch,
            former=decision.former,
            k=decision.k,
            draining=decision.draining,
            models=decision.models,
            held=held,
        )

    def _done(self, decision: WriteDone) -> Done:
        members = self._kept[decision.batch].members
        outcomes = decision.outcomes
        if len(outcomes) == 1:
            outcomes *= len(members)
        return Done(
            batch=decision.batch,
            slot=self.slot,
            incarnation=decision.incarnation,
            rows=len(members),
            wait_us=0,
            run_us=self._ran_us.get(decision.batch, 0),
            members=tuple(
                DoneMember(
                    request.source,
                    request.id,
                    outcome.status,
                    outcome.reason,
                    outcome.text,
                )
                for request, outcome in zip(members, outcomes, strict=True)
            ),
        )

    # -- the device

    def _run(self, batch: str) -> None:
        members = self._kept[batch].members
        kinds = [bytes(request.tensors[0]).decode() for request in members]
        for request in members:
            self.world.history.runs[request.id] += 1
        run_us = self.world.faults.run_us()
        if "killer" in kinds:
            self.after(run_us // 2, partial(self.world.worker_crashed, self))
            return
        if {"sleeper", "stone"} & set(kinds):
            return  # until it is stopped, if it can be
        outcomes: tuple[Outcome, ...] = ALL_OK
        if "poison" in kinds:
            outcomes = tuple(POISON if kind == "poison" else OK for kind in kinds)
        if "breaker" in kinds:
            outcomes = (MODEL_ERROR,)
        if "hog" in kinds or len(kinds) > self.world.memory_rows:
            outcomes = (OUT_OF_MEMORY,)
        if "lethal" in kinds:
            outcomes = (DEVICE,)
            lost = GiveUp(WorkerExit.DEVICE_LOST)
            self.after(run_us, partial(self.tell, lost))
        self._ran_us[batch] = run_us
        ended = RunEnded(batch, run_us, outcomes)
        self.after(run_us, partial(self._run_ended, ended))

    def _stop_run(self, batch: str) -> None:
        kinds = {bytes(each.tensors[0]) for each in self._kept[batch].members}
        if b"stone" not in kinds:
            ended = RunEnded(batch, SECOND, (RUN_LIMIT,))
            self.after(self.world.latency_us(), partial(self._run_ended, ended))

    def _run_ended(self, ended: RunEnded) -> None:
        """Once, whether by itself or because it was told to."""
        if ended.batch not in self._ended:
            self._ended.add(ended.batch)
            self.tell(ended)

    def _write_replies(self, batch: str, members: tuple[int, ...]) -> None:
        requests = self._kept[batch].members
        groups: dict[Any, list[int]] = {}
        for member in members:
            groups.setdefault(requests[member].reply_to, []).append(member)
        for reply_to, own in groups.items():
            indexes = tuple(own)
            if reply_to is None:
                self.call(partial(self.tell, RepliesEnded(batch, indexes, acked=True)))
                continue

            def on_end(offset: int | None, indexes: tuple[int, ...] = indexes) -> None:
                self.tell(RepliesEnded(batch, indexes, acked=offset is not None))

            reply = Reply(
                ids=tuple(requests[member].id for member in own),
                sources=tuple(requests[member].source for member in own),
            )
            partition = (reply_to.topic, reply_to.partition or 0)
            self._replies.produce(partition, reply, on_end, 2 * SECOND)

    # -- the slot's partition

    def _poll(self) -> None:
        records = self.world.log.records[self._partition]
        if self._position is not None and self.world.faults.rereads():
            self._position = max(0, self._position - 2)
        while self._position is not None and self._position < len(records):
            offset = self._position
            self._position += 1
            self.take_in(records[offset], offset)
            if self.is_dead:
                return
        read_to = self._read_to
        if read_to is not None and self._position is not None:
            self._read_to = None
            self.tell(CaughtUp())

    def take_in(
        self, record: Any, offset: int = -1, link: Stream | None = None
    ) -> None:
        """What lies at ``offset`` of the partition, or came by ``link``."""
        number = None if link is None else link.number
        match record:
            case OpeningRecord(epoch, former, k, incarnation):
                assert number is not None
                self.tell(LinkOpened(number, 0, epoch, former, k, incarnation))
            case SyncRecord(epoch, former, k, incarnation):
                read = SyncRead(offset, 0, epoch, former, k, incarnation, number)
                self.tell(read)
            case BatchRecord():
                late_us = record.latest_start_log_us
                batch = BatchRead(
                    offset=offset,
                    batch=record.batch,
                    lane=0,
                    epoch=record.epoch,
                    former=record.former,
                    incarnation=record.incarnation,
                    members=len(record.members),
                    model="m",
                    version="1",
                    padded_rows=len(record.members),
                    latest_start_us=None if late_us is None else self.mono_us(late_us),
                    bulk=False,
                    predicted_us=self.world.run_us[1],
                    link=number,
                )
                self._kept[record.batch] = record
                self.tell(batch)
                cap = self.world.limits.cap
                assert len(self.core.unfinished) <= cap, "more batches than credit"
            case _:
                raise AssertionError(record)
