"""Records of requests turned into figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from loadtest.references import Floor
from loadtest.stream import OK, UNANSWERED, WRONG, Records

__all__ = [
    "PERCENTILES",
    "Answers",
    "Figures",
    "Host",
    "Second",
    "Timeline",
    "answers",
    "derived",
    "figures_of",
    "timeline_of",
]

Integers = npt.NDArray[np.int64]

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9)
_WINDOW_S = 0.25
_ATTAINED = 0.99


class Answers(msgspec.Struct, frozen=True):
    """Answers of one kind; times in ms from the scheduled arrival."""

    count: int
    percentiles_ms: dict[str, float]
    max_ms: float

    def percentile(self, share: float) -> float:
        return self.percentiles_ms[f"{share:g}"]


class Second(msgspec.Struct, frozen=True):
    """A window of a stream, by when its requests were due; rates per second."""

    at_s: float
    offered: float
    goodput: float
    refused: float
    p99_ms: float


class Figures(msgspec.Struct, frozen=True):
    """One stream; rates per second of the time in which it was sent."""

    model: str
    offered: float
    answered: float
    """With status 200 and the right answer."""
    goodput: float
    """Answered within the objective."""
    attainment: float
    """The share of what was offered that was answered within the objective."""
    succeeded: Answers
    refused: Answers
    outcomes: dict[str, int]
    """By status and reason."""
    lost: int
    """Never answered, broken off, or answered wrongly."""
    lag_p99_ms: float
    """How late the generator itself was."""
    generator_us: float
    """What the generator spent on a request."""
    connections: int
    recovery_s: float | None
    """Streams with steps: from the start of the last step to the first instant from
    which every quarter of a second had an attainment of 99 %."""


class Host(msgspec.Struct, frozen=True):
    """The processes meanwhile."""

    cpu_us: dict[str, float]
    """Per answer of any status, all streams; ``generator`` is not of ours."""
    cores: dict[str, float]
    memory_mb: dict[str, float]
    log_bytes: dict[str, float]
    """Per answer of any status, by kind of topic."""
    mean_batch: float
    batches: float
    """Per second."""
    busy: float
    """The share of time in which the device ran."""
    hops_ms: dict[str, float]
    bare: float | None
    """Rows per second of the accelerator alone, just before."""
    bare_beside: float | None
    """The same, meanwhile, on the machine that the platform uses."""
    foreign_cores: float
    """Kept busy by processes that have nothing to do with the test."""
    restarts: int


def figures_of(
    records: Records,
    model: str,
    *,
    sent_s: float,
    slo_ms: float,
    last_step_s: float | None = None,
) -> Figures:
    """Figures of what was due within ``sent_s``; ``last_step_s`` is when the load
    became what it was at the end."""
    due = _column(records.scheduled_ns)
    took_ms = (_column(records.ended_ns) - due) / 1e6
    status = _status(records)
    ok = status == OK
    good = ok & (took_ms <= slo_ms)
    refused = status > OK
    lag_ms = (_column(records.sent_ns) - due)[_column(records.sent_ns) >= 0] / 1e6
    recovery_s = None
    if last_step_s is not None:
        recovery_s = _recovery(due / 1e9, good, last_step_s, sent_s)
    return Figures(
        model,
        offered=len(due) / sent_s,
        answered=int(ok.sum()) / sent_s,
        goodput=int(good.sum()) / sent_s,
        attainment=float(good.mean()) if len(due) else 0.0,
        succeeded=_answers(took_ms[ok]),
        refused=_answers(took_ms[refused]),
        outcomes=_outcomes(records),
        lost=int((status < OK).sum()),
        lag_p99_ms=float(np.percentile(lag_ms, 99)) if len(lag_ms) else 0.0,
        generator_us=records.cpu_ns / 1e3 / max(len(due), 1),
        connections=records.connections,
        recovery_s=recovery_s,
    )


Timeline = list[Second]


def answers(records: Records) -> int:
    """How many were answered or refused by the server."""
    return int((_status(records) >= OK).sum())


def timeline_of(records: Records, *, sent_s: float, slo_ms: float) -> Timeline:
    """A stream by quarters of a second."""
    due_s = _column(records.scheduled_ns) / 1e9
    took_ms = _column(records.ended_ns) / 1e6 - due_s * 1e3
    status = _status(records)
    windows = []
    for at_s in np.arange(0, sent_s, _WINDOW_S).tolist():
        here = (due_s >= at_s) & (due_s < at_s + _WINDOW_S)
        ok = here & (status == OK)
        windows.append(
            Second(
                at_s,
                int(here.sum()) / _WINDOW_S,
                int((ok & (took_ms <= slo_ms)).sum()) / _WINDOW_S,
                int((here & (status > OK)).sum()) / _WINDOW_S,
                float(np.percentile(took_ms[ok], 99)) if ok.any() else 0.0,
            )
        )
    return windows


def derived(
    streams: Sequence[Figures], host: Host, capacity: float, floor: Floor
) -> dict[str, float]:
    """The figures that targets and baselines name. Ratios to the bare accelerator
    take the better of its two runs."""
    first = streams[0]
    found: dict[str, float | None] = {
        "answered": first.answered,
        "goodput": first.goodput,
        "attainment": first.attainment,
        "p50_ms": first.succeeded.percentile(50),
        "p99_ms": first.succeeded.percentile(99),
        "mean_batch": host.mean_batch,
        "busy": host.busy,
        "recovery_s": first.recovery_s,
        "lost": sum(each.lost for each in streams),
        "refused": first.refused.count / max(first.offered, 1e-9),
        "refused_p99_ms": first.refused.percentile(99),
        "company_of_capacity": sum(each.answered for each in streams[1:]) / capacity,
    }
    if host.bare is not None:
        bare = max(host.bare, host.bare_beside or 0.0)
        found["answered_of_bare"] = first.answered / bare
        found["goodput_of_bare"] = first.goodput / bare
    for service, cost in host.cpu_us.items():
        found[f"{service}_us"] = cost
    ours = [cost for service, cost in host.cpu_us.items() if service != "generator"]
    found["cpu_us"] = sum(ours)
    found["floor_us"] = floor.us
    found["cpu_of_floor"] = sum(ours) / floor.us
    found["answered_of_floor"] = first.answered / floor.per_second
    return {name: value for name, value in found.items() if value is not None}


def _column(column: Any) -> Integers:
    return np.frombuffer(column, np.int64)


def _status(records: Records) -> Integers:
    table = np.array([each.status for each in records.outcomes] or [0], np.int64)
    return table[_column(records.outcome)]


def _answers(took_ms: npt.NDArray[np.float64]) -> Answers:
    if not len(took_ms):
        return Answers(0, {f"{share:g}": 0.0 for share in PERCENTILES}, 0.0)
    values = np.percentile(took_ms, PERCENTILES).tolist()
    named = {
        f"{share:g}": value for share, value in zip(PERCENTILES, values, strict=True)
    }
    return Answers(len(took_ms), named, float(took_ms.max()))


def _outcomes(records: Records) -> dict[str, int]:
    counts = np.bincount(
        _column(records.outcome), minlength=len(records.outcomes)
    ).tolist()
    words: Mapping[int, str] = {
        UNANSWERED: "unanswered",
        -1: "reset",
        -2: "connect failed",
        WRONG: "wrong answer",
    }
    return {
        f"{words.get(each.status, each.status)} {each.reason}".strip(): count
        for each, count in zip(records.outcomes, counts, strict=True)
    }


def _recovery(
    due_s: npt.NDArray[np.float64],
    good: npt.NDArray[np.bool_],
    last_step_s: float,
    end_s: float,
) -> float:
    recovered = last_step_s
    for start in np.arange(last_step_s, end_s, _WINDOW_S).tolist():
        here = (due_s >= start) & (due_s < start + _WINDOW_S)
        if here.any() and good[here].mean() < _ATTAINED:
            recovered = start + _WINDOW_S
    return recovered - last_step_s
