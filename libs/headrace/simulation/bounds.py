"""What no policy can beat, to be drawn beside what one does.

``run(b)`` is the run time of ``b`` rows in µs, S the time limit less all hops.
Sources: the zero-drop bound is Symphony's (2023) with the exact waiting time of the
first request; the mean latency is Inoue's (arXiv 1912.06322); the exact optimum rests
on an exchange argument: for equal limits some optimal schedule uses blocks that are
contiguous in order of arrival, with drops between blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import NamedTuple

__all__ = [
    "Offer",
    "capacity",
    "inoue_mean_latency_us",
    "longest_wait_us",
    "offline_optimum",
    "overload_goodput",
    "zero_drop_rate",
]

Run = Callable[[int], int]
SECOND_US = 1_000_000


class Offer(NamedTuple):
    """Requests of one kind, ``rate`` per second, of ``rows`` rows each."""

    run: Run
    rows_max: int
    limit_us: int
    """Without the hops."""

    rate: float
    """Or their number, where a time is given in place of one second."""

    rows: int = 1


def capacity(run: Run, rows_max: int, workers: float) -> float:
    """Most rows per second without any limit on time."""
    return workers * SECOND_US * max(b / run(b) for b in range(1, rows_max + 1))


def zero_drop_rate(run: Run, rows_max: int, workers: float, limit_us: int) -> float:
    """Most rows per second of one model that can all be served in time, when they
    arrive evenly and the workers start one after another."""
    best = 0.0
    for b in range(1, rows_max + 1):
        if (1 + (b - 1) / (b * workers)) * run(b) <= limit_us:
            best = max(best, workers * b * SECOND_US / run(b))
    return best


def longest_wait_us(run: Run, rows_max: int, rate: float) -> float:
    """What those wait at least who come when a run has just begun, hops aside, while
    one worker serves ``rate`` rows per second of whatever priority: the rest of that
    run, then one of their own. The rate says how many runs there can be, and so how
    long they are on average; where some are shorter others are longer, so equal ones
    are best. A hundredth of a run less is a bound of the 99th percentile. Infinite: no
    size serves so much."""
    if rate * run(1) <= SECOND_US:
        return float(run(1))  # an idle worker may be found
    for b in range(2, rows_max + 1):
        if b * SECOND_US >= rate * run(b):
            # Of both sizes: rows = rate * time, and the time lies on their line.
            row_us = run(b) - run(b - 1)
            fixed_us = run(b) - b * row_us
            return 2 * fixed_us / (1 - rate * row_us / SECOND_US)
    return inf


def overload_goodput(offers: Iterable[Offer], workers: float) -> float:
    """Most requests per second in time when some may be dropped: the cheapest first.
    A fractional knapsack over the device time, so an upper bound for any policy.
    ``workers`` times as many seconds: most requests in that time."""
    costs = [(_least_us(offer), offer.rate) for offer in offers]
    left_us = workers * float(SECOND_US)
    served = 0.0
    for request_us, rate in sorted(costs):
        taken = min(rate, left_us / request_us)
        served += taken
        left_us -= taken * request_us
    return served


def _least_us(offer: Offer) -> float:
    """Least device time of a request that makes its limit."""
    row_us = min(
        (
            offer.run(b) / b
            for b in range(offer.rows, offer.rows_max + 1)
            if offer.run(b) <= offer.limit_us
        ),
        default=float("inf"),
    )
    return row_us * offer.rows


def offline_optimum(
    arrivals_us: Sequence[int], limit_us: int, run: Run, rows_max: int
) -> int:
    """Most of these requests (ascending, one row, equal limits) that one worker can
    answer in time if it knows them all beforehand. O(n² · rows_max)."""
    count = len(arrivals_us)
    never = 1 << 62
    run_us = [run(b) for b in range(rows_max + 1)]
    # finish[q][k]: least end of a schedule that considered q requests and serves k.
    finish = [[0] + [never] * count for _ in range(count + 1)]
    for considered in range(1, count + 1):
        ready_us = arrivals_us[considered - 1]
        for served in range(1, considered + 1):
            best = finish[considered - 1][served]
            for b in range(1, min(rows_max, served) + 1):
                before_us = finish[considered - b][served - b]
                ends_us = max(before_us, ready_us) + run_us[b]
                if ends_us <= arrivals_us[considered - b] + limit_us:
                    best = min(best, ends_us)
            finish[considered][served] = best
    return max(served for served in range(count + 1) if finish[count][served] < never)


def inoue_mean_latency_us(rate: float, alpha_us: float, beta_us: float) -> float:
    """Upper bound of the mean latency of eager batching without a limit on the size:
    Poisson arrivals of ``rate`` per second, one worker, run time alpha + beta · b."""
    lam = rate / SECOND_US
    load = lam * beta_us
    fixed = lam * alpha_us
    first = (beta_us + alpha_us) / (2 * (1 - load))
    first *= 1 + 2 * fixed + (1 - fixed) / (1 + load)
    second = 1.5 * alpha_us / (1 - load)
    second += (beta_us / 2) * (load + 2) / (1 - load**2)
    return min(first, second)
