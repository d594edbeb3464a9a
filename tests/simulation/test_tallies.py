"""Counts that take no more room with more requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.simulation import Histogram, Tallies


@given(st.lists(st.integers(1, 10**8), min_size=1), st.floats(0.01, 1.0))
def test_a_quantile_is_within_a_percent(values: list[int], part: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)

    ordered = sorted(values)
    exact = ordered[max(-int(-part * len(ordered) // 1) - 1, 0)]
    assert histogram.quantile(part) == pytest.approx(exact, rel=0.011)
    assert ordered[0] <= histogram.quantile(part) <= ordered[-1]
    assert histogram.mean == pytest.approx(sum(values) / len(values))


def test_a_distribution_ends_at_the_whole() -> None:
    histogram = Histogram()
    for value in (10, 20, 20, 40):
        histogram.add(value)

    parts = [part for _, part in histogram.distribution()]
    assert parts == [0.25, 0.75, 1.0]


def test_tallies_put_together_count_both() -> None:
    one, other = Tallies(), Tallies()
    for tallies, second in ((one, 0), (other, 2)):
        tallies.offered += 4
        tallies.on_time += 3
        tallies.refused["overloaded"] += 1
        tallies.latency_us.add(1000)
        tallies.reach(second)
        tallies.offered_by_second[second] += 4
        tallies.on_time_by_second[second] += 3

    one.merge(other)

    assert (one.offered, one.on_time, one.refused["overloaded"]) == (8, 6, 2)
    assert one.attainment == 0.75
    assert one.attainment_between(1, 3) == 0.75
    assert one.attainment_between(1, 2) == 1.0
    assert one.latency_us.count == 2
