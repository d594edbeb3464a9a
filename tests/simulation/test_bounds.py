"""The bounds against what can be computed another way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.domain import Priority
from headrace.simulation import Scenario, simulate
from headrace.simulation.bounds import (
    Offer,
    capacity,
    inoue_mean_latency_us,
    longest_wait_us,
    offline_optimum,
    overload_goodput,
    zero_drop_rate,
)


def affine(alpha_us: int, beta_us: int) -> Callable[[int], int]:
    return lambda rows: alpha_us + beta_us * rows


def served_at_most(
    arrivals: list[int], limit: int, run: Callable[[int], int], rows_max: int
) -> int:
    """By trying every choice of requests and every way to cut it into batches."""
    best = 0

    def go(place: int, free_at: int, served: int) -> None:
        nonlocal best
        best = max(best, served)
        for first in range(place, len(arrivals)):
            batch: list[int] = []
            grow(first, batch, free_at, served)

    def grow(place: int, batch: list[int], free_at: int, served: int) -> None:
        chosen = [*batch, arrivals[place]]
        if len(chosen) > rows_max:
            return
        ends_at = max(free_at, chosen[-1]) + run(len(chosen))
        if ends_at <= chosen[0] + limit:
            go(place + 1, ends_at, served + len(chosen))
        for later in range(place + 1, len(arrivals)):
            grow(later, chosen, free_at, served)

    go(0, 0, 0)
    return best


@settings(max_examples=60, deadline=None)
@given(
    gaps=st.lists(st.integers(0, 12), min_size=1, max_size=7),
    limit=st.integers(4, 30),
    alpha=st.integers(0, 9),
    beta=st.integers(1, 4),
    rows_max=st.integers(1, 4),
)
def test_the_offline_optimum_is_what_brute_force_finds(
    gaps: list[int], limit: int, alpha: int, beta: int, rows_max: int
) -> None:
    arrivals = [sum(gaps[: place + 1]) for place in range(len(gaps))]
    run = affine(alpha, beta)

    assert offline_optimum(arrivals, limit, run, rows_max) == served_at_most(
        arrivals, limit, run, rows_max
    )


@pytest.mark.parametrize(
    ("alpha", "beta", "rows_max", "limit_ms", "workers", "rate"),
    [
        (11_560, 4_588, 32, 50, 1, 118),
        (11_560, 4_588, 32, 50, 8, 160),
        (11_560, 4_588, 32, 90, 4, 183),
        (11_560, 4_588, 32, 190, 8, 202),
        (5_204, 1_082, 64, 50, 2, 780),
        (5_204, 1_082, 64, 100, 8, 860),
    ],
)
def test_the_zero_drop_rate_per_worker_is_the_known_one(
    alpha: int, beta: int, rows_max: int, limit_ms: int, workers: int, rate: int
) -> None:
    run = affine(alpha, beta)

    found = zero_drop_rate(run, rows_max, workers, limit_ms * 1000)

    assert found / workers == pytest.approx(rate, abs=1)


def test_capacity_is_that_of_the_largest_batch() -> None:
    assert capacity(affine(5_000, 250), 32, 2) == pytest.approx(2 * 32 / 0.013)


def test_goodput_in_overload_is_bounded_by_the_cheapest_rows_first() -> None:
    cheap = Offer(affine(0, 1_000), 1, 10_000, rate=400)
    dear = Offer(affine(0, 4_000), 1, 10_000, rate=400)

    # 0.4 s of the second go to the cheap ones, 0.6 s to a quarter as many dear ones.
    assert overload_goodput([dear, cheap], 1) == pytest.approx(400 + 150)


def test_requests_of_several_rows_cost_as_many() -> None:
    offer = Offer(affine(1_000, 1_000), 8, 100_000, rate=1e9, rows=4)

    assert overload_goodput([offer], 1) == pytest.approx(1e6 / (9_000 / 8 * 4))


def test_what_no_batch_makes_in_time_counts_for_nothing() -> None:
    assert overload_goodput([Offer(affine(5_000, 1), 4, 3_000, rate=10)], 1) == 0


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8])
def test_eager_batching_stays_just_below_the_known_bound_of_its_mean_latency(
    load: float,
) -> None:
    alpha_ms, beta_ms = 2.0, 0.5
    rate = load * 1000 / beta_ms
    scenario = Scenario.model_validate(
        {
            "seconds": 20,
            "seed": 3,
            "policy": "triton",
            "pool": {"request_ms": 0, "control_ms": 0, "response_ms": 0},
            "models": [
                {
                    "name": "m",
                    "alpha_ms": alpha_ms,
                    "beta_ms": beta_ms,
                    "max_batch": 4096,
                }
            ],
            "streams": [{"rate": rate}],
        }
    )

    _, results = simulate(scenario)

    mean_us = results.of(priority=Priority.STANDARD).latency_us.mean
    bound_us = inoue_mean_latency_us(rate, alpha_ms * 1000, beta_ms * 1000)
    assert 0.9 * bound_us < mean_us < bound_us


@pytest.mark.parametrize(("rows", "run_us"), [(2, 5_500), (20, 10_000), (32, 13_000)])
def test_who_comes_as_a_run_begins_waits_for_two_of_the_length_that_the_rate_asks_for(
    rows: int, run_us: int
) -> None:
    rate = rows / run_us * 1e6

    assert longest_wait_us(affine(5_000, 250), 32, rate) == pytest.approx(2 * run_us)


def test_runs_between_two_sizes_are_a_mixture_of_both() -> None:
    run_us = {1: 2_000, 2: 2_800, 3: 4_000, 4: 4_400}
    rate = 7 / 8_400e-6

    assert longest_wait_us(run_us.__getitem__, 4, rate) == pytest.approx(8_400)


def test_an_idle_worker_may_be_found_and_a_lost_one_never() -> None:
    run = affine(5_000, 250)

    assert longest_wait_us(run, 32, 100) == 5_250
    assert longest_wait_us(run, 32, 2_500) == float("inf")
