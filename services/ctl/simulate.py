"""``headrace simulate``: the pool in virtual time, before it is bought."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number
from pydantic import ValidationError
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from headrace.errors import SetupError
from headrace.simulation import (
    PIECES_MAX,
    POLICIES,
    SECONDS_MAX,
    SECONDS_MIN,
    Results,
    Scenario,
    Summary,
    explained,
    find_server_rate,
    measure_offline,
    read_scenario,
    simulate,
)
from services.ctl.errors import UsageError
from services.ctl.options import usable, whole

__all__ = ["simulate_pool"]

_QUEUE_PER_WORKER = 256
_WIDE = 140
_FACTOR_MAX = 1_000
_SECONDS = Number(gte=SECONDS_MIN, lte=SECONDS_MAX)
Pieces = Annotated[
    int | None, Parameter(converter=whole, validator=Number(gte=1, lte=PIECES_MAX))
]
Seed = Annotated[
    int | None, Parameter(converter=whole, validator=Number(gte=0, lt=2**63))
]
_OPTIONS = {
    "models.0.alpha_ms": "--alpha-ms",
    "models.0.beta_ms": "--beta-ms",
    "models.0": "--alpha-ms, --beta-ms",
    "streams.0.load": "--load",
    "streams.0.limit_ms": "--slo-ms",
    "streams.0.arrivals": "--arrivals",
}
"""Where the options stand in a scenario, whose checks are theirs."""

_PolicyName = Literal[
    "headrace", "fifo", "triton", "clipper", "nexus", "clockwork", "symphony"
]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A pool of equal workers and equal models, asked for equally often."""

    workers: Pieces = None
    """GPU workers [default: 1]."""

    models: Pieces = None
    """Models, asked for equally often [default: 1]."""

    alpha_ms: float | None = None
    """Fixed part of a run [default: 5]."""

    beta_ms: float | None = None
    """Part of a run per row [default: 0.25]."""

    max_batch: Pieces = None
    """Most rows in a run [default: 32]."""

    slo_ms: float | None = None
    """Time limit of a request [default: 100]."""

    load: float | None = None
    """Offered load; 1 is what the workers do without a limit [default: 1]."""

    arrivals: str | None = None
    """poisson, even, gamma:CV2, or trace:FILE [default: poisson]."""

    seconds: Annotated[float | None, Parameter(validator=_SECONDS)] = None
    """Virtual time [default: 10]."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What is told of a run whatever describes the pool."""

    policy: _PolicyName | None = None
    """The product's own, or another system's batching [default: headrace]."""

    seed: Seed = None
    """Of all dice [default: 0]."""

    admission: bool | None = None
    """Whether ingresses refuse at the door; the product's policy alone."""


def simulate_pool(  # noqa: PLR0913 - one parameter per option
    *,
    scenario: Path | None = None,
    shape: Annotated[Shape, Parameter(name="*")] = Shape(),
    changes: Annotated[Changes, Parameter(name="*")] = Changes(),
    sweep: str | None = None,
    compare: Annotated[bool, Parameter(negative="")] = False,
    mlperf: Literal["server", "offline"] | None = None,
    report: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Simulate a pool: workers, models whose run takes alpha + beta * rows, requests.

    Parameters
    ----------
    scenario
        TOML file with models, streams and what happens; in place of the options that
        describe the pool.
    sweep
        Multiples of the load, one run each: 0.5,0.8,1,1.5,2.
    compare
        Run every policy on the same requests.
    mlperf
        Find the highest rate of MLPerf's server scenario, or measure its offline one.
    report
        Write a page of plots: FILE.html or FILE.png.
    as_json
        Print JSON.
    """
    described = _described(scenario, shape)
    described = described.model_copy(update=_given(changes))
    console = Console(stderr=True)
    _check_together(changes, compare=compare)
    if mlperf is not None:
        given = {"--sweep": sweep, "--compare": compare, "--report": report}
        for name, value in given.items():
            if value:
                raise UsageError(f"--mlperf {mlperf} prints one rate: omit {name}")
        _check_mlperf(mlperf, shape)
        try:
            return _mlperf(described, mlperf, console, as_json=as_json)
        except ValidationError as error:
            raise UsageError(f"--mlperf {mlperf}: {explained(error)}") from error
    if report is not None:
        _check_report(report)
    runs = _runs(
        described, _factors(sweep, described), compare=compare, console=console
    )
    if report is not None:
        from headrace.simulation.report import write_report  # noqa: PLC0415 - slow

        write_report(report, f"Simulated: {scenario or 'a pool'}", runs)
    summaries = [summary for summary, _ in runs]
    if as_json:
        _print_json(summaries[0] if len(summaries) == 1 else summaries)
    else:
        _show(summaries)
    return 0


def _check_together(changes: Changes, *, compare: bool) -> None:
    if compare and changes.policy is not None:
        raise UsageError("--compare runs every policy: omit --policy")
    if changes.admission and changes.policy not in {None, "headrace"}:
        raise UsageError(
            f"--policy {changes.policy} has no door: omit --admission, which is the "
            "product's policy's alone"
        )


def _check_mlperf(kind: Literal["server", "offline"], shape: Shape) -> None:
    """MLPerf says what arrives; offline, nothing has a time limit either."""
    given = {"--load": shape.load, "--arrivals": shape.arrivals}
    if kind == "offline":
        given["--slo-ms"] = shape.slo_ms
    for name, value in given.items():
        if value is not None:
            raise UsageError(f"--mlperf {kind} has its own or none: omit {name}")


def _check_report(report: Path) -> None:
    """Before the run, which may take long; what is not written leaves no file."""
    if report.suffix not in {".html", ".png"}:
        raise UsageError(f"--report {report}: name a .html or a .png file")
    with usable("report", report, "name another file with --report"):
        is_new = not report.exists()
        report.touch()
        if is_new:
            report.unlink()


def _given(options: Shape | Changes) -> dict[str, Any]:
    told = {field.name: getattr(options, field.name) for field in fields(options)}
    return {name: value for name, value in told.items() if value is not None}


def _described(path: Path | None, shape: Shape) -> Scenario:
    given = _given(shape)
    if path is not None:
        if given:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise UsageError(f"{names}: the scenario's file says that already")
        try:
            return read_scenario(path)
        except SetupError as error:
            raise UsageError(str(error)) from error
    workers = given.get("workers", 1)
    model = {"name": "model", "count": given.get("models", 1)}
    model |= _named(given, alpha_ms="alpha_ms", beta_ms="beta_ms")
    model |= _named(given, max_batch="max_batch")
    stream = {"load": given.get("load", 1.0)}
    stream |= _named(given, slo_ms="limit_ms", arrivals="arrivals")
    # The default limit is a lane's of a few workers.
    queue = max(4096, _QUEUE_PER_WORKER * workers)
    told = {
        "pool": {"workers": workers},
        "models": [model],
        "streams": [stream],
        "scheduling": {"queue_requests_max": queue},
        **_named(given, seconds="seconds"),
    }
    try:
        return Scenario.model_validate(told)
    except ValidationError as error:
        text = explained(error)
        for place, option in _OPTIONS.items():
            text = text.replace(place, option)
        raise UsageError(text) from error


def _named(given: dict[str, Any], **names: str) -> dict[str, Any]:
    """The options that were given, by the scenario's names."""
    return {name: given[option] for option, name in names.items() if option in given}


def _factors(sweep: str | None, scenario: Scenario) -> list[float]:
    if sweep is None:
        return [1.0]
    words = sweep.split(",")
    try:
        factors = [float(word) for word in words]
    except ValueError:
        factors = []
    if not factors or not all(0 < factor <= _FACTOR_MAX for factor in factors):
        raise UsageError(
            f"--sweep {sweep}: say multiples of the load, at most {_FACTOR_MAX:,}, as "
            "0.5,1,2"
        )
    for word, factor in zip(words, factors, strict=True):
        try:
            scenario.check_requests(factor=factor)
        except ValueError as error:
            raise UsageError(f"--sweep {word}: {error}") from error
    return factors


def _runs(
    scenario: Scenario, factors: Sequence[float], *, compare: bool, console: Console
) -> list[tuple[Summary, Results]]:
    policies = POLICIES if compare else (scenario.policy,)
    total = len(policies) * len(factors)
    found: list[tuple[Summary, Results]] = []
    with _progress(console) as progress:
        task = progress.add_task("", total=total * scenario.seconds)
        for policy in policies:
            variant = scenario.model_copy(update={"policy": policy})
            for factor in factors:
                done_s = len(found) * scenario.seconds
                progress.update(task, description=f"{policy} at {factor:g}")

                def advance(at_us: int, done_s: float = done_s) -> None:
                    progress.update(task, completed=done_s + at_us / 1e6)

                found.append(simulate(variant, factor=factor, on_progress=advance))
    return found


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    """A bar on a terminal that goes when it is done."""
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(
        *columns, console=console, transient=True, disable=not sys.stderr.isatty()
    ) as progress:
        yield progress


def _mlperf(
    scenario: Scenario,
    kind: Literal["server", "offline"],
    console: Console,
    *,
    as_json: bool,
) -> int:
    if kind == "offline":
        summary = measure_offline(scenario)
        if as_json:
            _print_json(summary)
        else:
            print(f"{summary.goodput:,.0f} samples/s of at most {summary.bound:,.0f}")
        return 0
    with _progress(console) as progress:
        task = progress.add_task("server", total=1.0)
        found = find_server_rate(
            scenario, lambda part: progress.update(task, completed=part)
        )
    if as_json:
        _print_json(found)
    else:
        print(
            f"{found.server:,.0f} queries/s pass, {found.ratio:.3f} of the offline "
            f"rate of {found.offline:,.0f}: {found.over} of {found.queries:,} were "
            f"over the bound, {found.needed:,} queries show 99 %"
        )
    return 0


def _print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value)).decode())


def _show(summaries: Sequence[Summary]) -> None:
    from headrace.simulation.report import COLUMNS, row_of  # noqa: PLC0415 - slow

    table = Table(box=box.SIMPLE_HEAD)
    for place, heading in enumerate(COLUMNS):
        table.add_column(heading, justify="left" if place == 0 else "right")
    for summary in summaries:
        table.add_row(*row_of(summary))
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDE)
    console.print(table)
    if len(summaries) == 1:
        _show_parts(summaries[0], console)


def _show_parts(summary: Summary, console: Console) -> None:
    from headrace.simulation.report import (  # noqa: PLC0415 - slow
        PART_COLUMNS,
        part_rows,
    )

    if rows := part_rows(summary):
        shares = Table(box=box.SIMPLE_HEAD)
        for place, heading in enumerate(PART_COLUMNS):
            shares.add_column(heading, justify="right" if place else "left")
        for row in rows:
            shares.add_row(*row)
        console.print(shares)
    for title, counts in (("refused", summary.reasons), ("left", summary.releases)):
        words = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        if words:
            console.print(f"{title}: {words}")
