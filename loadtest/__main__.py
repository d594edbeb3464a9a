"""``python -m loadtest``: run scenarios, print what they show."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from headrace.errors import SetupError
from loadtest.bench import Bench
from loadtest.command import new_app, run_command
from loadtest.report import print_report, write_report
from loadtest.scenario import SCENARIOS, read_scenario
from loadtest.sending import generator_command
from loadtest.summary import judge, read_baseline, summarise, write_baseline

_WIDTH = 200


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """How scenarios are run.

    Parameters
    ----------
    only
        Only the runs whose name contains this.
    rounds
        Each run so often; medians are shown, with the least and the most.
    generator
        c, python, or auto: c where there is a compiler.
    foreign_max
        A run beside which others used more cores than this is tried again.
    attempts
        How often at most; the quietest counts.
    out
        Folder of the JSON files and the pages.
    keep
        Make what was measured the baseline.
    """

    only: str = ""
    rounds: int = 1
    generator: str = "auto"
    foreign_max: float = 0.25
    attempts: int = 2
    out: Path = Path(".headrace/loadtest")
    keep: Annotated[bool, Parameter(negative=())] = False


def bench(*scenarios: str, options: Options = Options()) -> int:
    """Run load tests; the exit status is 1 if a target is missed.

    Parameters
    ----------
    scenarios
        Names in loadtest/scenarios or paths of files [default: all of them]
    """
    # Wide enough for the table also where the output is no terminal.
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    names = scenarios or sorted(file.stem for file in SCENARIOS.glob("*.toml"))
    _check_only(names, options.only)
    missed = sum(_bench(name, options, console) for name in names)
    return 1 if missed else 0


def _check_only(names: Sequence[str], only: str) -> None:
    """Raises SetupError if no run of the scenarios has ``only`` in its name."""
    runs = {name: [run.name for run in read_scenario(name).runs] for name in names}
    if any(only in run for listed in runs.values() for run in listed):
        return
    told = "; ".join(f"{name}: {', '.join(listed)}" for name, listed in runs.items())
    raise SetupError(f"--only {only} is in the name of no run: there are {told}.")


def _bench(name: str, options: Options, console: Console) -> int:
    """How many targets were missed."""
    scenario, stem = read_scenario(name), Path(name).stem
    command = generator_command(options.generator, options.out)
    test = Bench(
        scenario,
        command,
        foreign_max=options.foreign_max,
        attempts=options.attempts,
        say=partial(console.print, f"{stem}:", style="dim"),
    )
    summaries = summarise(list(test.run(options.only, options.rounds)))
    if not summaries:
        return 0
    judged = judge(scenario, summaries)
    print_report(scenario.title, summaries, judged, read_baseline(stem), console)
    page = write_report(options.out, stem, scenario.title, summaries, judged)
    console.print(f"sent by {shlex.join(command)}; report: {page}")
    if options.keep:
        write_baseline(stem, summaries)
    return sum(not each.met for each in judged)


def main() -> None:
    app = new_app("loadtest")
    app.default(bench)
    run_command(app)


if __name__ == "__main__":
    main()
