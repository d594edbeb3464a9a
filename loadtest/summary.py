"""Rounds of one scenario brought together, and compared with a baseline."""

from __future__ import annotations

import os
import platform as host
import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec

from headrace.errors import SetupError
from loadtest.bench import Result
from loadtest.scenario import Scenario, Target

__all__ = [
    "BASELINES",
    "COMPARED",
    "Judged",
    "Summary",
    "Value",
    "judge",
    "machine",
    "read_baseline",
    "summarise",
    "write_baseline",
]

BASELINES = Path(__file__).parent / "baselines"

COMPARED = (
    "answered_of_bare",
    "goodput_of_bare",
    "attainment",
    "mean_batch",
    "answered_of_floor",
    "cpu_of_floor",
)
"""Ratios, which mean something on another machine as well."""

Baseline = dict[str, dict[str, float]]


class Value(msgspec.Struct, frozen=True):
    """A figure over the rounds."""

    median: float
    least: float
    most: float


class Summary(msgspec.Struct, frozen=True):
    """A run on a platform, all rounds."""

    run: str
    platform: str
    figures: dict[str, Value]
    results: list[Result]

    @property
    def name(self) -> str:
        return f"{self.run} ({self.platform})" if self.platform else self.run


class Judged(msgspec.Struct, frozen=True):
    """A target, and whether the median met it; ``value`` None: not measured."""

    name: str
    figure: str
    target: str
    value: float | None
    met: bool


def summarise(results: Sequence[Result]) -> list[Summary]:
    """One summary per run and platform, in the order of their first results. Those of
    later platforms are compared with the first one's."""
    grouped: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        grouped.setdefault((result.run, result.platform), []).append(result)
    first: dict[str, Value] = {}
    found = []
    for (run, platform), each in grouped.items():
        figures = _figures(each)
        batch = figures["mean_batch"]
        if first.setdefault(run, batch) is not batch and first[run].median:
            ratio = batch.median / first[run].median
            figures["mean_batch_of_first"] = Value(ratio, ratio, ratio)
        found.append(Summary(run, platform, figures, each))
    return found


def judge(scenario: Scenario, summaries: Sequence[Summary]) -> list[Judged]:
    """Every target of the scenario that a measured run has; comparisons between
    platforms have no value on the first."""
    targets = {run.name: run.targets for run in scenario.runs}
    return [
        _judged(summary, figure, target)
        for summary in summaries
        for figure, target in targets[summary.run].items()
        if figure in summary.figures or not figure.endswith("_of_first")
    ]


def read_baseline(scenario: str) -> Baseline:
    """Figures by run; empty where none was kept."""
    path = BASELINES / f"{scenario}.json"
    if not path.exists():
        return {}
    try:
        document = msgspec.json.decode(path.read_bytes(), type=_Document)
    except msgspec.DecodeError as error:
        raise SetupError(f"the baseline {path} cannot be read: {error}") from error
    return document.runs


def write_baseline(scenario: str, summaries: Sequence[Summary]) -> None:
    """Keep what was measured; runs that were not measured keep their figures."""
    runs = read_baseline(scenario)
    for each in summaries:
        runs[each.name] = {
            figure: round(each.figures[figure].median, 4)
            for figure in COMPARED
            if figure in each.figures
        }
    BASELINES.mkdir(exist_ok=True)
    document = msgspec.json.encode(_Document(machine(), runs))
    path = BASELINES / f"{scenario}.json"
    path.write_bytes(msgspec.json.format(document, indent=2) + b"\n")


def machine() -> str:
    """The machine in a line."""
    name = host.machine()
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    return f"{os.cpu_count()} x {name}, Python {host.python_version()}"


class _Document(msgspec.Struct, frozen=True):
    machine: str
    runs: Baseline


def _figures(results: Sequence[Result]) -> dict[str, Value]:
    found = {}
    for figure in results[0].figures:
        values = [each.figures[figure] for each in results if figure in each.figures]
        found[figure] = Value(statistics.median(values), min(values), max(values))
    return found


def _judged(summary: Summary, figure: str, target: Target) -> Judged:
    value = summary.figures.get(figure)
    median = None if value is None else value.median
    met = median is not None and target.is_met(median)
    return Judged(summary.name, figure, str(target), median, met)
