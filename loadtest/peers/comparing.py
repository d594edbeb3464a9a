"""What was measured, side by side: pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from loadtest.peers.killing import Killed
from loadtest.peers.measuring import KILLED_RUN, Measurement
from loadtest.peers.systems import FLOOR, FUSED, HEADRACE

__all__ = [
    "HEADINGS",
    "LEGEND",
    "PROMISES",
    "Failure",
    "Promise",
    "Step",
    "Verdict",
    "plan",
    "rows",
    "verdicts",
]


class Step(NamedTuple):
    """One start of a system."""

    scenario: str
    round: int
    system: str


def plan(
    scenarios: Sequence[str], systems: Sequence[str], rounds: range
) -> Iterator[Step]:
    """All systems are asked the same before any is asked something else, each round
    beginning with another one, so that a drift of the machine meets all."""
    for number in rounds:
        for scenario in scenarios:
            first = number % len(systems)
            for system in (*systems[first:], *systems[:first]):
                yield Step(scenario, number, system)


class Failure(msgspec.Struct, frozen=True):
    """A system that could not be measured in a scenario, in its own last words."""

    system: str
    scenario: str
    words: str


class Promise(NamedTuple):
    """Our throughput at so many connections over a peer's, in the same round
    and the same form."""

    peer: str
    connections: int
    at_least: float
    ours: str = HEADRACE


PROMISES = (
    *(
        Promise(peer, connections, at_least)
        for peer, at_least in (
            ("LitServe", 5.0),
            ("BentoML", 5.0),
            ("KServe", 5.0),
            ("MLServer", 5.0),
            ("Ray Serve", 2.0),
        )
        for connections in (64, 128, 256)
    ),
    Promise("Triton", 64, 0.7),
    Promise("Triton", 128, 0.9),
    Promise("Triton", 256, 1.0),
    Promise("Triton", 64, 1.0, FUSED),
    Promise("Triton", 128, 1.0, FUSED),
)


class Verdict(msgspec.Struct, frozen=True):
    """The median of the ratio over the rounds in which both were measured."""

    ours: str
    peer: str
    forms: str
    connections: int
    at_least: float
    ratio: float
    held: bool

    def __str__(self) -> str:
        verdict = "held" if self.held else "NOT HELD"
        return (
            f"{verdict}: {self.ours} {self.ratio:.2f}x {self.peer} at "
            f"{self.connections} connections ({self.forms}), "
            f"promised {self.at_least:g}x"
        )


def verdicts(found: Sequence[Measurement]) -> list[Verdict]:
    """Of every promise about which something was measured: in the same form, and in
    binary where a peer has JSON alone."""
    made = []
    for promise in PROMISES:
        run = f"{promise.connections} connections"
        theirs = list(_of(found, promise.peer, "tiny", run))
        ours = {
            (each.round, each.form): each.figures.answered
            for each in _of(found, promise.ours, "tiny", run)
        }
        for form in ("binary", "JSON"):
            ratios = [
                ours[each.round, form] / max(each.figures.answered, 1e-9)
                for each in theirs
                if (each.round, form) in ours and form in ("binary", each.form)
            ]
            if ratios:
                same = theirs[0].form == form
                ratio = statistics.median(ratios)
                made.append(
                    Verdict(
                        promise.ours,
                        promise.peer,
                        form if same else f"{form} against its {theirs[0].form}",
                        promise.connections,
                        promise.at_least,
                        ratio,
                        ratio >= promise.at_least,
                    )
                )
    return made


class Column(NamedTuple):
    """The median over the rounds of a figure of one run."""

    heading: str
    digits: int
    scenario: str
    run: str
    value: Callable[[Measurement], float | None]


def _answered(each: Measurement) -> float:
    return each.figures.answered


def _goodput(each: Measurement) -> float:
    return each.figures.goodput


def _p50(each: Measurement) -> float:
    return each.figures.succeeded.percentile(50)


def _p99(each: Measurement) -> float:
    return each.figures.succeeded.percentile(99)


def _of_bare(each: Measurement) -> float | None:
    return each.figures.answered / each.bare if each.bare else None


def _of_kill(value: Callable[[Killed], float | None]) -> Callable[[Measurement], float]:
    def found(each: Measurement) -> float:
        assert each.killed is not None
        figure = value(each.killed)
        return math.inf if figure is None else figure

    return found


def _columns() -> Iterator[Column]:
    for connections in (64, 128, 256):
        run = f"{connections} connections"
        yield Column(f"{connections}/s", 0, "tiny", run, _answered)
        yield Column("p50", 1, "tiny", run, _p50)
        yield Column("p99", 1, "tiny", run, _p99)
    yield Column("half p99", 1, "tiny", "half load", _p99)
    yield Column("CPU", 0, "tiny", "128 connections", lambda each: each.cpu_us)
    yield Column("MB", 0, "tiny", "128 connections", lambda each: each.memory_mb)
    yield Column("of bare", 3, "accelerator", "128 connections", _of_bare)
    for load in ("0.5x", "1x", "2x", "4x"):
        yield Column(load, 0, "overload", load, _goodput)
    yield Column("lost", 0, "kill", KILLED_RUN, _of_kill(lambda each: each.lost))
    yield Column("of", 0, "kill", KILLED_RUN, _of_kill(lambda each: each.sent))
    yield Column("first", 1, "kill", KILLED_RUN, _of_kill(lambda each: each.first_s))
    yield Column("again", 1, "kill", KILLED_RUN, _of_kill(lambda each: each.again_s))


_COLUMNS = tuple(_columns())
HEADINGS = ("system", "form", *(each.heading for each in _COLUMNS))
LEGEND = (
    "64/s, 128/s, 256/s: the tiny model in closed loops of so many connections, "
    "answers per second with p50 and p99 in ms; half p99: ms at half of that load, "
    "Poisson; CPU: µs per answer of all its processes, and MB: their memory, at 128 "
    "connections; of bare: the simulated accelerator in a closed loop of 128, over the "
    "accelerator without a server; 0.5x to 4x: answers per second within 100 ms when "
    "so many multiples of the accelerator's capacity are offered; lost: requests that "
    "a killed worker cost, of those sent after it; first, again: seconds to the first "
    "answer, and until 99 % are answered within 100 ms again."
)


def rows(found: Sequence[Measurement]) -> list[list[str]]:
    """A row per system and form: the floor, ours, then the rest by throughput; cells
    are empty where nothing was measured."""
    best: dict[tuple[str, str], float] = {}
    for each in found:
        key = each.system, each.form
        value = each.figures.answered if each.scenario == "tiny" else 0.0
        best[key] = max(best.get(key, 0.0), value)
    ranks = {FLOOR: 0, HEADRACE: 1, FUSED: 2}
    ordered = sorted(best, key=lambda key: (ranks.get(key[0], 3), -best[key]))
    return [
        [*key, *(_cell(found, key, column) for column in _COLUMNS)] for key in ordered
    ]


def _cell(found: Sequence[Measurement], key: tuple[str, str], column: Column) -> str:
    values = [
        value
        for each in _of(found, key[0], column.scenario, column.run)
        if each.form == key[1] and (value := column.value(each)) is not None
    ]
    if not values:
        return ""
    median = statistics.median(values)
    return "never" if median == math.inf else f"{median:.{column.digits}f}"


def _of(
    found: Iterable[Measurement], system: str, scenario: str, run: str
) -> Iterator[Measurement]:
    for each in found:
        if (each.system, each.scenario, each.run) == (system, scenario, run):
            yield each
