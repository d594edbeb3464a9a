"""How many requests a second the scheduling core decides in one process.

    .venv/bin/python -m loadtest.scheduling [--seconds 2] [--profile]

A simulated run with all of it switched on (20 models of two shapes, six tenants, four
priorities, a bulk backlog that rides along and fills gaps, worker slots of differing
speed, a load above the capacity) is recorded event by event; then the events alone
are given to a fresh core, and its CPU time is taken.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Iterator
from itertools import count

from headrace.domain import Arrived, Event, Priority, SchedulerDecision
from headrace.scheduling import BatchFormer, SchedulingSettings
from headrace.simulation import ModelSpec, Pool, Stream, World

MODELS = tuple(range(20))
WORKERS = 16
ROUNDS = 5


class Recorder:
    """Writes down what a scheduler is told."""

    def __init__(self, former: BatchFormer) -> None:
        self._former = former
        self.events: list[tuple[Event, int]] = []
        self.decisions: list[SchedulerDecision] = []
        self.wakeup_at_us = former.wakeup_at_us

    def handle(self, event: Event, now_us: int) -> list[SchedulerDecision]:
        self.events.append((event, now_us))
        decisions = self._former.handle(event, now_us)
        self.decisions += decisions
        return decisions


def a_former() -> BatchFormer:
    return BatchFormer(SchedulingSettings(), batch_ids=_ids())


def _ids() -> Iterator[str]:
    return (str(number) for number in count())


def streams(seconds: float, load: float) -> list[Stream]:
    """``load`` times the capacity online, and bulk that never ends."""
    rate = load * WORKERS * 32 / 0.013
    kinds = [
        ("a", Priority.REALTIME, 50_000, 0.05),
        ("b", Priority.INTERACTIVE, 100_000, 0.15),
        ("c", Priority.INTERACTIVE, 200_000, 0.15),
        ("d", Priority.STANDARD, 250_000, 0.35),
        ("e", Priority.STANDARD, 500_000, 0.30),
    ]
    online = [
        Stream(
            rate=rate * part,
            end_s=seconds,
            models=MODELS,
            shapes=2,
            tenant=tenant,
            priority=priority,
            limit_us=limit_us,
        )
        for tenant, priority, limit_us, part in kinds
    ]
    bulk = Stream(
        rate=1,
        end_s=seconds,
        process="backlog:2000",
        models=MODELS[:5],
        shapes=2,
        tenant="f",
        priority=Priority.BULK,
        limit_us=None,
    )
    return [*online, bulk]


def record(seconds: float, load: float) -> Recorder:
    recorder = Recorder(a_former())
    pool = Pool(workers=WORKERS, speeds=(1.0, 1.0, 1.3), admission=False)
    models = [ModelSpec(name=f"m{number}") for number in MODELS]
    World(pool, models, streams(seconds, load), lambda: recorder).run()
    return recorder


def replay(events: list[tuple[Event, int]]) -> list[SchedulerDecision]:
    former = a_former()
    decisions: list[SchedulerDecision] = []
    for event, now_us in events:
        decisions += former.handle(event, now_us)
        former.wakeup_at_us()
    return decisions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="of virtual time")
    parser.add_argument("--profile", action="store_true", help="print a profile")
    arguments = parser.parse_args()
    for load in (0.7, 1.2):
        recorder = record(arguments.seconds, load)
        events = recorder.events
        requests = sum(isinstance(event, Arrived) for event, _ in events)
        spent = []
        for _ in range(ROUNDS):
            begun = time.process_time()
            decisions = replay(events)
            spent.append(time.process_time() - begun)
            assert decisions == recorder.decisions
        best = min(spent)
        print(
            f"{load}x: {requests} requests in {len(events)} events, "
            f"{requests / best:,.0f} requests/s, {best / requests * 1e6:.1f} µs each"
        )
        if arguments.profile:
            with cProfile.Profile() as profile:
                replay(events)
            pstats.Stats(profile).sort_stats("tottime").print_stats(22)


if __name__ == "__main__":
    main()
