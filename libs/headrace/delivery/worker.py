"""What a worker process does with the batches of its slot, without doing it.

The core knows nothing of models, tensors or threads. It takes or refuses what lies in
the slot's partition, lets one batch run at a time in the order of the log, and says
``done`` only when every member's reply is acked or has failed. The rules W1 to W7 that
the methods name are those of the delivery protocol (README.md beside this file).
"""

from __future__ import annotations

from collections import deque
from typing import assert_never

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
    LinkEnded,
    LinkOpened,
    ModelsReady,
    Outcome,
    PayloadsCame,
    PositionLost,
    RepliesEnded,
    ReplyStoring,
    RunEnded,
    Started,
    SyncRead,
    Ticked,
    WorkerEvent,
    WriteEnded,
)
from headrace.delivery.worker_held import HANDED_BACK, LATE, OVERDUE, Held, Phase
from headrace.delivery.worker_limits import FINISHED_KEPT, WorkerLimits
from headrace.delivery.worker_patience import RunWatch
from headrace.delivery.worker_ways import Ways
from headrace.delivery.worker_writes import Writes

__all__ = ["WorkerCore"]


class WorkerCore:
    """One worker process from its join to its end. ``handle`` after an :class:`Exit`
    returns nothing: the process is over."""

    def __init__(self, *, lane: int, limits: WorkerLimits | None = None) -> None:
        self._lane = lane
        self._limits = limits or WorkerLimits()
        self._watch = RunWatch(self._limits)
        self._ways = Ways()
        self._incarnation: int | None = None
        self._epoch = -1
        self._former = ""
        self._k: int | None = None
        self._held: dict[str, Held] = {}
        self._finished: deque[str] = deque(maxlen=FINISHED_KEPT)
        self._running: Held | None = None
        self._catching_up = 0
        self._models: frozenset[str] = frozenset()
        self._bus_heard_us: int | None = None
        self._drain_report: int | None = None
        self._quiet_at_us: int | None = None
        self._draining = False
        self._ending: WorkerExit | None = None
        self._ending_at_us = 0
        self._exited = False
        self._writes = Writes()

    @property
    def incarnation(self) -> int | None:
        """Offset of this process's join; None until it is acked."""
        return self._incarnation

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Batches taken whose done is not written yet. The others take no room: the
        former has often read a done, and sent the next batch, before its ack."""
        return tuple(
            batch for batch, held in self._held.items() if held.phase is not Phase.DONE
        )

    @property
    def awaits_acks(self) -> bool:
        """Whether the end of something that it wrote is still to be told."""
        return self._writes.are_open

    @property
    def run_limit_at_us(self) -> int | None:
        """W6: no heartbeat after this instant while the same run goes on."""
        return self._running.run_limit_at_us if self._running else None

    def handle(self, event: WorkerEvent, now_us: int) -> list[WorkerDecision]:
        """Take in one event and say what follows from it now."""
        if self._exited:
            return []
        decisions = self._take_in(event, now_us) + self._on_time(now_us)
        decisions += self._start_run(now_us)
        for index, decision in enumerate(decisions):
            if isinstance(decision, Exit):
                self._exited = True
                return decisions[: index + 1]
        return decisions

    def wakeup_at_us(self) -> int | None:
        """The next instant at which ``Ticked`` can change anything."""
        if self._exited:
            return None
        instants = [held.replies_by_us for held in self._in(Phase.REPLYING)]
        if self._ending is not None:
            instants.append(self._ending_at_us)
        elif self._running:
            instants.append(self._running.stops_at_us)
        elif not self._catching_up:
            instants += [
                held.store_waits_to_us
                for held in self._in(Phase.WAITING)
                if held.store_waits_to_us is not None
            ]
        if self._quiet_at_us is not None and not self._held:
            instants.append(self._quiet_at_us)
        return min(instants, default=None)

    def _in(self, phase: Phase) -> list[Held]:
        return [held for held in self._held.values() if held.phase is phase]

    def _take_in(  # noqa: C901 - one case for each member of the union
        self, event: WorkerEvent, now_us: int
    ) -> list[WorkerDecision]:
        match event:
            case Started():
                self._ways.position = event.end
                return [self._writes.number(WriteJoin(0))]
            case BatchRead() | SyncRead():
                return self._read(event, now_us)
            case LinkOpened():
                ended = self._ways.opened(event, self._lane, self._incarnation)
                return [EndLink(each) for each in ended]
            case LinkEnded():
                self._ways.lost(event.link)
            case RunEnded():
                return self._run_ended(event, now_us)
            case PayloadsCame(batch=batch) if batch in self._held:
                self._held[batch].store_waits_to_us = None
            case RepliesEnded() | ReplyStoring():
                return self._replies_told(event, now_us)
            case WriteEnded():
                return self._write_ended(event, now_us)
            case ModelsReady():
                self._models = event.models
            case GapNoticed():
                if self._running:
                    self._watch.start_patience(self._running, now_us)
                # Before the join nothing has been read that could be stale.
                if self._incarnation is not None:
                    self._catching_up += 1
                    return [ReadToEnd()]
            case CaughtUp():
                self._catching_up -= 1
            case HeartbeatAcked():
                self._bus_heard_us = now_us
            case PositionLost():
                return [Exit(WorkerExit.POSITION_LOST)]
            case DrainRequested():
                return self._drain(now_us)
            case GiveUp():
                return self._give_up(event.why, now_us)
            case Ticked() | PayloadsCame():
                pass
            case _:
                assert_never(event)
        return []

    # -- orders: W2, W3, W8

    def _read(self, event: BatchRead | SyncRead, now_us: int) -> list[WorkerDecision]:
        if self._ways.takes(event):
            ended = [EndLink(each) for each in self._ways.ended_by(event)]
            return [*ended, *self._taken(event, now_us)]
        return [] if event.link is None else _forgotten(event)

    def _taken(self, event: BatchRead | SyncRead, now_us: int) -> list[WorkerDecision]:
        if self._writes.has_leave:
            return []  # never taken: the leave tells
        if isinstance(event, BatchRead) and event.batch in self._held:
            return []  # a copy; its refusal would speak of the one that is held
        if isinstance(event, BatchRead) and event.batch in self._finished:
            return _forgotten(event)
        if event.lane != self._lane:
            return self._refuse(event, "lane")
        assert self._incarnation is not None
        if (event.incarnation or 0) > self._incarnation:
            return [Exit(WorkerExit.REPLACED)]
        match event:
            case SyncRead():
                return self._sync(event)
            case BatchRead():
                return self._batch(event, now_us)

    def _sync(self, sync: SyncRead) -> list[WorkerDecision]:
        if sync.epoch < self._epoch:
            return self._refuse(sync, "epoch")
        self._epoch, self._former, self._k = sync.epoch, sync.former, sync.k
        return [self._report(sync.k)]

    def _batch(self, batch: BatchRead, now_us: int) -> list[WorkerDecision]:
        if batch.incarnation != self._incarnation:
            return self._refuse(batch, "incarnation")
        if batch.epoch < self._epoch or (
            batch.epoch == self._epoch and batch.former != self._former
        ):
            return self._refuse(batch, "epoch")
        count = len(self.unfinished)
        if count >= self._limits.cap:
            alarm = Alarm("worker.cap_exceeded", {"batch": batch.batch, "held": count})
            return [*self._refuse(batch, "cap"), alarm]
        self._epoch, self._former = batch.epoch, batch.former
        self._held[batch.batch] = held = Held(batch)
        held.wait_for_store(now_us)
        if self._quiet_at_us is not None:
            self._quiet_at_us = now_us + self._limits.leave_quiet_us
        return []

    def _refuse(self, event: BatchRead | SyncRead, reason: str) -> list[WorkerDecision]:
        # Never repeated when it is lost: the former asks again.
        assert self._incarnation is not None
        what = (event.batch, 0) if isinstance(event, BatchRead) else ("", event.k)
        number = self._writes.next_number()
        refused = WriteRefused(
            number, self._incarnation, *what, reason, max(self._epoch, 0)
        )
        return [refused, *_forgotten(event)]

    def _report(self, k: int) -> WriteReport:
        assert self._incarnation is not None
        report = WriteReport(
            write=0,
            incarnation=self._incarnation,
            epoch=self._epoch,
            former=self._former,
            k=k,
            draining=self._draining,
            models=self._models,
            held=tuple(self._held),
        )
        return self._writes.number(report)

    # -- runs and replies: W4, W5

    def _start_run(self, now_us: int) -> list[WorkerDecision]:
        if self._ending is not None:
            waiting = self._in(Phase.WAITING)
            return [self._done(held, HANDED_BACK, now_us) for held in waiting]
        if self._running or self._catching_up:
            return []
        decisions: list[WorkerDecision] = []
        for held in self._in(Phase.WAITING):
            latest_us = held.read.latest_start_us
            if latest_us is not None and now_us > latest_us:
                decisions.append(self._done(held, LATE, now_us))
                continue
            if held.store_waits_to_us is not None and now_us < held.store_waits_to_us:
                continue  # who has what it needs does not wait for who has not
            held.phase = Phase.RUNNING
            self._running = held
            self._watch.start(held, now_us)
            return [*decisions, Run(held.read.batch)]
        return decisions

    def _run_ended(self, event: RunEnded, now_us: int) -> list[WorkerDecision]:
        held = self._running
        if held is None and self._ending is not None:
            return []  # too late: it was handed back
        assert held is not None, "a run ended that was not asked for"
        assert held.read.batch == event.batch, "the runner ran another batch"
        self._running = None
        outcomes = self._watch.ended(held, event)
        succeeded = held.ran(outcomes)
        if not succeeded:
            return [self._done(held, outcomes, now_us)]
        held.phase = Phase.REPLYING
        held.pending = set(succeeded)
        limits = self._limits
        wait_us = limits.result_wait_us if held.read.bulk else limits.reply_wait_us
        held.replies_by_us = now_us + wait_us
        return [WriteReplies(event.batch, succeeded)]

    def _replies_told(
        self, event: RepliesEnded | ReplyStoring, now_us: int
    ) -> list[WorkerDecision]:
        held = self._held.get(event.batch)
        if held is None or held.phase is not Phase.REPLYING:
            return []  # an ack that came after the wait: the retry's reply is second
        held.told(event)
        return [] if held.pending else [self._replied(held, now_us)]

    def _replied(self, held: Held, now_us: int) -> WriteDone:
        held.give_up()
        all_ok = held.outcomes.count(ALL_OK[0]) == len(held.outcomes)
        return self._done(held, ALL_OK if all_ok else tuple(held.outcomes), now_us)

    def _done(
        self, held: Held, outcomes: tuple[Outcome, ...], now_us: int
    ) -> WriteDone:
        assert self._incarnation is not None
        held.phase = Phase.DONE
        held.done_at_us = now_us
        batch = held.read.batch
        return self._writes.number(WriteDone(0, self._incarnation, batch, outcomes))

    # -- writes

    def _write_ended(self, event: WriteEnded, now_us: int) -> list[WorkerDecision]:
        write = self._writes.ended(event.write)
        match write:
            case None:
                return []  # a refusal
            case WriteJoin():
                return self._joined(event.offset)
            case WriteDone():
                return self._done_ended(write, event.offset)
            case WriteReport():
                return self._report_ended(event, now_us)
            case WriteLeave():
                if event.offset is None:
                    return [self._writes.number(write)]
                return [Exit(self._ending or WorkerExit.DRAINED)]
            case _:
                assert_never(write)

    def _joined(self, offset: int | None) -> list[WorkerDecision]:
        if offset is None:
            return [self._writes.number(WriteJoin(0))]
        assert self._ways.position is not None
        self._incarnation = offset
        return [StartReading(self._ways.position)]

    def _done_ended(self, write: WriteDone, offset: int | None) -> list[WorkerDecision]:
        if offset is None:
            return [self._writes.number(write)]
        del self._held[write.batch]
        self._finished.append(write.batch)
        return [Forget(write.batch)]

    def _report_ended(self, event: WriteEnded, now_us: int) -> list[WorkerDecision]:
        if event.write != self._drain_report:
            return []  # lost: the former asks again
        if event.offset is None:
            return self._drain_reported()
        self._drain_report = None
        self._quiet_at_us = now_us + self._limits.leave_quiet_us
        return []

    # -- ends: W7, the run limit, what the process cannot go on with

    def _drain(self, now_us: int) -> list[WorkerDecision]:
        if self._draining:
            return []
        self._draining = True
        if self._incarnation is None:
            return [Exit(WorkerExit.DRAINED)]
        if self._k is None:
            # No former has asked yet, so none may send a batch here.
            self._quiet_at_us = now_us
            return []
        return self._drain_reported()

    def _drain_reported(self) -> list[WorkerDecision]:
        assert self._k is not None
        report = self._report(self._k)
        self._drain_report = report.write
        return [report]

    def _give_up(self, why: WorkerExit, now_us: int) -> list[WorkerDecision]:
        """Drain without running: what waits is handed back."""
        if self._ending is not None:
            return []
        self._ending = why
        self._ending_at_us = now_us + self._limits.run_end_wait_us
        return self._drain(now_us)

    def _on_time(self, now_us: int) -> list[WorkerDecision]:
        decisions: list[WorkerDecision] = [
            self._replied(held, now_us)
            for held in self._held.values()
            if held.phase is Phase.REPLYING and now_us >= held.replies_by_us
        ]
        running = self._running if self._ending is None else None
        if running and now_us >= running.stops_at_us:
            is_over = now_us >= running.run_limit_at_us
            decisions.append(Terminate(running.read.batch, is_over))
            if is_over:
                decisions += self._give_up(WorkerExit.RUN_LIMIT, now_us)
            self._watch.stopped(running, now_us)
        decisions += self._exits(now_us)
        if self._quiet_at_us is not None and not self._held:
            decisions += self._leave(now_us)
        return decisions

    def _leave(self, now_us: int) -> list[WorkerDecision]:
        assert self._quiet_at_us is not None
        if now_us < self._quiet_at_us or self._writes.has_leave:
            return []
        assert self._incarnation is not None
        self._quiet_at_us = None
        return [self._writes.number(WriteLeave(0, self._incarnation))]

    def _exits(self, now_us: int) -> list[WorkerDecision]:
        if self._ending is not None and now_us >= self._ending_at_us:
            running, self._running = self._running, None
            if running is None:
                return [Exit(self._ending)]
            self._ending_at_us = now_us + self._limits.hand_back_wait_us
            return [self._done(running, OVERDUE, now_us)]
        # Without a timer: every acked heartbeat comes by here.
        heard_us = self._bus_heard_us
        lives = heard_us is not None and now_us - heard_us <= self._limits.bus_live_us
        if lives and any(
            now_us >= held.done_at_us + self._limits.done_unacked_us
            for held in self._in(Phase.DONE)
        ):
            return [Exit(WorkerExit.DONE_UNACKED)]
        return []


def _forgotten(order: BatchRead | SyncRead) -> list[WorkerDecision]:
    return [Forget(order.batch)] if isinstance(order, BatchRead) else []
