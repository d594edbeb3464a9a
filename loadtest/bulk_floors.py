"""Bulk beside online requests: what it gets of the workers, and what they pay."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain

from headrace.simulation import Results, Summary
from headrace.simulation.bounds import longest_wait_us
from loadtest.pools import DEVICE, SHAPES, Floor, a_scenario, run

__all__ = ["bulk_floors"]


def bulk_floors() -> Iterator[Floor]:
    yield from chain(_apart(), _long(), _together())


def _apart() -> Iterator[Floor]:
    """A backlog that never ends, of a model of its own, beside online traffic."""

    def both(seconds: float, load: float) -> tuple[Summary, Results]:
        online = {"load": load, "tenant": "online"}
        bulk = {
            "tenant": "bulk",
            "priority": "bulk",
            "arrivals": "backlog:1024",
            "models": ("bulk",),
            "start_s": 1.0,
        }
        return run(
            a_scenario(
                SHAPES["a5.2"],
                online,
                bulk,
                models=5,
                beside=({"name": "bulk", **SHAPES["a5.2"]},),
                seconds=seconds,
            )
        )

    capacity = 8 * 64 / 0.074452
    for load in (0.4, 0.6):

        def share(seconds: float, load: float = load) -> float:
            summary, _ = both(seconds, load)
            return summary.tenants["bulk"].goodput * seconds / (seconds - 1) / capacity

        def unharmed(seconds: float, load: float = load) -> float:
            return both(seconds, load)[0].tenants["online"].attainment

        yield Floor(f"bulk beside {load}x online: of the capacity", 0.20, share)
        yield Floor(f"bulk beside {load}x online: online in time", 0.999, unharmed)

    def starving(seconds: float) -> float:
        summary, _ = both(3 * seconds, 1.2)
        return summary.tenants["bulk"].device_part

    yield Floor("bulk beside 1.2x online: of the device time", 0.04, starving)


def _long() -> Iterator[Floor]:
    """A backlog whose single runs are longer than online requests can stand: it has
    its share, which online requests pay for, and no more."""
    share = 0.05

    @lru_cache
    def both(seconds: float) -> Summary:
        bulk = {
            "tenant": "bulk",
            "priority": "bulk",
            "arrivals": "backlog:100",
            "models": ("slow",),
            "start_s": 1.0,
        }
        slow = {"name": "slow", "alpha_ms": 80.0, "beta_ms": 2.0, "max_batch": 8}
        return run(
            a_scenario(
                DEVICE,
                {"load": 0.6, "limit_ms": 50.0, "tenant": "online"},
                bulk,
                workers=1,
                beside=(slow,),
                seconds=5 * seconds,
            )
        )[0]

    def part(seconds: float) -> float:
        return both(seconds).tenants["bulk"].device_part

    yield Floor(
        "bulk of long runs: its share over what it had", 0.75, lambda s: share / part(s)
    )
    yield Floor("bulk of long runs: of the device time", 0.04, part)
    yield Floor(
        "bulk of long runs: online in time",
        0.94,
        lambda seconds: both(seconds).tenants["online"].attainment,
    )


def _together() -> Iterator[Floor]:
    """A job's records of eight rows, which ride in the batches of their model's online
    requests; no hops."""
    capacity = 32 / 0.013
    rows = 8

    @lru_cache
    def both(seconds: float) -> Summary:
        online = {"load": 0.4, "tenant": "online"}
        job = {"tenant": "job", "priority": "bulk", "arrivals": "backlog:12"}
        hops = dict.fromkeys(("request_ms", "control_ms", "response_ms"), 0.0)
        return run(
            a_scenario(
                DEVICE,
                online,
                {**job, "rows": rows},
                workers=1,
                seconds=seconds,
                pool=hops,
            )
        )[0]

    def share(seconds: float) -> float:
        tenants = both(seconds).tenants
        left = capacity - tenants["online"].goodput
        return rows * tenants["job"].goodput / left

    def soon(seconds: float) -> float:
        tenants = both(seconds).tenants
        rate = tenants["online"].goodput + rows * tenants["job"].goodput
        least_us = longest_wait_us(lambda rows: 5_000 + 250 * rows, 32, rate)
        return least_us / (tenants["online"].p99_ms * 1000)

    yield Floor("bulk among 0.4x online: of what is left", 0.8, share)
    yield Floor("bulk among 0.4x online: the bound over the p99", 0.9, soon)
