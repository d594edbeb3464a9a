"""The shape of MLPerf Inference's server and offline scenarios.

Server: Poisson arrivals of single samples, 99 % under the bound; the rate is searched
for, and a run passes by LoadGen's early stopping (a one-sided binomial test at 99 %
confidence), so that a short run is never taken for more than it shows. Offline: all
samples at once, no bound. Samples are simulated, so there is no accuracy run.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, lgamma, log, log1p

import msgspec

from headrace.simulation.scenario import Scenario
from headrace.simulation.summary import Summary, simulate

__all__ = ["Mlperf", "find_server_rate", "measure_offline", "queries_needed"]

PERCENTILE = 0.99
CONFIDENCE = 0.99
SEARCH_STEPS = 8
QUERIES_MIN = 20_000


class Mlperf(msgspec.Struct, frozen=True, kw_only=True):
    """The highest rate that passed, and the offline rate beside it."""

    server: float
    offline: float
    ratio: float
    """The field's usual single figure for batching under a bound."""

    queries: int
    over: int
    needed: int
    """Queries that a pass with so many over the bound takes."""

    summary: Summary


def queries_needed(
    over: int, *, percentile: float = PERCENTILE, confidence: float = CONFIDENCE
) -> int:
    """Fewest queries with which ``over`` late ones still show that ``percentile`` are
    in time: as few late ones are then less likely than ``1 - confidence`` of a
    system that just fails."""
    low, high = over, over + 1
    while _at_most(over, high, percentile) > 1 - confidence:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if _at_most(over, middle, percentile) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _at_most(over: int, queries: int, percentile: float) -> float:
    """Probability of at most ``over`` late ones among ``queries``."""
    total = 0.0
    late, fine = log1p(-percentile), log(percentile)
    for k in range(min(over, queries) + 1):
        ways = lgamma(queries + 1) - lgamma(k + 1) - lgamma(queries - k + 1)
        total += exp(ways + k * late + (queries - k) * fine)
    return total


def find_server_rate(
    scenario: Scenario, on_progress: Callable[[float], None] = lambda _: None
) -> Mlperf:
    """Bisect for the highest passing rate between none and the offline one. Each run
    has at least :data:`QUERIES_MIN` queries. Raises ValueError where a run would pass
    a scenario's limits."""
    offline = measure_offline(scenario)
    low, high = 0.0, 1.0
    best: tuple[Summary, int, int, int] | None = None
    for step in range(SEARCH_STEPS):
        factor = (low + high) / 2
        seconds = max(scenario.seconds, QUERIES_MIN / (factor * offline.goodput))
        server = _variant(scenario, seconds, rate=offline.goodput, arrivals="poisson")
        summary, results = simulate(server, factor=factor)
        found = results.of()
        over = found.offered - found.on_time
        needed = queries_needed(over)
        if found.offered >= needed:
            low, best = factor, (summary, found.offered, over, needed)
        else:
            high = factor
        on_progress((step + 1) / SEARCH_STEPS)
    if best is None:
        summary, queries, over, needed = offline, 0, 0, queries_needed(0)
    else:
        summary, queries, over, needed = best
    rate = low * offline.goodput
    return Mlperf(
        server=rate,
        offline=offline.goodput,
        ratio=rate / offline.goodput,
        queries=queries,
        over=over,
        needed=needed,
        summary=summary,
    )


def measure_offline(scenario: Scenario) -> Summary:
    """Samples per second when all are there at once. Raises as
    :func:`find_server_rate`."""
    first = scenario.streams[0]
    offline = _variant(
        scenario,
        scenario.seconds,
        arrivals="once",
        load=None if first.rate else 1.0,
        rate=first.rate,
        limit_ms=None,
        priority="bulk",
    )
    return simulate(offline)[0]


def _variant(scenario: Scenario, seconds: float, **stream: object) -> Scenario:
    """The scenario with its first stream alone, changed."""
    written = scenario.model_dump(mode="python", exclude_unset=True)
    changed = {**written["streams"][0], "load": None, **stream}
    if isinstance(changed.get("priority"), int):
        changed["priority"] = changed["priority"].name.lower()
    told = {**written, "seconds": seconds, "streams": [changed]}
    return Scenario.model_validate(told)
