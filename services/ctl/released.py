"""What batch formers have sent and refused, as their metrics say."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import httpx
import msgspec

from headrace.telemetry import Sample, samples_of

__all__ = ["Released", "released", "scraped"]

_ANSWER_WITHIN_S = 2.0

_Key = tuple[str, str]
"""Model and priority."""


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """What left of one model in one priority, in all lanes, since their batch formers
    began. Waits and slack are of its requests; all else of the batches that such a
    request is the head of. None: nothing was measured."""

    batches: int
    rows: float | None
    """Of a batch, on average, without padding."""

    fill: float | None
    """Of the most rows that the version takes, on average."""

    wait_p50_ms: float | None
    wait_p99_ms: float | None
    """Between a request's record and its batch."""

    slack_p1_ms: float | None
    """What 1 % of the requests had at most to spare when their batch left, its
    predicted run deducted; None: they have no deadline."""

    overrun: float | None
    """Measured over predicted run time, on average."""

    left: dict[str, int]
    """Batches, by why they left when they did."""

    refused: dict[str, int]
    """Requests that ended in the queue, without a run; not those refused at the door,
    of which the ingresses' ``headrace_requests_total`` tells."""


def scraped(urls: Iterable[str]) -> tuple[list[Sample], list[str]]:
    """The metrics of all of ``urls``, and a sentence for each that has none to tell."""
    found: list[Sample] = []
    silent: list[str] = []
    # Not through a proxy: a batch former is beside us or in the same cluster.
    with httpx.Client(timeout=_ANSWER_WITHIN_S, trust_env=False) as client:
        for url in sorted(set(urls)):
            try:
                answer = client.get(f"{url}/metrics").raise_for_status()
                found += samples_of(answer.text)
            except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
                silent.append(f"The batch former at {url} shows no metrics: {error}")
    return found, silent


def released(samples: Iterable[Sample]) -> dict[_Key, Released]:
    """By model and priority; versions and processes are added up."""
    sums = defaultdict[tuple[str, _Key], float](float)
    buckets: dict[tuple[str, _Key], defaultdict[float, float]] = {}
    left, refused = _Words(), _Words()
    keys: dict[_Key, None] = {}
    for name, labels, value in samples:
        if not name.startswith("headrace_") or not {"model", "priority"} <= {*labels}:
            continue
        key = labels["model"], labels["priority"]
        match name:
            case "headrace_batches_total":
                left[key][labels["reason"]] += int(value)
            case "headrace_refused_requests_total":
                refused[key][labels["reason"]] += int(value)
            case _ if name.endswith("_bucket"):
                below = buckets.setdefault((name, key), defaultdict(float))
                below[float(labels["le"])] += value
            case _ if name.endswith(("_sum", "_count")):
                sums[name, key] += value
            case _:
                continue
        keys[key] = None

    def mean(name: str, key: _Key) -> float | None:
        count = sums[f"{name}_count", key]
        return sums[f"{name}_sum", key] / count if count else None

    def at(name: str, key: _Key, part: float) -> float | None:
        found = _quantile(buckets.get((f"{name}_bucket", key), {}), part)
        return None if found is None else found * 1000

    return {
        key: Released(
            batches=sum(left[key].values()),
            rows=mean("headrace_batch_rows", key),
            fill=mean("headrace_batch_fill_ratio", key),
            wait_p50_ms=at("headrace_queue_wait_seconds", key, 0.5),
            wait_p99_ms=at("headrace_queue_wait_seconds", key, 0.99),
            slack_p1_ms=at("headrace_slack_seconds", key, 0.01),
            overrun=mean("headrace_run_overrun_ratio", key),
            left=dict(left[key].most_common()),
            refused=dict(refused[key].most_common()),
        )
        for key in keys
    }


class _Words(defaultdict[_Key, Counter[str]]):
    def __init__(self) -> None:
        super().__init__(Counter)


def _quantile(below: Mapping[float, float], part: float) -> float | None:
    """Evenly within a bucket, as Prometheus reads it; of the last, which has no end,
    its beginning. ``below``: counts up to each upper bound."""
    bounds = sorted(below)
    if not bounds or not below[bounds[-1]]:
        return None
    wanted = part * below[bounds[-1]]
    start, before = 0.0, 0.0
    for bound in bounds:
        if below[bound] >= wanted and below[bound] > before:
            if bound == bounds[-1]:
                return start
            inside = (wanted - before) / (below[bound] - before)
            return start + (bound - start) * inside
        start, before = bound, below[bound]
    return start
