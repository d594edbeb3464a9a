"""``python -m loadtest``: run scenarios, print what they show."""

from __future__ import annotations

import sys
from pathlib import Path

from cyclopts import App, CycloptsError
from rich.console import Console

from headrace.errors import HeadraceError
from loadtest.bench import Bench
from loadtest.report import print_report, write_report
from loadtest.scenario import SCENARIOS, read_scenario
from loadtest.sending import generator
from loadtest.summary import judge, read_baseline, summarise, write_baseline

_OUT = Path(".headrace/loadtest")
_USAGE = 2


def bench(
    *scenarios: str,
    only: str = "",
    rounds: int = 1,
    generator_kind: str = "auto",
    foreign_max: float = 0.25,
    attempts: int = 2,
    out: Path = _OUT,
    keep: bool = False,  # noqa: FBT001, FBT002 - an option of a command
) -> int:
    """Run load tests; the exit status is 1 if a target is missed.

    Parameters
    ----------
    scenarios
        Names in loadtest/scenarios or paths of files [default: all of them]
    only
        Only the runs whose name contains this.
    rounds
        Each run so often; medians are shown, with the least and the most.
    generator_kind
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
    console = Console(width=None if sys.stdout.isatty() else 200)
    using = generator(generator_kind, out)
    console.print(f"generator: {using[0]}")
    missed = 0
    for name in scenarios or sorted(file.stem for file in SCENARIOS.glob("*.toml")):
        scenario = read_scenario(name)
        stem = Path(name).stem
        test = Bench(
            scenario,
            using,
            foreign_max=foreign_max,
            attempts=attempts,
            say=lambda text, stem=stem: console.print(f"{stem}: {text}", style="dim"),
        )
        summaries = summarise(list(test.run(only, rounds)))
        if not summaries:
            continue
        judged = judge(scenario, summaries)
        baseline = read_baseline(stem)
        print_report(scenario.title, summaries, judged, baseline, console)
        page = write_report(out, stem, scenario.title, summaries, judged)
        console.print(f"report: {page}")
        if keep:
            write_baseline(stem, summaries)
        missed += sum(not each.met for each in judged)
    return 1 if missed else 0


def main() -> None:
    app = App(name="loadtest", help_format="plaintext")
    app.default(bench)
    try:
        status = app(
            sys.argv[1:],
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except (CycloptsError, HeadraceError) as error:
        print(f"loadtest: {error}", file=sys.stderr)
        sys.exit(_USAGE)
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
