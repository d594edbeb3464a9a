"""The production objects in virtual time keep what they promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from headrace.domain import Priority
from headrace.scheduling import BatchFormer, SchedulingSettings
from headrace.simulation import Loss, ModelSpec, Pool, Results, Stream, World

CEILING = 2461.5
"""Rows per second of the default model's worker in full batches."""


def simulated(
    *streams: Stream, pool: Pool | None = None, models: int = 1, seed: int = 1
) -> Results:
    specs = [ModelSpec(name=f"m{number}") for number in range(models)]
    return World(pool or Pool(), specs, streams, new_former(), seed=seed).run()


def new_former() -> Callable[[], BatchFormer]:
    names: Iterator[str] = (str(number) for number in count())
    return lambda: BatchFormer(SchedulingSettings(), batch_ids=names)


def online(load: float, *, seconds: float = 5) -> Stream:
    return Stream(rate=load * CEILING, end_s=seconds)


def backlog(model: int = 0, *, seconds: float = 5) -> Stream:
    return Stream(
        rate=1,
        end_s=seconds,
        process="backlog:200",
        models=(model,),
        priority=Priority.BULK,
        limit_us=None,
        tenant="bulk",
    )


def test_every_request_is_answered_or_refused_once() -> None:
    told = simulated(online(2.0)).of()

    assert told.offered == told.on_time + told.late + told.refused.total()


def test_the_same_seed_gives_the_same_run() -> None:
    one, other = (simulated(online(1.2, seconds=2)) for _ in range(2))

    assert one.of().on_time == other.of().on_time
    assert one.release == other.release


def test_below_its_capacity_nearly_everything_is_in_time() -> None:
    assert simulated(online(0.8)).of().attainment >= 0.99


@pytest.mark.parametrize("load", [1.5, 2.0, 4.0])
def test_overload_keeps_the_device_as_useful_as_it_can_be(load: float) -> None:
    told = simulated(online(load))

    assert told.of().on_time / told.seconds >= 0.98 * CEILING
    assert told.batch_rows.mean >= 30


def test_after_overload_it_recovers_within_two_seconds() -> None:
    told = simulated(
        Stream(rate=4 * CEILING, end_s=5),
        Stream(rate=0.5 * CEILING, start_s=5, end_s=10),
    ).of()

    assert told.attainment_between(7, 10) >= 0.99


def test_bulk_fills_what_online_requests_leave_and_costs_them_nothing() -> None:
    told = simulated(online(0.6), backlog())

    assert told.of(limited=True).attainment >= 0.99
    assert told.of(limited=False).on_time / told.seconds >= 0.2 * CEILING


def test_bulk_does_not_starve_beside_more_online_requests_than_can_be_served() -> None:
    told = simulated(online(1.2), backlog(1), models=2)
    bulk_us = sum(told.of(limited=False).device_us_by_second)

    assert bulk_us >= 0.04 * told.seconds * 1_000_000


def test_a_small_tenant_gets_his_share_beside_a_greedy_one() -> None:
    told = simulated(
        Stream(rate=1.4 * CEILING, end_s=5, tenant="greedy"),
        Stream(rate=0.14 * CEILING, end_s=5, tenant="small"),
        pool=Pool(admission=False),
    )

    assert told.of(tenant="small").attainment >= 0.95


def test_what_a_lost_worker_held_runs_elsewhere() -> None:
    pool = Pool(workers=2, losses=(Loss(worker=0, at_s=1, seconds=2),))
    told = simulated(online(0.8, seconds=4), pool=pool).of()

    assert told.offered == told.on_time + told.late + told.refused.total()
    assert told.attainment >= 0.95


def test_a_worker_that_is_lost_twice_at_once_returns_after_the_later_loss() -> None:
    first, second = (
        Loss(worker=0, at_s=at_s, seconds=seconds)
        for at_s, seconds in ((0.5, 1.2), (1.0, 2.0))
    )
    told = simulated(online(0.5, seconds=5), pool=Pool(losses=(first, second))).of()

    assert told.attainment_between(1, 2) == told.attainment_between(2, 3) == 0
    assert told.attainment_between(4, 5) > 0.9
