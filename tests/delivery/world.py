"""A whole lane in one process and virtual time: log, group, formers and workers around
the production decision objects, with faults drawn from a seed.

Every promise that can be broken at an instant is checked at that instant
(:class:`History`); after the faults stop, ``check_end`` demands that everything has
ended well. A failure is repeated by its seed alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random

from headrace.delivery import LaneLimits, LaneState
from headrace.delivery.events import SlotHeard, StatusAdvanced
from headrace.domain import Priority, Reason, ReplyAddress
from headrace.wire.topics import Topics
from tests.delivery.broker import Coordinator, Log
from tests.delivery.builders import MS, SECOND, TOPICS, a_version
from tests.delivery.former_process import FormerProcess
from tests.delivery.history import Ask, History
from tests.delivery.process import Process
from tests.delivery.worker_process import WorkerProcess

__all__ = ["Faults", "World"]

FAULTS_UNTIL_US = 8 * SECOND
HEALED_US = 90 * SECOND
"""By then everything has ended after the last fault: a lease of an unknown batch
(30 s), attempts with their backoff, and a session."""

KINDS = (
    "former_kill",
    "former_freeze",
    "worker_kill",
    "worker_freeze",
    "worker_replace",
    "worker_restart",
    "produce",
    "move",
    "slow_run",
    "slow_status",
    "reread",
)


class Faults:
    """Which kinds strike in this run, and how often."""

    def __init__(self, world: World, kinds: frozenset[str], strikes: int) -> None:
        self._world = world
        self.kinds = kinds
        self.strikes = strikes
        self.is_over = False
        self.struck = 0
        """Faults that can cost an attempt."""

    def plan(self) -> None:
        """Spread the strikes over the time of faults."""
        world = self._world
        singles = sorted(self.kinds - {"produce", "slow_run", "reread"})
        for _ in range(self.strikes if singles else 0):
            kind = world.random.choice(singles)
            at_us = world.random.randrange(200 * MS, FAULTS_UNTIL_US)
            world.at(at_us, partial(self._strike, kind))
        world.at(FAULTS_UNTIL_US, self._end)

    def produce_fate(self) -> str:
        if self.is_over or "produce" not in self.kinds:
            return "acked"
        if self._world.random.random() > 0.03 or self.struck >= self.strikes:
            return "acked"
        self.struck += 1
        return self._world.random.choice(["lost", "unacked"])

    def rereads(self) -> bool:
        return "reread" in self.kinds and self._world.random.random() < 0.05

    def run_us(self) -> int:
        random = self._world.random
        if not self.is_over and "slow_run" in self.kinds and random.random() < 0.05:
            self.struck += 1
            return random.randrange(300 * MS, 3 * SECOND)
        return random.randrange(2 * MS, 15 * MS)

    def _strike(self, kind: str) -> None:
        world = self._world
        self.struck += 1
        match kind:
            case "former_kill":
                world.kill_former(world.random.randrange(len(world.formers)))
            case "former_freeze":
                self._freeze(world.random.choice(world.formers))
            case "worker_kill":
                worker = world.random.choice(world.workers)
                if not worker.is_dead:
                    world.worker_ended(worker, "signal:KILL")
            case "worker_freeze":
                self._freeze(world.random.choice(world.workers))
            case "worker_replace":
                worker = world.random.choice(world.workers)
                self._freeze(worker)
                world.start_worker(worker.slot, "")
            case "worker_restart":
                world.random.choice(world.workers).drain()
            case "move":
                world.group.move()
            case "slow_status":
                world.status_slow_until_us = world.now_us + world.random.randrange(
                    2 * SECOND
                )
            case _:
                raise AssertionError(kind)

    def _freeze(self, process: Process) -> None:
        if process.silent_since_us is None:
            process.freeze()
            self._world.frozen.append(process)
            freeze_us = self._world.random.randrange(100 * MS, 6 * SECOND)
            self._world.after(freeze_us, process.thaw)

    def _end(self) -> None:
        self.is_over = True
        for process in self._world.frozen:
            process.thaw()


class World:
    """One lane, ``formers`` former instances, ``slots`` worker slots."""

    def __init__(
        self,
        seed: int,
        *,
        kinds: frozenset[str] | None = None,
        strikes: int | None = None,
        limits: LaneLimits | None = None,
    ) -> None:
        self.seed = seed
        self.random = random = Random(seed)
        self.now_us = SECOND
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._ids = count()
        self.alarms: list[str] = []
        self.history = History()
        self.log = Log(self)
        self.group = Coordinator(self)
        self.slots = random.randint(1, 3)
        self.batch_max = random.randint(1, 4)
        self.limits = limits or LaneLimits(cap=random.randint(1, 2))
        self.version = a_version(
            slots=frozenset(range(self.slots)), run_us={1: 20 * MS, 4: 40 * MS}
        )
        drawn = frozenset(kind for kind in KINDS if random.random() < 0.5)
        self.faults = Faults(
            self,
            drawn if kinds is None else kinds,
            random.randint(1, 8) if strikes is None else strikes,
        )
        self.status_slow_until_us = 0
        self.frozen: list[Process] = []
        self.formers: list[FormerProcess] = []
        self.workers: list[WorkerProcess] = []
        self._status_at_us = 0

    # -- time

    def at(self, instant_us: int, action: Callable[[], None]) -> None:
        heappush(
            self._agenda, (max(instant_us, self.now_us), next(self._order), action)
        )

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        self.at(self.now_us + delay_us, action)

    def latency_us(self) -> int:
        return self.random.randrange(500, 4 * MS)

    def next_id(self) -> int:
        return next(self._ids)

    # -- life

    def start(self, asks: int) -> None:
        for instance in range(2):
            self.formers.append(self._start_former(instance))
        for slot in range(self.slots):
            self.workers.append(WorkerProcess(self, slot, ""))
            self.workers[slot].start()
        for _ in range(asks):
            self.at(self.random.randrange(FAULTS_UNTIL_US), self._ask)
        self.after(500 * MS, self._check_sessions)
        self.faults.plan()

    def run(self) -> None:
        """Until everything has ended, or the time for it is over."""
        checked_us = FAULTS_UNTIL_US + SECOND
        until_us = FAULTS_UNTIL_US + HEALED_US
        while self._agenda and self.now_us < until_us:
            self.now_us, _, action = heappop(self._agenda)
            action()
            if self.now_us > checked_us:
                checked_us = self.now_us + SECOND
                if self.unfinished() is None:
                    return

    def kill_former(self, instance: int) -> None:
        self.formers[instance].die()
        self.formers[instance] = self._start_former(instance)

    def worker_crashed(self, worker: WorkerProcess) -> None:
        self.worker_ended(worker, "signal:SEGV")

    def worker_ended(self, worker: WorkerProcess, how: str) -> None:
        """The supervisor watches the process that it started last."""
        worker.die()
        if self.workers[worker.slot] is worker:
            restart = partial(self.start_worker, worker.slot, how)
            self.after(self.random.randrange(100, 2_000) * MS, restart)

    def start_worker(self, slot: int, previous_exit: str) -> None:
        self.workers[slot] = WorkerProcess(self, slot, previous_exit)
        self.workers[slot].start()

    def beat(self, process: Process) -> None:
        """A heartbeat of ``process`` is appended to status and read by every former."""
        log_us = self.now_us
        event: SlotHeard | StatusAdvanced = StatusAdvanced(log_us)
        if isinstance(process, WorkerProcess):
            if process.core.incarnation is None:
                return
            event = SlotHeard(process.slot, process.core.incarnation, log_us)
        arrives_us = max(self.now_us + self.latency_us(), self._status_at_us)
        if self.now_us < self.status_slow_until_us:
            arrives_us = max(arrives_us, self.status_slow_until_us)
        self._status_at_us = arrives_us
        for former in self.formers:
            if not former.is_dead:
                hear = partial(former.hear, event, process)
                self.at(arrives_us, partial(former.call, hear))

    def _start_former(self, instance: int) -> FormerProcess:
        former = FormerProcess(self, instance)
        self.after(self.random.randrange(50, 400) * MS, former.start)
        return former

    def _check_sessions(self) -> None:
        self.group.check_sessions()
        for instance, former in enumerate(self.formers):
            if former.is_dead:
                self.formers[instance] = self._start_former(instance)
        self.after(500 * MS, self._check_sessions)

    # -- load

    def _ask(self) -> None:
        random = self.random
        priority = random.choice(list(Priority))
        partition = (TOPICS.requests("m"), Topics.request_partition(0, priority))
        bulk = priority is Priority.BULK
        reply_to = random.choice(
            [
                ReplyAddress(TOPICS.replies, random.randrange(2)),
                ReplyAddress(TOPICS.replies, 0),
                ReplyAddress(TOPICS.results("t", "job" if bulk else "async"), None),
                None,
            ]
        )
        kind = random.choices(["good", "poison", "breaker", "killer"], [40, 2, 2, 0.7])[
            0
        ]
        if kind == "killer":
            self.faults.struck += 2
        deadline_us = None
        if not bulk:
            deadline_us = self.now_us + random.choice([2, 10, 60]) * SECOND
        ask = Ask(
            id=f"r{self.next_id()}",
            kind=kind,
            deadline_log_us=deadline_us,
            reply_to=reply_to,
            made_by_us=random.random() < 0.8,
            is_rejected=random.random() < 0.03,
            is_overdue=not bulk and random.random() < 0.03,
        )
        self.log.append(partition, ask)
        if ask.made_by_us and random.random() < 0.1:
            self.after(random.randrange(500 * MS), partial(self._again, partition, ask))

    def _again(self, partition: tuple[str, int], ask: Ask) -> None:
        self.log.append(partition, ask)

    # -- the end

    def unfinished(self) -> str | None:
        """What has not ended yet, if anything: D12, D15 and D17."""
        owner = self.group.owner
        if owner is None:
            return "the lane has no owner"
        former = self.group.members[owner]
        lane, scheduler = former.lane, former.scheduler
        if lane is None or scheduler is None or lane.state is not LaneState.ACTIVE:
            return "the lane's owner does not work"
        for partition, asks in self.history.asked.items():
            for ask in asks:
                if ask.id not in self.history.ended:
                    return f"{ask.id} has no end"
            committed, _ = self.group.committed.get(partition, (0, ""))
            if committed != len(asks):
                return f"{partition} is committed at {committed} of {len(asks)}"
        for worker in self.workers:
            if worker.core.unfinished:
                return f"slot {worker.slot} still holds {worker.core.unfinished}"
            level = scheduler.slots.get(worker.slot)
            if level is None or level.credits_free != self.limits.cap or level.held:
                return f"slot {worker.slot} has not all its credits: {level}"
        return None

    def check_end(self) -> None:
        unfinished = self.unfinished()
        assert unfinished is None, f"seed {self.seed}: {unfinished}"
        assert "worker.cap_exceeded" not in self.alarms
        for each, reasons in self.history.errors.items():
            assert self.history.successes[each] or reasons
        if self.faults.struck < 2:
            self._check_no_fault_shows()

    def _check_no_fault_shows(self) -> None:
        """D16."""
        for reasons in (*self.history.errors.values(), *self.history.letters.values()):
            for reason in reasons:
                assert reason is not Reason.ATTEMPTS_EXHAUSTED, (
                    f"seed {self.seed}: an error with {self.faults.struck} faults"
                )
