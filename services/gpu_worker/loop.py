"""The thread that replies: owns the delivery core and does what it decides.

Threads that fetch, the one that runs and the one that hears of acks come in for a
moment too: what is next is decided there and then, without the 30 to 60 µs that it
takes to wake another thread, and only what can wait is left to the loop.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple, assert_never

from headrace.clock import Clock
from headrace.delivery import WorkerCore
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
    DrainRequested,
    GapNoticed,
    GiveUp,
    PayloadsCame,
    RepliesEnded,
    ReplyStoring,
    RunEnded,
    SyncRead,
    Ticked,
    WorkerEvent,
)
from headrace.domain import (
    Done,
    HeldBatch,
    Joined,
    Left,
    Refused,
    Reported,
)
from headrace.lifecycle import DrainFlag, Health, Pulse
from headrace.telemetry import Log, WorkerMetrics
from headrace.wire import encode_completion, encode_done
from services.gpu_worker.control import ControlWriter
from services.gpu_worker.counting import RunCounts
from services.gpu_worker.fetching import Fetcher
from services.gpu_worker.fitness import FitnessWatch
from services.gpu_worker.jobs import Job, Runnable
from services.gpu_worker.linked import Linked
from services.gpu_worker.orders import BatchFetched
from services.gpu_worker.replying import Replier
from services.gpu_worker.running import Runner
from services.gpu_worker.together import Together

__all__ = ["JOINED", "Inbox", "Loop", "Parts", "Ran", "Surroundings", "Vitals"]

GAP_US = 500_000
"""D5: a turn longer than this may have missed anything."""

WAIT_US_MAX = 100_000

ACK_WAIT_US = 20_000
"""So often the loop asks for acks of what the former is told. No thread waits for them:
of a done nothing hangs on its ack, and the next run wakes the loop sooner than this."""

HOLDING_WAIT_US = 1_000
"""Where what the former is to be told waits for acks."""

DRAIN_US_MAX = 15_000_000
"""A drain that takes longer is given up: what is held is retried elsewhere."""

JOINED = "joined"
"""What ``/readyz`` awaits from the loop."""


class Ran(NamedTuple):
    """A job has run, and the core knows: these members' replies can be written."""

    job: Job
    succeeded: tuple[int, ...]


Message = WorkerEvent | Ran
Inbox = SimpleQueue[Message]


class Parts(NamedTuple):
    """What the loop acts through."""

    core: WorkerCore
    fetcher: Fetcher
    linked: Linked
    runner: Runner
    replier: Replier
    control: ControlWriter
    fitness: FitnessWatch


class Surroundings(NamedTuple):
    """What the process is, and where it says how it is."""

    slot: int
    previous_exit: str
    health: Health
    pulse: Pulse
    clock: Clock
    log: Log
    metrics: WorkerMetrics


class Vitals(NamedTuple):
    """What the heartbeat says of the core."""

    incarnation: int | None = None
    run_limit_at_us: int | None = None


class Loop:
    """Runs until the core says that the process is over."""

    def __init__(self, inbox: Inbox, parts: Parts, process: Surroundings) -> None:
        self._inbox = inbox
        self._parts = parts
        self._process = process
        self._core = parts.core
        self._clock = process.clock
        self._lock = threading.Lock()
        """Held while the core decides and its decisions are carried out."""
        self._counts = RunCounts(process.metrics, process.log)
        self._jobs: dict[str, Job] = {}
        self._together: Together[Ran] = Together()
        """The run thread's."""

        self._end: WorkerExit | None = None
        self._turned_us = self._clock.now_us()
        self.vitals = Vitals()

    def held(self) -> set[Runnable]:
        """The versions that batches here still need; any thread may ask."""
        jobs = list(self._jobs.values())
        return {job.runnable for job in jobs if job.runnable is not None}

    def run(self, drain: DrainFlag) -> WorkerExit:
        now_us = self._clock.now_us()
        drained_by_us: int | None = None
        while drained_by_us is None or now_us < drained_by_us:
            waited_us = self._wait_us(now_us)
            messages = self._take(waited_us)
            before_us, now_us = now_us, self._clock.now_us()
            self._turned_us = now_us
            self._process.pulse.beat()
            self._parts.fitness.tick()
            events: list[Message] = messages or [Ticked()]
            if now_us - before_us > waited_us + GAP_US:
                self._process.log.warning("loop.paused", us=now_us - before_us)
                events.insert(0, GapNoticed())
            if drain.is_set() and drained_by_us is None:
                drained_by_us = now_us + DRAIN_US_MAX
                self._process.health.drain()
                self._process.log.info("drain.started", held=len(self._jobs))
                events.append(DrainRequested())
            for event in events:
                self._take_in(event)
            self._parts.replier.send()
            with self._lock:
                self._take_acks()
                self.vitals = Vitals(self._core.incarnation, self._core.run_limit_at_us)
            if self._end is not None:
                return self._end
            self._process.metrics.held.set(len(self._jobs))
        self._process.log.error("drain.ended", held=len(self._jobs))
        return WorkerExit.DRAINED

    def _wait_us(self, now_us: int) -> int:
        with self._lock:
            wakeup_us = self._core.wakeup_at_us()
            wait_us = ACK_WAIT_US if self._core.awaits_acks else WAIT_US_MAX
            if self._parts.control.is_holding:
                wait_us = HOLDING_WAIT_US
        if wakeup_us is None:
            return wait_us
        return min(max(wakeup_us - now_us, 0), wait_us)

    def _take(self, wait_us: int) -> list[Message]:
        messages: list[Message] = []
        with suppress(Empty):
            messages.append(self._inbox.get(timeout=max(wait_us, 1) / 1e6))
        while not self._inbox.empty():
            messages.append(self._inbox.get_nowait())
        return messages

    def take_order(self, order: WorkerEvent | BatchFetched) -> None:
        """For the threads that fetch, which tell what they read in its order."""
        with self._lock:
            self._look_for_gap()
            if isinstance(order, SyncRead):
                # Its answer says what is held, which acks that lie here lessen.
                self._take_acks()
            if isinstance(order, BatchFetched):
                # A batch that is read twice keeps the job that may be running.
                self._jobs.setdefault(order.read.batch, order.job)
                coming = order.job.coming
                self._decide(order.read)
                if coming is not None and coming.is_over:
                    self._decide(PayloadsCame(order.read.batch))
                return
            self._decide(order)

    def payloads_came(self, batch: str) -> None:
        """For the store's threads; of a batch that is not known yet nothing is said."""
        with self._lock:
            self._look_for_gap()
            self._decide(PayloadsCame(batch))

    def replies_told(self, told: Sequence[RepliesEnded | ReplyStoring]) -> None:
        """For whichever thread hears of it; the former is told at once, and of all that
        is done together: made first, the records then share a produce request."""
        for each in told:
            match each:
                case RepliesEnded(batch, members, acked=False) if batch in self._jobs:
                    self._counts.unacked(self._jobs[batch], len(members))
        done: list[tuple[int, bytes]] = []
        with self._lock:
            self._look_for_gap()
            now_us = self._clock.now_us()
            for each in told:
                for decision in self._core.handle(each, now_us):
                    if isinstance(decision, WriteDone):
                        done.append((decision.write, self._done(decision)))
                        continue
                    self._write_done(done)
                    self._carry_out(decision)
            self._write_done(done)

    def run_ended(self, job: Job) -> Job | None:
        """For the run thread: the job to run next, if there is one."""
        following: Job | None = None
        succeeded: tuple[int, ...] = ()
        why = self._parts.fitness.ran(job)
        with self._lock:
            self._look_for_gap()
            if why is not None:
                self._decide(GiveUp(why))
            ended = RunEnded(job.batch.batch, job.run_us, job.outcomes)
            for decision in self._core.handle(ended, self._clock.now_us()):
                match decision:
                    case Run(batch):
                        following = self._jobs[batch]
                    case WriteReplies(_, members):
                        succeeded = members
                    case _:
                        self._carry_out(decision)
        next_us = None
        if job.is_bulk and following and following.is_bulk and not following.coming:
            # For any other an ingress waits, or it waits for a store itself.
            next_us = following.batch.predicted_us
        ran = Ran(job, succeeded)
        for each in self._together.add(ran, job.run_us, next_us):
            self._inbox.put(each)
        return following

    def _take_in(self, message: Message) -> None:
        match message:
            case Ran(job, succeeded):
                worker = f"{self._process.slot}/{self._core.incarnation}"
                self._parts.replier.write(job, succeeded, worker)
                self._counts.ran(job)
            case _:
                with self._lock:
                    self._decide(message)

    def _decide(self, event: WorkerEvent) -> None:
        for decision in self._core.handle(event, self._clock.now_us()):
            self._carry_out(decision)

    def _take_acks(self) -> None:
        for write in self._parts.control.ended():
            self._decide(write)

    def _look_for_gap(self) -> None:
        """D5, for whoever wakes up before the loop does."""
        now_us = self._clock.now_us()
        if now_us - self._turned_us > WAIT_US_MAX + GAP_US:
            self._turned_us = now_us
            self._decide(GapNoticed())

    def _carry_out(self, decision: WorkerDecision) -> None:
        match decision:
            case Run(batch):
                self._parts.runner.run(self._jobs[batch])
            case Exit(why):
                self._end = why
                self._inbox.put(Ticked())
            case StartReading(position):
                self._joined(position)
            case ReadToEnd():
                self._parts.fetcher.read_to_end()
            case Terminate():
                self._stop_run(decision)
            case Forget(batch):
                self._jobs.pop(batch, None)
            case EndLink(link):
                self._parts.linked.end(link)
            case WriteReplies():
                raise AssertionError("only a run's end leads to replies")
            case Alarm(event, facts):
                self._process.log.error("worker.cap_exceeded", alarm=event, **facts)
            case _:
                self._write(decision)

    def _stop_run(self, decision: Terminate) -> None:
        job = self._jobs[decision.batch]
        if decision.is_over:
            self._process.log.error("run.limit_passed", batch=decision.batch)
        elif not job.must_stop:
            self._process.log.warning("run.stopped", batch=decision.batch)
        self._parts.runner.stop_run(job)

    def _write_done(self, done: list[tuple[int, bytes]]) -> None:
        for number, completion in done:
            self._parts.control.write(number, completion)
        done.clear()

    def _joined(self, position: int) -> None:
        self._parts.fetcher.read_from(position)
        self._process.health.met(JOINED)
        self._process.log.info(
            "slot.joined", incarnation=self._core.incarnation, position=position
        )

    def _write(
        self, decision: WriteJoin | WriteReport | WriteRefused | WriteDone | WriteLeave
    ) -> None:
        slot = self._process.slot
        match decision:
            case WriteDone(number):
                self._parts.control.write(number, self._done(decision))
                return
            case WriteJoin(number):
                completion: Joined | Reported | Refused | Left = Joined(
                    slot,
                    self._process.previous_exit,
                    os.getpid(),
                    socket.gethostname(),
                )
            case WriteReport(number):
                completion = self._reported(decision)
            case WriteRefused(number, incarnation, batch, k, reason, epoch_seen):
                self._process.metrics.refused.labels(reason).inc()
                self._process.log.warning(
                    "batch.refused", batch=batch, k=k, reason=reason, seen=epoch_seen
                )
                completion = Refused(batch, k, slot, incarnation, reason, epoch_seen)
            case WriteLeave(number, incarnation):
                completion = Left(slot, incarnation)
            case _:
                assert_never(decision)
        self._parts.control.write(number, encode_completion(completion))

    def _reported(self, report: WriteReport) -> Reported:
        held = (self._jobs[batch].batch for batch in report.held)
        return Reported(
            slot=self._process.slot,
            incarnation=report.incarnation,
            epoch=report.epoch,
            former=report.former,
            k=report.k,
            draining=report.draining,
            models=report.models,
            held=tuple(HeldBatch(each.batch, tuple(each.sources)) for each in held),
        )

    def _done(self, done: WriteDone) -> bytes:
        job = self._jobs[done.batch]
        batch = job.batch
        facts = Done(
            batch=batch.batch,
            slot=self._process.slot,
            incarnation=done.incarnation,
            rows=sum(batch.rows),
            wait_us=job.wait_us,
            run_us=job.run_us,
            members=(),
            input_us=job.input_us,
            output_us=job.output_us,
            model=batch.model,
            version=batch.version,
            order=job.order,
        )
        return encode_done(facts, batch.sources, batch.ids, done.outcomes)
