"""A pool of workers in virtual time, driven by the objects that production runs.

Each lane has a scheduler behind the boundary of :mod:`headrace.domain.dispatch`, the
door of each ingress stands before them, and records take the hops of the log. Nothing
here decides: events are put in order, and what follows is counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count

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
from headrace.scheduling import BatchFormer, Publishing
from headrace.simulation.pool import Loss, ModelSpec, Pool
from headrace.simulation.tallies import Histogram, Results, Tallies
from headrace.simulation.workload import Kind, Stream, kinds_of, merged

__all__ = ["World"]

MS = 1_000
SECOND_US = 1_000_000
CREDITS = 2
NEVER_US = 1 << 62
NOTHING = Signature(inputs=(), outputs=())
VERSION = "1"
PROBED = (1, 2, 3)
"""Sizes that a worker measures before it announces a version, besides the largest."""


class _Worker:
    def __init__(self, number: int, speed: float, lane: _Lane) -> None:
        self.number = number
        self.speed = speed
        self.lane = lane
        self.held: deque[Dispatch] = deque()
        self.busy_until_us = 0
        self.back_us = 0
        """Until then it is lost."""

        self.life = 0


class _Lane:
    def __init__(self, number: int, scheduler: Scheduler) -> None:
        self.number = number
        self.scheduler = scheduler
        self.tick_at_us = NEVER_US
        self.publishing = Publishing()
        self.publish_at_us = NEVER_US


class World:
    """One run. ``new_scheduler`` makes the policy of a lane."""

    def __init__(
        self,
        pool: Pool,
        models: Sequence[ModelSpec],
        streams: Sequence[Stream],
        new_scheduler: Callable[[], Scheduler],
        *,
        seed: int = 0,
        settings: AdmissionSettings | None = None,
    ) -> None:
        self._pool = pool
        self._models = models
        self._streams = streams
        self._seed = seed
        self._now_us = 0
        self._agenda: list[tuple[int, int, Callable[..., None], tuple[object, ...]]]
        self._agenda = []
        self._wire: deque[tuple[int, Request, _Lane]] = deque()
        """Requests on their way to a former; they all take equally long."""
        self._order = count()
        self._names = count()
        self._in_flight = 0
        self._turn = 0
        self._noises = _normal(np.random.default_rng(seed))
        self._lanes = [_Lane(lane, new_scheduler()) for lane in range(pool.lanes)]
        speeds = pool.speeds or (1.0,)
        self._workers = [
            _Worker(slot, speeds[slot % len(speeds)], self._lanes[slot % pool.lanes])
            for slot in range(pool.workers)
        ]
        self._run_us = {model.name: model.times_us() for model in models}
        self._prices = [self._announced(model) for model in models]
        self._doors = self._new_doors(settings or AdmissionSettings())
        self._kinds = kinds_of(streams)
        self._sources = [Source("", 0, place) for place in range(len(self._kinds))]
        self._endless_until_us = [
            int(stream.end_s * SECOND_US) if stream.backlog else 0
            for stream in streams
            for _ in kinds_of([stream])
        ]
        self._tallies = [Tallies() for _ in self._kinds]
        self._results = Results(
            seconds=max(stream.end_s for stream in streams),
            workers=pool.workers,
            kinds=list(zip(self._kinds, self._tallies, strict=True)),
            batch_rows=Histogram(),
        )
        self._introduce()

    def run(self, on_progress: Callable[[int], None] = lambda _: None) -> Results:
        """Until the streams are over and everything has settled; ``on_progress`` is
        told the virtual time every 50,000 requests."""
        agenda, wire = self._agenda, self._wire
        source = merged(self._streams, self._seed)
        offered = 0
        at_us, kind = next(source, (NEVER_US, 0))
        while True:
            soonest_us = agenda[0][0] if agenda else NEVER_US
            if wire and wire[0][0] <= soonest_us and wire[0][0] <= at_us:
                self._now_us, request, lane = wire.popleft()
                self._receive(request, lane)
            elif at_us <= soonest_us and at_us != NEVER_US:
                self._now_us = at_us
                self._offer(kind)
                offered += 1
                if offered % 50_000 == 0:
                    on_progress(at_us)
                at_us, kind = next(source, (NEVER_US, 0))
            elif agenda:
                self._now_us, _, action, facts = heappop(agenda)
                action(*facts)
            else:
                return self._results

    def _at(self, at_us: int, action: Callable[..., None], *facts: object) -> None:
        heappush(self._agenda, (at_us, next(self._order), action, facts))

    def _announced(self, model: ModelSpec) -> Price:
        run_us = self._run_us[model.name]
        return Price(
            model=model.name,
            version=VERSION,
            row_us=run_us[-1] // model.max_batch,
            batch_us=run_us[-1],
            one_us=run_us[1],
        )

    def _new_doors(self, settings: AdmissionSettings) -> list[Door]:
        if not self._pool.admission:
            return []
        doors = [Door(settings) for _ in range(self._pool.ingresses)]
        for door in doors:
            door.ingresses = len(doors)
        return doors

    def _introduce(self) -> None:
        pool = self._pool
        hops = HopsMeasured(control_us=pool.control_us, response_us=pool.response_us)
        for lane in self._lanes:
            slots = frozenset(range(lane.number, pool.workers, pool.lanes))
            lane.scheduler.handle(hops, 0)
            for model in self._models:
                served = self._served(model, slots)
                lane.scheduler.handle(VersionChanged(served), 0)
        for worker in self._workers:
            self._tell(worker)
        for lane in self._lanes:
            if self._doors and isinstance(lane.scheduler, BatchFormer):
                self._hear(lane, lane.scheduler.load(0))
                self._pace(lane, lane.scheduler)
        for loss in pool.losses:
            self._at(int(loss.at_s * SECOND_US), self._lose, loss)
        place = 0
        for stream in self._streams:
            kinds = range(place, place + len(kinds_of([stream])))
            place = kinds.stop
            for lane in self._lanes:
                for number in range(stream.backlog):
                    start_us = int(stream.start_s * SECOND_US)
                    kind = kinds[number % len(kinds)]
                    self._at(start_us, self._offer_again, kind, lane)

    def _served(self, model: ModelSpec, slots: frozenset[int]) -> ServedVersion:
        run_us = self._run_us[model.name]
        sizes = {*PROBED, model.max_batch}
        return ServedVersion(
            model=model.name,
            version=VERSION,
            signature=NOTHING,
            sha256="",
            max_batch=model.max_batch,
            batch_axes={},
            padding=None,
            latency_objective_us=None,
            run_us={rows: run_us[rows] for rows in sizes if rows <= model.max_batch},
            ready_slots=slots,
            unloading_slots=frozenset(),
        )

    def _offer(self, place: int) -> None:
        kind = self._kinds[place]
        tallies = self._tallies[place]
        self._count_offered(tallies)
        lane = self._lane_for(kind, tallies)
        if lane is not None:
            self._in_flight += 1
            request = self._new_request(place, kind)
            self._wire.append((self._now_us + self._pool.request_us, request, lane))

    def _offer_again(self, place: int, lane: _Lane) -> None:
        """A request of a backlog, which is in the log already."""
        self._count_offered(self._tallies[place])
        self._in_flight += 1
        self._receive(self._new_request(place, self._kinds[place]), lane)

    def _count_offered(self, tallies: Tallies) -> None:
        second = self._now_us // SECOND_US
        tallies.offered += 1
        tallies.reach(second)
        tallies.offered_by_second[second] += 1

    def _lane_for(self, kind: Kind, tallies: Tallies) -> _Lane | None:
        self._turn += 1
        if not self._doors or kind.limit_us is None:
            return self._lanes[self._turn % len(self._lanes)]
        door = self._doors[self._turn % len(self._doors)]
        price = self._prices[kind.model]
        verdict = door.decide(
            range(len(self._lanes)),
            price,
            kind.priority,
            tenant=kind.tenant,
            limit_us=kind.limit_us,
            in_flight=self._in_flight,
            now_us=self._now_us,
        )
        if isinstance(verdict, Admitted):
            deadline_us = self._now_us + kind.limit_us
            lane = verdict.lane
            door.admitted(
                lane, price, kind.priority, kind.rows, deadline_us, tenant=kind.tenant
            )
            return self._lanes[lane]
        tallies.refused[verdict.reason] += 1
        return None

    def _new_request(self, place: int, kind: Kind) -> Request:
        now_us = self._now_us
        key = str(next(self._names))
        limit_us = kind.limit_us
        return Request(
            key=key,
            id=key,
            tenant=kind.tenant,
            model=self._models[kind.model].name,
            version=VERSION,
            shape=str(kind.shape),
            rows=kind.rows,
            length=0,
            priority=kind.priority,
            arrived_us=now_us,
            deadline_us=None if limit_us is None else now_us + limit_us,
            reply_to=None,
            source=self._sources[place],
            tensors=(),
            size_bytes=0,
        )

    def _receive(self, request: Request, lane: _Lane) -> None:
        lane.scheduler.handle(Arrived(request), self._now_us)
        former = lane.scheduler
        if self._doors and isinstance(former, BatchFormer):
            lane.publishing.received(self._now_us)
            self._pace(lane, former)
        self._wake(lane)

    def _wake(self, lane: _Lane) -> None:
        at_us = lane.scheduler.wakeup_at_us()
        if at_us is not None and at_us < lane.tick_at_us:
            lane.tick_at_us = max(at_us, self._now_us)
            self._at(lane.tick_at_us, self._tick, lane)

    def _tick(self, lane: _Lane) -> None:
        if lane.tick_at_us != self._now_us:
            return
        lane.tick_at_us = NEVER_US
        for decision in lane.scheduler.handle(Ticked(), self._now_us):
            if isinstance(decision, Dispatch):
                self._send(lane, decision)
            else:
                self._refuse(decision)
        self._wake(lane)

    def _publish(self, lane: _Lane, former: BatchFormer) -> None:
        if lane.publish_at_us != self._now_us:
            return
        lane.publish_at_us = NEVER_US
        load = former.load(self._now_us)
        # A heartbeat tells what is not told at once, about when a quiet lane is
        # looked at.
        lane.publishing.looked([load], self._now_us)
        self._at(self._now_us + self._pool.request_us, self._hear, lane, load)
        self._pace(lane, former)

    def _pace(self, lane: _Lane, former: BatchFormer) -> None:
        at_us = lane.publishing.at_us
        if at_us < min(lane.publish_at_us, self._results.seconds * SECOND_US):
            lane.publish_at_us = at_us
            self._at(at_us, self._publish, lane, former)

    def _hear(self, lane: _Lane, load: Load) -> None:
        pool = self._pool
        for door in self._doors:
            door.heard(
                lane.number,
                load,
                request_us=pool.request_us,
                rest_us=pool.control_us + pool.response_us,
                now_us=self._now_us,
            )

    def _send(self, lane: _Lane, dispatch: Dispatch) -> None:
        worker = self._workers[dispatch.slot]
        assert worker.lane is lane
        assert len(worker.held) < CREDITS
        worker.held.append(dispatch)
        rows = sum(request.rows for request in dispatch.requests)
        self._results.release[dispatch.reason] += 1
        self._results.batch_rows.add(rows)
        self._tell(worker)
        if self._now_us < worker.back_us:
            return
        starts_us = max(self._now_us + self._pool.control_us, worker.busy_until_us)
        run_us = self._duration_us(worker, dispatch.requests[0].model, rows, starts_us)
        worker.busy_until_us = starts_us + run_us
        self._results.overrun += run_us > dispatch.predicted_p99_us
        facts = worker, dispatch, run_us, worker.life
        self._at(worker.busy_until_us, self._end, *facts)

    def _duration_us(
        self, worker: _Worker, model: str, rows: int, starts_us: int
    ) -> int:
        pool = self._pool
        run_us = self._run_us[model][rows] * worker.speed
        if pool.slow_from_s is not None and starts_us >= pool.slow_from_s * SECOND_US:
            run_us *= pool.slow_factor
        if pool.noise:
            run_us *= max(1 + pool.noise * next(self._noises), 0.1)
        return max(int(run_us), 1)

    def _end(self, worker: _Worker, dispatch: Dispatch, run_us: int, life: int) -> None:
        if worker.life != life:
            return
        end_us = int(self._results.seconds * SECOND_US)
        self._results.busy_us += max(min(end_us - self._now_us, 0) + run_us, 0)
        self._answer(worker.lane, dispatch, run_us)
        at_us = self._now_us + self._pool.control_us
        self._at(at_us, self._done, worker, dispatch, run_us, life)

    def _answer(self, lane: _Lane, dispatch: Dispatch, run_us: int) -> None:
        at_us = self._now_us + self._pool.response_us
        self._results.ended_us = at_us
        second = self._now_us // SECOND_US
        requests = dispatch.requests
        row_us = run_us / sum(request.rows for request in requests)
        after_us = self._now_us - int(self._results.seconds * SECOND_US)
        part_within = 1 - min(max(after_us, 0) / run_us, 1)
        self._in_flight -= len(requests)
        for request in requests:
            place = request.source.offset
            tallies = self._tallies[place]
            tallies.answer(request, at_us, part_within)
            tallies.reach(second)
            tallies.device_us_by_second[second] += row_us * request.rows
            if self._now_us < self._endless_until_us[place]:
                self._offer_again(place, lane)

    def _done(
        self, worker: _Worker, dispatch: Dispatch, run_us: int, life: int
    ) -> None:
        if worker.life != life:
            return
        worker.held.remove(dispatch)
        ended = BatchEnded(dispatch.batch, worker.number, run_us)
        worker.lane.scheduler.handle(ended, self._now_us)
        self._tell(worker)
        self._wake(worker.lane)

    def _tell(self, worker: _Worker) -> None:
        held = tuple(dispatch.batch for dispatch in worker.held)
        changed = SlotChanged(worker.number, CREDITS - len(held), held)
        worker.lane.scheduler.handle(changed, self._now_us)

    def _refuse(self, refusal: Refuse) -> None:
        self._in_flight -= 1
        self._tallies[refusal.request.source.offset].refused[refusal.reason] += 1

    def _lose(self, loss: Loss) -> None:
        """Nobody knows until the lease lapses."""
        worker = self._workers[loss.worker]
        worker.life += 1
        worker.busy_until_us = 0
        self._at(self._now_us + loss.lease_us, self._lapse, worker)
        lasts_us = max(int(loss.seconds * SECOND_US), loss.lease_us)
        worker.back_us = max(worker.back_us, self._now_us + lasts_us)
        self._at(worker.back_us, self._return, worker)

    def _lapse(self, worker: _Worker) -> None:
        """What the worker held runs again, elsewhere."""
        scheduler, number = worker.lane.scheduler, worker.number
        held = list(worker.held)
        worker.held.clear()
        for dispatch in held:
            ended = BatchEnded(dispatch.batch, number, None)
            scheduler.handle(ended, self._now_us)
        scheduler.handle(SlotChanged(number, 0, ()), self._now_us)
        for dispatch in held:
            for request in dispatch.requests:
                scheduler.handle(Arrived(request), self._now_us)
        self._wake(worker.lane)

    def _return(self, worker: _Worker) -> None:
        if self._now_us == worker.back_us:
            self._tell(worker)
            self._wake(worker.lane)


def _normal(dice: np.random.Generator) -> Iterator[float]:
    while True:
        yield from dice.standard_normal(4096).tolist()
