"""I24: what can only help does not harm, beyond a hundredth.

A list schedule may do worse with more machines, so less than none cannot be asked for.
"""

from __future__ import annotations

import pytest

from loadtest.pools import SHAPES, a_scenario, run

SECONDS = 3.0
WORKERS, LIMIT_MS = 4, 100.0


def answered_in_time(
    models: int, arrivals: str, load: float, *, workers: int, limit_ms: float
) -> int:
    """Of the same requests, whatever serves them."""
    shape = SHAPES["a11.6"]
    rate = load * WORKERS * 32 / (shape["alpha_ms"] + 32 * shape["beta_ms"]) * 1000
    stream = {"rate": rate, "arrivals": arrivals, "limit_ms": limit_ms}
    scenario = a_scenario(
        shape, stream, models=models, workers=workers, seconds=SECONDS
    )
    return run(scenario)[1].of().on_time


@pytest.mark.parametrize("load", [0.7, 0.95, 1.5])
@pytest.mark.parametrize(("models", "arrivals"), [(1, "poisson"), (5, "gamma:4")])
def test_a_worker_more_or_a_longer_limit_costs_no_answer_in_time(
    models: int, arrivals: str, load: float
) -> None:
    before = answered_in_time(
        models, arrivals, load, workers=WORKERS, limit_ms=LIMIT_MS
    )
    more = answered_in_time(
        models, arrivals, load, workers=WORKERS + 1, limit_ms=LIMIT_MS
    )
    longer = answered_in_time(
        models, arrivals, load, workers=WORKERS, limit_ms=LIMIT_MS + 20
    )

    assert min(more, longer) >= 0.99 * before
