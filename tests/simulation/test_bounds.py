"""Bounds that no policy may pass, against brute force and known curves."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from headrace.simulation.bounds import capacity, offline_optimum, zero_drop_rate


def by_brute_force(arrivals: list[int], limit: int, rows_max: int) -> int:
    """Try every subset, cut into every sequence of contiguous batches."""
    for count in range(len(arrivals), 0, -1):
        for chosen in combinations(arrivals, count):
            if _can_serve(chosen, limit, rows_max):
                return count
    return 0


def run(rows: int) -> int:
    return 5 + 2 * rows


def _can_serve(chosen: tuple[int, ...], limit: int, rows_max: int) -> bool:
    best = {0: 0}
    for last in range(1, len(chosen) + 1):
        ends = [
            max(best[last - size], chosen[last - 1]) + run(size)
            for size in range(1, min(rows_max, last) + 1)
            if last - size in best
            and max(best[last - size], chosen[last - 1]) + run(size)
            <= chosen[last - size] + limit
        ]
        if ends:
            best[last] = min(ends)
    return len(chosen) in best


def test_the_offline_optimum_is_that_of_brute_force() -> None:
    dice = Random(1)
    for _ in range(60):
        arrivals = sorted(dice.randrange(60) for _ in range(8))
        limit, rows_max = dice.randrange(8, 30), dice.randrange(1, 5)

        assert offline_optimum(arrivals, limit, run, rows_max) == by_brute_force(
            arrivals, limit, rows_max
        )


@pytest.mark.parametrize(("workers", "rate"), [(1, 160), (2, 174), (4, 183), (8, 187)])
def test_the_zero_drop_rate_is_the_published_one(workers: int, rate: int) -> None:
    """Per worker, 11.56 + 4.588 ms a row, 100 ms less 10 ms of hops."""
    told = zero_drop_rate(lambda b: 11_560 + 4_588 * b, 32, workers, 90_000)

    assert told / workers == pytest.approx(rate, abs=1)


def test_capacity_is_that_of_the_fullest_batches() -> None:
    assert capacity(lambda b: 5_000 + 250 * b, 32, 1) == pytest.approx(2461.5, abs=0.1)
