"""Whom the door lets in: short time limits beside long ones, and guaranteed shares."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain

from headrace.domain import Reason
from headrace.simulation import Results, Summary
from loadtest.pools import DEVICE, Floor, Section, a_scenario, run

__all__ = ["door_floors"]


def door_floors() -> Iterator[Floor]:
    yield from chain(_few_beside_many(), _both_too_much(), _shares())


def _one_worker(seconds: float, *streams: Section) -> tuple[Summary, Results]:
    return run(a_scenario(DEVICE, *streams, workers=1, seconds=seconds))


def _few_beside_many() -> Iterator[Floor]:
    """50 a second of 100 ms beside more of 5 s than the device can serve."""

    @lru_cache(2)
    def both(seconds: float, load: float) -> Summary:
        short = {"rate": 50.0, "tenant": "100ms"}
        long = {"load": load, "limit_ms": 5000.0, "tenant": "5s"}
        return _one_worker(seconds, short, long)[0]

    for load in (1.05, 1.2):

        def impatient(seconds: float, load: float = load) -> float:
            return both(seconds, load).tenants["100ms"].attainment

        def unharmed(seconds: float, load: float = load) -> float:
            alone, _ = _one_worker(seconds, {"load": load, "limit_ms": 5000.0})
            return both(seconds, load).tenants["5s"].attainment / alone.attainment

        name = f"100 ms beside 5 s at {load}x"
        yield Floor(f"{name}: those of 100 ms in time", 0.95, impatient)
        yield Floor(f"{name}: those of 5 s in time, of that alone", 0.95, unharmed)


def _both_too_much() -> Iterator[Floor]:
    """Those of 100 ms may pass the others only as long as these keep their time."""

    @lru_cache(1)
    def both(seconds: float) -> tuple[Summary, Results]:
        short = {"load": 1.0, "tenant": "short"}
        long = {"load": 1.0, "limit_ms": 500.0, "tenant": "long"}
        return _one_worker(seconds, short, long)

    def kept(seconds: float) -> float:
        """Of those of 500 ms that were let in."""
        long = both(seconds)[1].of(tenant="long")
        return long.on_time / (long.offered - long.refused[Reason.OVERLOADED])

    def used(seconds: float) -> float:
        return both(seconds)[0].goodput / (32 / 0.013)

    yield Floor("100 ms at 1x beside 500 ms at 1x: goodput of the device", 0.95, used)
    yield Floor("100 ms at 1x beside 500 ms at 1x: kept of 500 ms", 0.99, kept)


def _shares() -> Iterator[Floor]:
    """A tenth of the device is standard's, whatever the more urgent ones ask for."""

    def standard(seconds: float) -> float:
        asked = {"realtime": 1.2, "interactive": 0.5, "standard": 0.5}
        streams = [{"load": load, "priority": name} for name, load in asked.items()]
        summary, _ = _one_worker(seconds, *streams)
        return summary.priorities["standard"].device_part

    yield Floor("standard behind 1.7x more urgent: of the device", 0.09, standard)
