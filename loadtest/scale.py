"""``python -m loadtest.scale``: what a request costs as one thing grows.

Models, lanes, processes of a service, the size of a payload, connections: one grows,
the rest stays, and closed loops say what that does to throughput, to the CPU per
request of each hop and to memory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from cyclopts import Parameter
from rich import box
from rich.console import Console
from rich.table import Table

from headrace.errors import SetupError
from loadtest import plots
from loadtest.bench import Bench, Result
from loadtest.command import new_app, run_command
from loadtest.report import SERVICES, page_of, table_of
from loadtest.scenario import Mlp, Platform, Run, Scenario, Simulated, Stream
from loadtest.sending import generator_command
from loadtest.summary import machine

__all__ = ["AXES", "Axis", "Point", "faster_than_linear", "points_of"]

_WIDTH = 160
_CONNECTIONS = 128
_LIVE_MAX = 10
_WARM_UP_S = 10.0
_TINY = Mlp(kind="mlp")
_IDLE = Simulated(kind="simulated", alpha_ms=1, beta_ms=0)
_NOISE = 1.25
"""Costs of single runs differ by so much without a reason."""


class Stage(NamedTuple):
    """A scenario, and how much of the axis each of its runs stands for: by the run's
    name, or by the platform's label where that differs from run to run."""

    scenario: Scenario
    amounts: Mapping[str, int]


class Axis(NamedTuple):
    """One thing that grows."""

    unit: str
    stages: tuple[Stage, ...]


class Point(msgspec.Struct, frozen=True):
    """A run; CPU in µs per answer, memory in MB over all processes of a service."""

    amount: int
    answered: float
    p50_ms: float
    p99_ms: float
    mean_batch: float
    cpu_us: dict[str, float]
    memory_mb: dict[str, float]
    lost: int
    foreign_cores: float

    @property
    def cost_us(self) -> float:
        return sum(self.cpu_us.get(service, 0.0) for service in SERVICES)


def models(amount: int) -> Stage:
    """``amount`` models, of which at most ten are asked."""
    live = [f"live-{number}" for number in range(min(amount, _LIVE_MAX))]
    idle = [f"idle-{number}" for number in range(amount - len(live))]
    streams = [
        Stream(model=name, arrivals="closed", connections=_CONNECTIONS // len(live))
        for name in live
    ]
    scenario = Scenario(
        title=f"{amount} models",
        models=dict.fromkeys(live, _TINY) | dict.fromkeys(idle, _IDLE),
        runs=(Run(name="asked", streams=tuple(streams)),),
        warm_up_s=_WARM_UP_S / len(live),
    )
    return Stage(scenario, {"asked": amount})


def processes(*platforms: tuple[int, Platform]) -> Stage:
    stream = Stream(model="tiny", arrivals="closed", connections=_CONNECTIONS)
    scenario = Scenario(
        title="processes",
        models={"tiny": _TINY},
        platforms=tuple(platform for _, platform in platforms),
        runs=(Run(name="asked", streams=(stream,)),),
        warm_up_s=_WARM_UP_S,
    )
    return Stage(scenario, {each.label: amount for amount, each in platforms})


def payloads(*sizes: int) -> Stage:
    """Bytes of the tensor, both ways."""
    names = {f"{size} bytes": size for size in sizes}
    scenario = Scenario(
        title="payloads",
        models={
            f"b{size}": _IDLE.model_copy(update={"shape": (size // 4,)})
            for size in sizes
        },
        runs=tuple(
            Run(
                name=name,
                streams=(Stream(model=f"b{size}", arrivals="closed", connections=32),),
            )
            for name, size in names.items()
        ),
        warm_up_s=2.0,
    )
    return Stage(scenario, names)


def connections(*counts: int) -> Stage:
    names = {f"{count} connections": count for count in counts}
    scenario = Scenario(
        title="connections",
        models={"tiny": _TINY},
        runs=tuple(
            Run(
                name=name,
                streams=(Stream(model="tiny", arrivals="closed", connections=count),),
            )
            for name, count in names.items()
        ),
        warm_up_s=_WARM_UP_S,
    )
    return Stage(scenario, names)


AXES: dict[str, Axis] = {
    "models": Axis("models", tuple(map(models, (1, 10, 100, 1000)))),
    "lanes": Axis(
        "lanes, a worker each",
        (processes(*((n, Platform(lanes=n, workers=n)) for n in (1, 2, 4))),),
    ),
    "ingresses": Axis(
        "ingresses", (processes(*((n, Platform(ingress=n)) for n in (1, 2, 4))),)
    ),
    "formers": Axis(
        "formers, a lane and a worker each",
        (
            processes(
                *((n, Platform(formers=n, lanes=n, workers=n)) for n in (1, 2, 4))
            ),
        ),
    ),
    "payloads": Axis("bytes", (payloads(256, 4096, 65536, 1 << 20),)),
    "connections": Axis("connections", (connections(1, 8, 64, 256, 1000, 2000),)),
}


def points_of(stage: Stage, results: Sequence[Result]) -> Iterator[Point]:
    for result in results:
        amounts = stage.amounts
        amount = amounts.get(result.run, amounts.get(result.platform, 0))
        answered = sum(each.answered for each in result.streams)
        slowest = max(result.streams, key=lambda each: each.succeeded.percentile(99))
        yield Point(
            amount,
            answered,
            slowest.succeeded.percentile(50),
            slowest.succeeded.percentile(99),
            result.host.mean_batch,
            {name: result.host.cpu_us.get(name, 0.0) for name in SERVICES},
            result.host.memory_mb,
            sum(each.lost for each in result.streams),
            result.host.foreign_cores,
        )


def faster_than_linear(points: Sequence[Point]) -> list[str]:
    """Services whose CPU per answer grew by more than the amount did, from one point
    to the next."""
    found = []
    for before, after in pairwise(points):
        grown = after.amount / before.amount * _NOISE
        found += [
            f"{service} from {before.amount} to {after.amount}: "
            f"{before.cpu_us[service]:.0f} to {after.cpu_us[service]:.0f} µs"
            for service in SERVICES
            if after.cpu_us[service] > before.cpu_us[service] * grown
        ]
    return found


_HEADINGS = (
    *("answered/s", "p50 ms", "p99 ms", "batch", "ingress", "former", "worker"),
    *("broker", "all", "ingress MB", "former MB", "worker MB", "broker MB", "foreign"),
)


def _cells(point: Point) -> list[str]:
    return [
        f"{point.amount:,}",
        f"{point.answered:,.0f}",
        f"{point.p50_ms:.1f}",
        f"{point.p99_ms:.1f}",
        f"{point.mean_batch:.1f}",
        *(f"{point.cpu_us[service]:.0f}" for service in SERVICES),
        f"{point.cost_us:.0f}",
        *(f"{point.memory_mb.get(service, 0):.0f}" for service in SERVICES),
        f"{point.foreign_cores:.2f}",
    ]


def _print(name: str, axis: Axis, points: Sequence[Point], console: Console) -> None:
    table = Table(title=name, box=box.SIMPLE_HEAD)
    for heading in (axis.unit, *_HEADINGS):
        table.add_column(heading, justify="right")
    for point in points:
        table.add_row(*_cells(point))
    console.print(table)
    for line in faster_than_linear(points):
        console.print(f"faster than linear: {line}", style="red")
    for point in points:
        if point.lost:
            console.print(f"{point.amount}: {point.lost} lost", style="red")


def _section(name: str, axis: Axis, points: Sequence[Point]) -> str:
    table = table_of((axis.unit, *_HEADINGS), [_cells(point) for point in points])
    faults = "".join(f"<li>{escape(line)}" for line in faster_than_linear(points))
    drawn = plots.growth(
        axis.unit,
        [point.amount for point in points],
        {service: [p.cpu_us[service] for p in points] for service in SERVICES},
        [point.answered for point in points],
    )
    return f"<h2>{escape(name)}</h2>{table}<ul>{faults}</ul>{drawn}"


def scale(
    *names: str,
    seconds: Annotated[float, Parameter(name="--seconds")] = 5.0,
    out: Annotated[Path, Parameter(name="--out")] = Path(".headrace/loadtest"),
) -> int:
    """What a request costs as one thing grows; exit status 1 if it is more than that.

    Parameters
    ----------
    names
        models, lanes, ingresses, formers, payloads, connections [default: all]
    seconds
        Of each closed loop.
    out
        Folder of the page and of the JSON file.
    """
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    if unknown := [name for name in names if name not in AXES]:
        raise SetupError(f"{', '.join(unknown)}: there are {', '.join(AXES)}")
    command = generator_command("auto", out)
    found: dict[str, list[Point]] = {}
    for name in names or AXES:
        found[name] = []
        for stage in AXES[name].stages:
            runs = tuple(
                run.model_copy(update={"seconds": seconds})
                for run in stage.scenario.runs
            )
            test = Bench(
                stage.scenario.model_copy(update={"runs": runs}),
                command,
                foreign_max=0.25,
                attempts=1,
                say=partial(console.print, f"{name}:", style="dim"),
            )
            found[name] += points_of(stage, list(test.run("", 1)))
        _print(name, AXES[name], found[name], console)
    sections = "".join(_section(name, AXES[name], each) for name, each in found.items())
    page = out / "scale.html"
    page.write_text(page_of("Scale", sections), "utf-8")
    document = {"machine": machine(), "axes": found}
    (out / "scale.json").write_bytes(msgspec.json.encode(document) + b"\n")
    console.print(f"report: {page}")
    return int(any(map(faster_than_linear, found.values())))


def main() -> None:
    app = new_app("loadtest.scale")
    app.default(scale)
    run_command(app)


if __name__ == "__main__":
    main()
