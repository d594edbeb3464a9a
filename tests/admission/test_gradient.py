"""A limit learned from latency alone."""

from __future__ import annotations

from headrace.admission import GradientLimit


def fed(limit: GradientLimit, latency_us: int, times: int) -> GradientLimit:
    for _ in range(times):
        limit.answered(latency_us, in_flight=limit.limit)
    return limit


def test_steady_latency_opens_the_limit() -> None:
    assert fed(GradientLimit(initial=8, limit_max=100), 10_000, 200).limit == 100


def test_rising_latency_closes_it() -> None:
    limit = fed(GradientLimit(initial=64, limit_max=64), 10_000, 100)

    assert fed(limit, 100_000, 20).limit < 32


def test_idle_requests_teach_nothing() -> None:
    limit = GradientLimit(initial=8, limit_max=100)
    for _ in range(100):
        limit.answered(10_000, in_flight=1)

    assert limit.limit == 8


def test_the_limit_never_closes_entirely() -> None:
    limit = fed(GradientLimit(initial=64, limit_max=64), 1_000, 50)

    assert fed(limit, 10_000_000, 500).limit >= 4
