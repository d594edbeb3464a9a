"""A whole lane in one process and virtual time: log, group, formers and workers around
the production decision objects, with faults drawn from a seed.

Every promise that can be broken at an instant is checked at that instant
(:class:`History`); after the faults stop, ``check_end`` demands that everything has
ended well. A failure is repeated by its seed alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random

from headrace.delivery import LaneLimits, LaneState
from headrace.delivery.events import SlotHeard, StatusAdvanced
from headrace.domain import Priority, Reason, ReplyAddress, Scheduler
from headrace.wire.kept import is_keyed
from headrace.wire.topics import Topics
from tests.delivery.broker import Coordinator, Log
from tests.delivery.builders import MS, SECOND, TOPICS, a_version
from tests.delivery.faults import FAULTS_UNTIL_US, KINDS, Faults
from tests.delivery.former_process import FormerProcess
from tests.delivery.history import History
from tests.delivery.process import Process
from tests.delivery.records import LETHAL, Ask, Cancel
from tests.delivery.scheduler import FifoScheduler
from tests.delivery.worker_process import WorkerProcess

__all__ = ["World"]

HEALED_US = 90 * SECOND
"""By then everything has ended after the last fault: a lease of an unknown batch
(30 s), attempts with their backoff, and a session."""


class World:
    """One lane, two or three formers, up to three worker slots."""

    def __init__(
        self,
        seed: int,
        *,
        kinds: frozenset[str] | None = None,
        strikes: int | None = None,
        wreckers: bool = True,
        cancels: float = 0.1,
        keyed: float = 0.15,
        lethal: int = 0,
        run_us: tuple[int, int] = (2 * MS, 15 * MS),
        limits: LaneLimits | None = None,
        policy: Callable[[Iterator[str]], Scheduler] | None = None,
        is_fused: bool | None = None,
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
            slots=frozenset(range(self.slots)), run_us={1: run_us[1], 4: run_us[1]}
        )
        drawn = frozenset(kind for kind in KINDS if random.random() < 0.5)
        self.faults = Faults(
            self,
            drawn if kinds is None else kinds,
            random.randint(1, 8) if strikes is None else strikes,
        )
        self.is_fused = random.random() < 0.5 if is_fused is None else is_fused
        """All on one machine, and batches go by links where they can."""

        self._wreckers = wreckers
        self._cancels = cancels
        self._keyed = keyed
        self._lethal = lethal
        """Requests still to come that kill whichever former reads them."""
        self.deaths = Counter[str]()
        """Of formers, at each request that kills them."""
        self._policy = policy
        self.run_us = run_us
        self.memory_rows = random.choice([1, 2, 4]) if wreckers else 4
        """Larger batches run out of memory."""
        self.status_slow_until_us = 0
        self.status_stopped_until_us = 0
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

    def new_policy(self, batch_ids: Iterator[str]) -> Scheduler:
        """The scheduler of a lane just taken."""
        if self._policy is not None:
            return self._policy(batch_ids)
        return FifoScheduler(batch_ids, batch_max=self.batch_max, p99_us=self.run_us[1])

    # -- life

    def start(self, asks: int) -> None:
        for instance in range(self.random.randint(2, 3)):
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
        if self.now_us < self.status_stopped_until_us:
            return
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

    def _ask_by_key(self) -> None:
        """A few requests with one key, perhaps of different priorities."""
        random = self.random
        number = self.next_id()
        ask = Ask(
            id=f"{number:012x}8{number:019x}",
            deadline_log_us=self.now_us + random.choice([2, 10, 60]) * SECOND,
            reply_to=ReplyAddress(TOPICS.results("t", "keyed"), None),
        )
        for _ in range(random.randint(1, 4)):
            priority = random.choice(list(Priority))
            number = Topics.request_partition(0, priority)
            again = partial(self._again, (TOPICS.requests("m"), number), ask)
            self.after(random.randrange(4 * SECOND), again)

    def _ask(self) -> None:
        random = self.random
        if random.random() < self._keyed:
            self._ask_by_key()
            return
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
        kinds = {"good": 40.0, "poison": 2.0}
        if self._wreckers:
            kinds |= {"breaker": 2, "killer": 0.7, "hog": 1}
            kinds |= {"sleeper": 0.4, "stone": 0.4, "lethal": 0.4}
        (kind,) = random.choices(list(kinds), list(kinds.values()))
        if self._lethal and random.random() < 0.3:
            self._lethal -= 1
            kind = LETHAL
        deadline_us = None
        if not bulk:
            deadline_us = self.now_us + random.choice([2, 10, 60]) * SECOND
        ask = Ask(
            id=f"r{self.next_id()}",
            kind=kind,
            deadline_log_us=deadline_us,
            reply_to=reply_to,
            made_by_us=random.random() < 0.8,
            is_rejected=kind != LETHAL and random.random() < 0.03,
            is_overdue=not bulk and random.random() < 0.03,
        )
        self.log.append(partition, ask)
        if kind == LETHAL:
            return
        if ask.made_by_us and random.random() < 0.1:
            self.after(random.randrange(500 * MS), partial(self._again, partition, ask))
        if ask.made_by_us and not ask.is_rejected and random.random() < self._cancels:
            leave = partial(self._again, partition, Cancel(ask))
            self.after(random.randrange(200 * MS), leave)

    def _again(self, partition: tuple[str, int], ask: Ask | Cancel) -> None:
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
        assert not self.history.unheard, f"seed {self.seed}: {self.history.unheard}"
        for each, reasons in self.history.errors.items():
            assert self.history.successes[each] or reasons
        blamed = {Reason.MODEL_ERROR, Reason.POISON}
        for asks in self.history.asked.values():
            for ask in asks:
                if isinstance(ask, Ask) and ask.kind == "good":
                    ends = self.history.errors[ask.id] + self.history.letters[ask.id]
                    assert not blamed & set(ends), f"{ask.id} pays for another: {ends}"

    def exhausted(self) -> list[str]:
        """Requests that ended because their attempts did."""
        ends = (*self.history.errors.items(), *self.history.letters.items())
        spent = {Reason.ATTEMPTS_EXHAUSTED, Reason.CRASH}
        return [each for each, reasons in ends if spent & set(reasons)]

    def runs_of_asked_once(self, priority: Priority) -> list[int]:
        """How often each good request with one record ran."""
        asked = self.history.asked
        records = Counter(ask.id for asks in asked.values() for ask in asks)
        return [
            self.history.runs[ask.id]
            for partition, asks in asked.items()
            if Topics.lane_and_priority(partition[1])[1] is priority
            for ask in asks
            if isinstance(ask, Ask) and ask.kind == "good" and records[ask.id] == 1
        ]

    def run_twice(self) -> list[str]:
        """Good requests with one record, or with a key, that ran more than once."""
        asks = [ask for asks in self.history.asked.values() for ask in asks]
        once = Counter(ask.id for ask in asks if ask.kind == "good")
        return [
            each
            for each, records in once.items()
            if (records == 1 or is_keyed(each)) and self.history.runs[each] > 1
        ]
