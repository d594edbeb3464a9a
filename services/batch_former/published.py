"""What the former says of itself: its heartbeat and its gauges."""

from __future__ import annotations

import os
import socket
from collections import Counter

from headrace.delivery import LaneState
from headrace.delivery.events import CommitOutcome
from headrace.domain import HopsMeasured, Load, Priority
from headrace.lifecycle import Health
from headrace.telemetry import FormerMetrics, ProcessMetrics, get_log
from headrace.wire import Heartbeat, LaneLoad, Role, Topics, encode_json
from services.batch_former.lanes import Lanes, OwnedLane
from services.batch_former.measuring import Measuring

__all__ = ["Published"]


class Published:
    """The loop refreshes it; the heartbeat's thread reads it."""

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        topics: Topics,
        measuring: Measuring,
        metrics: FormerMetrics,
        process: ProcessMetrics,
        health: Health,
        *,
        slot: int,
        former: str,
        admin: str,
    ) -> None:
        self._topics = topics
        self._measuring = measuring
        self._metrics = metrics
        self._process = process
        self._health = health
        self._slot = slot
        self._former = former
        self._admin = admin
        self._host = socket.gethostname()
        self._pid = os.getpid()
        self._lanes: tuple[LaneLoad, ...] = ()
        self._hops: dict[int, tuple[int, HopsMeasured]] = {}
        self._epochs: dict[int, int] = {}
        self._queued: frozenset[tuple[str, int, str]] = frozenset()
        self._log = get_log()

    @property
    def key(self) -> bytes:
        return f"{Role.BATCH_FORMER}/{self._slot}".encode()

    @property
    def loads(self) -> list[Load]:
        """Of our lanes, as of the last look."""
        return [lane.load for lane in self._lanes]

    def heartbeat(self) -> bytes:
        return encode_json(
            Heartbeat(
                role=Role.BATCH_FORMER,
                slot=self._slot,
                instance=self._former,
                state=self._health.state,
                host=self._host,
                pid=self._pid,
                admin=self._admin,
                lanes=self._lanes,
            )
        )

    def committed(self, outcome: CommitOutcome) -> None:
        self._metrics.commits.labels(outcome.value).inc()

    def show_clock(self, error_us: int) -> None:
        self._process.log_clock_error.set(error_us / 1e6)

    def drain(self) -> None:
        """Say from the next heartbeat on that nothing new should come here."""
        self._health.drain()

    def refresh(self, lanes: Lanes, now_us: int) -> None:
        """Look at every lane anew, for the next heartbeat."""
        self._lanes = tuple(self._load(owned, now_us) for owned in lanes.owned.values())

    def measure(
        self, lanes: Lanes, busy_us: int, now_us: int
    ) -> list[tuple[OwnedLane, HopsMeasured]]:
        """Set the gauges; the hops that each lane's scheduler should know. The loop
        was busy for ``busy_us`` since the last time."""
        self._measuring.end_window(busy_us)
        measured = []
        for owned in lanes.owned.values():
            _, hops = self._measure_hops(owned.lane, now_us)
            measured.append((owned, hops))
            self._show_lane(owned, self._load(owned, now_us))
        self._show_queues()
        return measured

    def _measure_hops(self, lane: int, now_us: int) -> tuple[int, HopsMeasured]:
        request_us = self._measuring.request_us(lane, now_us)
        self._hops[lane] = request_us, self._measuring.hops(lane, now_us)
        return self._hops[lane]

    def _load(self, owned: OwnedLane, now_us: int) -> LaneLoad:
        request_us, hops = self._hops.get(owned.lane) or self._measure_hops(
            owned.lane, now_us
        )
        return LaneLoad(
            lane=owned.lane,
            epoch=owned.core.epoch,
            active=owned.core.state is LaneState.ACTIVE,
            load=owned.scheduler.load(now_us),
            request_us=request_us,
            control_us=hops.control_us,
            response_us=hops.response_us,
        )

    def _show_queues(self) -> None:
        requests = Counter[tuple[str, int, str]]()
        oldest_us = dict.fromkeys(self._queued, 0)
        for load in self._lanes:
            for queue in load.load.queues:
                labels = queue.model, load.lane, queue.priority.name.lower()
                requests[labels] += queue.requests
                oldest_us[labels] = max(oldest_us.get(labels, 0), queue.oldest_us)
        for labels, age_us in oldest_us.items():
            self._metrics.queued.labels(*labels).set(requests[labels])
            self._metrics.oldest.labels(*labels).set(age_us / 1e6)
        self._queued = frozenset(requests)

    def _show_lane(self, owned: OwnedLane, load: LaneLoad) -> None:
        metrics, lane = self._metrics, owned.lane
        unsettled = dict.fromkeys(Priority, 0)
        for (_, partition), count in owned.core.unsettled().items():
            unsettled[self._topics.lane_and_priority(partition)[1]] += count
        for priority, count in unsettled.items():
            metrics.unsettled.labels(lane, priority.name.lower()).set(count)
        metrics.hops.labels(lane, "request").set(load.request_us / 1e6)
        metrics.hops.labels(lane, "control").set(load.control_us / 1e6)
        metrics.hops.labels(lane, "response").set(load.response_us / 1e6)
        if load.active and self._epochs.get(lane) != load.epoch:
            if not self._epochs:
                self._health.met("lane")
                self._log.info("process.ready")
            self._epochs[lane] = load.epoch
            metrics.takeovers.labels(lane).inc()
            metrics.epoch.labels(lane).set(load.epoch)
            self._log.info("lane.active", lane=lane, epoch=load.epoch)
