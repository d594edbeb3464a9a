"""A run in figures, with what no policy could beat beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import ceil, floor
from typing import NamedTuple

import msgspec

from headrace.simulation.bounds import (
    Offer,
    capacity,
    overload_goodput,
    zero_drop_rate,
)
from headrace.simulation.pool import ModelSpec, Pool
from headrace.simulation.scenario import Scenario
from headrace.simulation.tallies import Results, Tallies
from headrace.simulation.workload import Kind, Stream, arrivals_of, kinds_of
from headrace.simulation.world import World

__all__ = ["Share", "Summary", "read_arrivals", "simulate"]

MS = 1_000
SECOND_US = 1_000_000


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant's, priority's or model's part of a run."""

    offered: float
    goodput: float
    attainment: float
    p99_ms: float
    device_part: float
    """Of the device time that was used within :attr:`Summary.seconds`; a backlog that
    is left runs on after them, with the workers to itself."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Rates are requests per second of those with a time limit; of all, where none
    has one. Percentiles are of what was answered."""

    policy: str
    factor: float
    """On the scenario's rates."""

    offered: float
    goodput: float
    """Answered in time while requests still came: what drains afterwards says nothing
    of the rate that a policy can hold."""

    attainment: float
    """Part of the offered that was answered in time, also afterwards."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    mean_batch: float
    refused: int
    late: int
    bound: float
    """Most goodput that any policy could have."""

    zero_drop_bound: float | None
    """Highest rate at which one model's requests can all be in time; None: several
    models."""

    busy: float
    """Part of the workers' time in which something ran."""

    unlimited: float
    """Requests per second without a time limit that were answered."""

    seconds: float
    reasons: dict[str, int]
    releases: dict[str, int]
    tenants: dict[str, Share]
    priorities: dict[str, Share]
    models: dict[str, Share]
    """By the name of the section, all of its models together."""


def simulate(
    scenario: Scenario,
    *,
    factor: float = 1.0,
    on_progress: Callable[[int], None] = lambda _: None,
) -> tuple[Summary, Results]:
    """Run a scenario; ``factor`` on what arrives online.

    Raises as :meth:`Scenario.check_requests`.
    """
    scenario.check_requests(factor=factor)
    pool = scenario.build_pool()
    models = scenario.build_models()
    streams = scenario.build_streams(factor=factor)
    world = World(
        pool,
        models,
        streams,
        scenario.new_scheduler(models),
        seed=scenario.seed,
        settings=scenario.door,
    )
    results = world.run(on_progress)
    hops_us = pool.request_us + pool.control_us + pool.response_us
    summary = _summary(scenario, factor, results)
    summary = msgspec.structs.replace(
        summary,
        bound=_bound(streams, models, hops_us, scenario.speed, results),
        zero_drop_bound=_zero_drop(streams, models, hops_us, pool, scenario.speed),
    )
    return summary, results


def read_arrivals(scenario: Scenario, *, stream: int) -> list[int]:
    """Instants in µs of one stream's requests, as :func:`simulate` offers them."""
    streams = scenario.build_streams()
    return [at_us for at_us, _ in arrivals_of(streams, stream, scenario.seed)]


def _summary(scenario: Scenario, factor: float, results: Results) -> Summary:
    seconds = results.seconds
    limited = results.of(limited=True)
    counted = limited if limited.offered else results.of()
    sections = scenario.sections()

    def rate(tallies: Tallies) -> float:
        in_time = tallies.on_time_within if limited.offered else tallies.on_time
        return in_time / seconds

    if not limited.offered:
        seconds = max(results.ended_us / SECOND_US, 1e-6)
    latency = counted.latency_us
    return Summary(
        policy=scenario.policy,
        factor=factor,
        offered=counted.offered / seconds,
        goodput=rate(counted),
        attainment=counted.attainment,
        p50_ms=latency.quantile(0.5) / MS,
        p99_ms=latency.quantile(0.99) / MS,
        p999_ms=latency.quantile(0.999) / MS,
        mean_batch=results.batch_rows.mean,
        refused=sum(counted.refused.values()),
        late=counted.late,
        bound=0.0,
        zero_drop_bound=None,
        busy=results.busy_us / (seconds * SECOND_US * results.workers),
        unlimited=rate(results.of(limited=False)),
        seconds=seconds,
        reasons=_named(counted.refused),
        releases=_named(results.release),
        tenants=_shares(results, seconds, rate, lambda kind: kind.tenant),
        priorities=_shares(
            results, seconds, rate, lambda kind: kind.priority.name.lower()
        ),
        models=_shares(results, seconds, rate, lambda kind: sections[kind.model]),
    )


def _named(counts: Counter[str]) -> dict[str, int]:
    return {str(name): number for name, number in counts.most_common()}


def _shares(
    results: Results,
    seconds: float,
    rate: Callable[[Tallies], float],
    name_of: Callable[[Kind], str],
) -> dict[str, Share]:
    parts: dict[str, Tallies] = {}
    for kind, tallies in results.kinds:
        parts.setdefault(name_of(kind), Tallies()).merge(tallies)
    device_us = {
        name: sum(part.device_us_by_second[: ceil(seconds)])
        for name, part in parts.items()
    }
    used_us = sum(device_us.values()) or 1.0
    return {
        name: Share(
            offered=part.offered / seconds,
            goodput=rate(part),
            attainment=part.attainment,
            p99_ms=part.latency_us.quantile(0.99) / MS,
            device_part=device_us[name] / used_us,
        )
        for name, part in parts.items()
    }


class _Asked(NamedTuple):
    """Requests of one kind, of a stream that lasts from ``start_s`` to ``end_s``."""

    start_s: float
    end_s: float
    kind: Kind
    tallies: Tallies

    def between(self, start_s: float, end_s: float) -> int:
        """How many came then: at least those, counted in whole seconds."""
        if end_s <= self.start_s or start_s >= self.end_s:
            return 0
        if start_s <= self.start_s and end_s >= self.end_s:
            return self.tallies.offered
        return sum(self.tallies.offered_by_second[floor(start_s) : ceil(end_s)])


def _bound(
    streams: Sequence[Stream],
    models: Sequence[ModelSpec],
    hops_us: int,
    workers: float,
    results: Results,
) -> float:
    """By what came, not by what was to be expected: dice may offer more.

    Whoever comes in a span is served until the longest limit after it, or the end of
    what counts. The bound holds for any spans; those in which the same streams are
    active know most.
    """
    owners = [stream for stream in streams for _ in kinds_of([stream])]
    asked = [
        _Asked(stream.start_s, stream.end_s, kind, tallies)
        for stream, (kind, tallies) in zip(owners, results.kinds, strict=True)
    ]
    limited = [each for each in asked if each.kind.limit_us is not None]
    if not limited:
        return _unlimited_bound(asked, models, workers)
    longest_s = max(each.kind.limit_us or 0 for each in limited) / SECOND_US
    edges = {edge for each in limited for edge in (each.start_s, each.end_s)}
    whole_s = results.seconds
    instants = sorted({0.0, *edges, whole_s})

    def most(start_s: float, until_s: float) -> float:
        offers = [
            Offer(
                run=models[kind.model].run_us,
                rows_max=models[kind.model].max_batch,
                limit_us=kind.limit_us - hops_us,
                rate=each.between(start_s, until_s),
                rows=kind.rows,
            )
            for each in limited
            if (kind := each.kind).limit_us is not None
        ]
        ends_s = min(until_s + longest_s, whole_s)
        return overload_goodput(offers, workers * (ends_s - start_s))

    spans = sum(most(start_s, until_s) for start_s, until_s in pairwise(instants))
    return min(spans, most(0.0, whole_s)) / whole_s


def _unlimited_bound(
    asked: Sequence[_Asked], models: Sequence[ModelSpec], workers: float
) -> float:
    """Of what was answered."""
    served = sum(each.tallies.on_time for each in asked)
    cost_us = sum(
        models[each.kind.model].row_us() * each.kind.rows * each.tallies.on_time
        for each in asked
    )
    return workers * SECOND_US * served / cost_us if served else 0.0


def _zero_drop(
    streams: Sequence[Stream],
    models: Sequence[ModelSpec],
    hops_us: int,
    pool: Pool,
    speed: float,
) -> float | None:
    limits = {stream.limit_us for stream in streams}
    if len(models) > 1 or len(limits) > 1 or None in limits:
        return None
    (model,) = models
    limit_us = limits.pop()
    assert limit_us is not None
    rate = zero_drop_rate(
        model.run_us, model.max_batch, pool.workers, limit_us - hops_us
    )
    most = capacity(model.run_us, model.max_batch, speed)
    rows = streams[0].rows
    return min(rate * speed / pool.workers, most) / rows
