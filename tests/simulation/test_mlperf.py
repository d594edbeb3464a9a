"""MLPerf's shapes: how many queries show what, and the rates that are found."""

from __future__ import annotations

import pytest

from headrace.simulation import Scenario, find_server_rate, measure_offline
from headrace.simulation.mlperf import queries_needed


@pytest.mark.parametrize(("over", "needed"), [(0, 459), (1, 662), (2, 838), (10, 2010)])
def test_early_stopping_needs_the_known_number_of_queries(
    over: int, needed: int
) -> None:
    """LoadGen's, for 99 % at 99 % confidence."""
    assert queries_needed(over) == needed


def a_scenario(**stream: object) -> Scenario:
    return Scenario.model_validate(
        {
            "seconds": 2,
            "models": [{"name": "m"}],
            "streams": [{"load": 1.0, "limit_ms": 100} | stream],
        }
    )


def test_offline_runs_everything_in_full_batches() -> None:
    summary = measure_offline(a_scenario())

    assert summary.attainment == 1.0
    assert summary.mean_batch == pytest.approx(32, abs=0.5)
    assert summary.goodput == pytest.approx(summary.bound, rel=0.02)


def test_the_server_rate_passes_and_is_near_the_offline_one() -> None:
    found = find_server_rate(a_scenario())

    assert found.queries >= found.needed
    assert 0.9 < found.ratio <= 1.0
    assert found.over < 0.01 * found.queries
