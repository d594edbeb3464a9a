"""A pool of workers in virtual time, driven by the objects that production runs.

Each lane has a scheduler behind the boundary of :mod:`headrace.domain.dispatch`, the
door of one ingress stands before them, and records take the hops of the log. Nothing
here decides: events are put in order, and what follows is counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count

import msgspec
import numpy as np

from headrace.admission import AdmissionSettings, Admitted, Door
from headrace.domain import (
    Arrived,
    BatchEnded,
    Dispatch,
    HopsMeasured,
    Load,
    Price,
    Refuse,
    Request,
    Scheduler,
    ServedVersion,
    Signature,
    SlotChanged,
    Source,
    Ticked,
    VersionChanged,
)
from headrace.scheduling import BatchFormer
from headrace.simulation.tallies import Histogram, Tallies
from headrace.simulation.workload import Arrival

__all__ = ["Loss", "ModelSpec", "Pool", "Results", "World"]

MS = 1_000
SECOND_US = 1_000_000
CREDITS = 2
PUBLISH_US = 15 * MS
SOURCE = Source("simulated", 0, 0)
NOTHING = Signature(inputs=(), outputs=())


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A model whose run time is ``alpha_us + beta_us · rows``, or a measured table
    between whose sizes it is linear."""

    name: str
    alpha_us: int = 5_000
    beta_us: int = 250
    max_batch: int = 32
    table_us: dict[int, int] = {}

    def run_us(self, rows: int) -> int:
        if not self.table_us:
            return self.alpha_us + self.beta_us * rows
        sizes = sorted(self.table_us)
        return int(np.interp(rows, sizes, [self.table_us[size] for size in sizes]))


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """A worker is gone from ``at_s`` for ``seconds``; what it held runs again."""

    worker: int
    at_s: float
    seconds: float


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """The machines: ``lanes`` formers share the workers by number."""

    workers: int = 1
    lanes: int = 1
    request_us: int = 1_000
    control_us: int = 1_000
    response_us: int = 1_000
    noise: float = 0.0
    """Standard deviation of a run time, as a part of it."""

    speeds: tuple[float, ...] = ()
    """Run time factors of the workers, repeated over all; empty: all 1."""

    slow_from_s: float | None = None
    """From then on every run takes ``slow_factor`` times as long."""

    slow_factor: float = 2.0
    losses: tuple[Loss, ...] = ()
    admission: bool = True


class Results(msgspec.Struct, kw_only=True):
    """What came of it. Instants and durations in µs."""

    seconds: float
    all: Tallies
    by_tenant: dict[str, Tallies]
    by_priority: dict[int, Tallies]
    by_second: list[Tallies]
    batch_rows: Histogram
    busy_us: int
    release: dict[str, int]
    service_by_second: dict[str, list[float]]
    """Tenant to device µs given in each second."""


class _Worker:
    def __init__(self, number: int, speed: float) -> None:
        self.number = number
        self.speed = speed
        self.held: deque[Dispatch] = deque()
        self.busy_until_us = 0
        self.lost = False
        self.life = 0


class _Lane:
    def __init__(self, number: int, scheduler: Scheduler) -> None:
        self.number = number
        self.scheduler = scheduler
        self.tick_at_us: int | None = None
        self.published = True


class World:
    """One run. ``new_scheduler`` makes the policy of a lane."""

    def __init__(
        self,
        pool: Pool,
        models: Sequence[ModelSpec],
        new_scheduler: Callable[[], Scheduler],
        *,
        seed: int = 0,
        settings: AdmissionSettings | None = None,
    ) -> None:
        self.now_us = 0
        self._pool = pool
        self._models = models
        self._dice = np.random.default_rng(seed)
        self._noises: Iterator[float] = iter(())
        self._agenda: list[tuple[int, int, Callable[..., None], tuple[object, ...]]]
        self._agenda = []
        self._order = count()
        self._door = Door(settings or AdmissionSettings()) if pool.admission else None
        self._lanes = [_Lane(lane, new_scheduler()) for lane in range(pool.lanes)]
        speeds = pool.speeds or (1.0,)
        self._workers = [
            _Worker(slot, speeds[slot % len(speeds)]) for slot in range(pool.workers)
        ]
        self._prices = [
            Price(
                model=model.name,
                version="1",
                row_us=model.run_us(model.max_batch) // model.max_batch,
                batch_us=model.run_us(model.max_batch),
            )
            for model in models
        ]
        self._in_flight = 0
        self._turn = 0
        self._streams: dict[str, int] = {}
        self.results = Results(
            seconds=0.0,
            all=Tallies(),
            by_tenant={},
            by_priority={},
            by_second=[],
            batch_rows=Histogram(),
            busy_us=0,
            release={},
            service_by_second={},
        )
        self._introduce()

    def run(
        self,
        source: Iterator[Arrival],
        *,
        seconds: float,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> Results:
        """Until ``seconds`` are over and everything has settled."""
        agenda = self._agenda
        self._end_us = int(seconds * SECOND_US)
        upcoming = next(source, None)
        offered = 0
        while upcoming is not None or agenda:
            if upcoming is not None and (not agenda or upcoming.at_us <= agenda[0][0]):
                self.now_us = upcoming.at_us
                self._offer(upcoming)
                offered += 1
                if offered % 10_000 == 0:
                    on_progress(offered)
                upcoming = next(source, None)
            else:
                self.now_us, _, action, facts = heappop(agenda)
                action(*facts)
        self.results.seconds = seconds
        return self.results

    def keep_busy(self, arrival: Arrival, requests: int) -> None:
        """A backlog that never ends: as many requests of this kind always wait."""
        for _ in range(requests):
            self._at(0, self._receive, self._request(arrival, endless=True))

    def _at(self, at_us: int, action: Callable[..., None], *facts: object) -> None:
        heappush(self._agenda, (at_us, next(self._order), action, facts))

    def _introduce(self) -> None:
        pool = self._pool
        for lane in self._lanes:
            slots = frozenset(range(lane.number, pool.workers, pool.lanes))
            hops = HopsMeasured(
                control_us=pool.control_us, response_us=pool.response_us
            )
            lane.scheduler.handle(hops, 0)
            for model in self._models:
                served = ServedVersion(
                    model=model.name,
                    version="1",
                    signature=NOTHING,
                    sha256="",
                    max_batch=model.max_batch,
                    batch_axes={},
                    padding=None,
                    latency_objective_us=None,
                    run_us={
                        rows: model.run_us(rows)
                        for rows in {1, 2, 3, model.max_batch}
                        if rows <= model.max_batch
                    },
                    ready_slots=slots,
                    unloading_slots=frozenset(),
                )
                lane.scheduler.handle(VersionChanged(served), 0)
            for slot in sorted(slots):
                self._tell(lane, self._workers[slot])
        for loss in pool.losses:
            self._at(int(loss.at_s * SECOND_US), self._lose, loss)

    def _offer(self, arrival: Arrival) -> None:
        stream = arrival.stream
        self._tally(stream.tenant, stream.priority, arrival.at_us, "offered")
        lane = self._lane_for(arrival)
        if lane is None:
            return
        self._in_flight += 1
        at_us = self.now_us + self._pool.request_us
        self._at(at_us, self._receive, self._request(arrival), lane)

    def _lane_for(self, arrival: Arrival) -> _Lane | None:
        lanes = range(len(self._lanes))
        stream = arrival.stream
        if self._door is None or stream.limit_us is None:
            self._turn += 1
            return self._lanes[self._turn % len(self._lanes)]
        price = self._prices[arrival.model]
        verdict = self._door.decide(
            lanes,
            price,
            stream.priority,
            limit_us=stream.limit_us,
            in_flight=self._in_flight,
            now_us=self.now_us,
        )
        if isinstance(verdict, Admitted):
            self._door.admitted(verdict.lane, price, stream.priority, stream.rows)
            return self._lanes[verdict.lane]
        for tallies in self._kinds(stream.tenant, stream.priority, self.now_us):
            tallies.refused[verdict.reason] += 1
        return None

    def _request(self, arrival: Arrival, *, endless: bool = False) -> Request:
        stream = arrival.stream
        key = str(next(self._order))
        limit_us = stream.limit_us
        return Request(
            key=key,
            id=key,
            tenant=stream.tenant,
            model=self._models[arrival.model].name,
            version="1",
            shape="x",
            rows=stream.rows,
            length=0,
            priority=stream.priority,
            arrived_us=arrival.at_us,
            deadline_us=None if limit_us is None else arrival.at_us + limit_us,
            reply_to=None,
            source=SOURCE,
            tensors=(),
            size_bytes=0,
            client_id="endless" if endless else "",
        )

    def _receive(self, request: Request, lane: _Lane | None = None) -> None:
        if lane is None:
            self._turn += 1
            lane = self._lanes[self._turn % len(self._lanes)]
        lane.scheduler.handle(Arrived(request), self.now_us)
        self._wake(lane)

    def _wake(self, lane: _Lane) -> None:
        at_us = lane.scheduler.wakeup_at_us()
        if at_us is None:
            return
        at_us = max(at_us, self.now_us)
        if lane.tick_at_us is None or at_us < lane.tick_at_us:
            lane.tick_at_us = at_us
            self._at(at_us, self._tick, lane)

    def _tick(self, lane: _Lane) -> None:
        if lane.tick_at_us != self.now_us:
            return
        lane.tick_at_us = None
        for decision in lane.scheduler.handle(Ticked(), self.now_us):
            if isinstance(decision, Dispatch):
                self._send(lane, decision)
            else:
                self._refuse(decision)
        self._wake(lane)
        if self._door is not None and lane.published:
            lane.published = False
            self._at(self.now_us + PUBLISH_US, self._publish, lane)

    def _publish(self, lane: _Lane) -> None:
        lane.published = True
        scheduler = lane.scheduler
        if isinstance(scheduler, BatchFormer):
            load = scheduler.load(self.now_us)
            self._at(self.now_us + self._pool.request_us, self._hear, lane, load)
            if load.queues or load.running_us:
                lane.published = False
                self._at(self.now_us + PUBLISH_US, self._publish, lane)

    def _hear(self, lane: _Lane, load: Load) -> None:
        assert self._door is not None
        pool = self._pool
        self._door.heard(
            lane.number,
            load,
            request_us=pool.request_us,
            rest_us=pool.control_us + pool.response_us,
            now_us=self.now_us,
        )

    def _send(self, lane: _Lane, dispatch: Dispatch) -> None:
        worker = self._workers[dispatch.slot]
        worker.held.append(dispatch)
        results = self.results
        reason = str(dispatch.reason)
        results.release[reason] = results.release.get(reason, 0) + 1
        results.batch_rows.add(sum(request.rows for request in dispatch.requests))
        self._tell(lane, worker)
        at_us = self.now_us + self._pool.control_us
        self._at(at_us, self._start, lane, worker, dispatch, worker.life)

    def _start(
        self, lane: _Lane, worker: _Worker, dispatch: Dispatch, life: int
    ) -> None:
        if worker.life != life or worker.lost:
            return
        run_us = self._run_us(worker, dispatch)
        starts_us = max(self.now_us, worker.busy_until_us)
        worker.busy_until_us = starts_us + run_us
        self.results.busy_us += run_us
        self._at(worker.busy_until_us, self._end, lane, worker, dispatch, run_us, life)

    def _run_us(self, worker: _Worker, dispatch: Dispatch) -> int:
        first = dispatch.requests[0]
        model = next(each for each in self._models if each.name == first.model)
        rows = sum(request.rows for request in dispatch.requests)
        run_us = model.run_us(rows) * worker.speed
        slow_from_s = self._pool.slow_from_s
        if slow_from_s is not None and self.now_us >= slow_from_s * SECOND_US:
            run_us *= self._pool.slow_factor
        if self._pool.noise:
            run_us *= max(1 + self._pool.noise * self._noise(), 0.1)
        return max(int(run_us), 1)

    def _noise(self) -> float:
        noise = next(self._noises, None)
        if noise is None:
            self._noises = iter(self._dice.standard_normal(4096).tolist())
            noise = next(self._noises)
        return noise

    def _end(
        self,
        lane: _Lane,
        worker: _Worker,
        dispatch: Dispatch,
        run_us: int,
        life: int,
    ) -> None:
        if worker.life != life:
            return
        answered_us = self.now_us + self._pool.response_us
        rows = sum(request.rows for request in dispatch.requests)
        for request in dispatch.requests:
            self._answer(request, answered_us, run_us * request.rows / rows)
        at_us = self.now_us + self._pool.control_us
        self._at(at_us, self._done, lane, worker, dispatch, run_us, life)

    def _answer(self, request: Request, at_us: int, device_us: float) -> None:
        second = self.now_us // SECOND_US
        service = self.results.service_by_second.setdefault(request.tenant, [])
        service.extend([0.0] * (second + 1 - len(service)))
        service[second] += device_us
        in_time = request.deadline_us is None or at_us <= request.deadline_us
        if request.client_id:
            if self.now_us < self._end_us:
                again = msgspec.structs.replace(
                    request, key=str(next(self._order)), arrived_us=self.now_us
                )
                self._at(self.now_us, self._receive, again)
        else:
            self._in_flight -= 1
        for tallies in self._kinds(
            request.tenant, request.priority, request.arrived_us
        ):
            tallies.on_time += in_time
            tallies.late += not in_time
            tallies.rows_served += request.rows
            tallies.latency_us.add(at_us - request.arrived_us)

    def _done(
        self,
        lane: _Lane,
        worker: _Worker,
        dispatch: Dispatch,
        run_us: int,
        life: int,
    ) -> None:
        if worker.life != life:
            return
        worker.held.remove(dispatch)
        ended = BatchEnded(dispatch.batch, worker.number, run_us)
        lane.scheduler.handle(ended, self.now_us)
        self._tell(lane, worker)
        self._wake(lane)

    def _tell(self, lane: _Lane, worker: _Worker) -> None:
        held = tuple(dispatch.batch for dispatch in worker.held)
        free = 0 if worker.lost else CREDITS - len(held)
        changed = SlotChanged(worker.number, free, held)
        lane.scheduler.handle(changed, self.now_us)

    def _refuse(self, refusal: Refuse) -> None:
        request = refusal.request
        self._in_flight -= 1
        for tallies in self._kinds(
            request.tenant, request.priority, request.arrived_us
        ):
            tallies.refused[refusal.reason] += 1

    def _lose(self, loss: Loss) -> None:
        """The lease of what the worker held lapses; it runs again elsewhere."""
        worker = self._workers[loss.worker]
        lane = self._lanes[loss.worker % len(self._lanes)]
        worker.life += 1
        worker.lost = True
        held = list(worker.held)
        worker.held.clear()
        worker.busy_until_us = 0
        for dispatch in held:
            ended = BatchEnded(dispatch.batch, worker.number, None)
            lane.scheduler.handle(ended, self.now_us)
        self._tell(lane, worker)
        for dispatch in held:
            for request in dispatch.requests:
                lane.scheduler.handle(Arrived(request), self.now_us)
        self._wake(lane)
        back_us = self.now_us + int(loss.seconds * SECOND_US)
        self._at(back_us, self._return, lane, worker)

    def _return(self, lane: _Lane, worker: _Worker) -> None:
        worker.lost = False
        self._tell(lane, worker)
        self._wake(lane)

    def _tally(self, tenant: str, priority: int, at_us: int, name: str) -> None:
        assert name == "offered"
        for tallies in self._kinds(tenant, priority, at_us):
            tallies.offered += 1

    def _kinds(self, tenant: str, priority: int, at_us: int) -> list[Tallies]:
        results = self.results
        seconds = results.by_second
        second = at_us // SECOND_US
        while len(seconds) <= second:
            seconds.append(Tallies())
        by_tenant = results.by_tenant.get(tenant)
        if by_tenant is None:
            by_tenant = results.by_tenant[tenant] = Tallies()
        by_priority = results.by_priority.get(priority)
        if by_priority is None:
            by_priority = results.by_priority[priority] = Tallies()
        return [results.all, by_tenant, by_priority, seconds[second]]
