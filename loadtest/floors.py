"""What the scheduling core holds to in the simulator, each with its figure.

    .venv/bin/python -m loadtest.floors [--seconds 20] [--only WORD]

The tests run the same floors shorter. Time limits are 100 ms and hops 1 ms each way
where nothing else is said; ``a5.2`` is a model whose run takes 5.2 ms and 1.08 ms per
row (at most 64), ``a11.6`` one of 11.56 and 4.588 (at most 32); M counts models, on 8
workers.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from headrace.simulation import POLICIES, Results, Scenario, read_arrivals
from headrace.simulation.bounds import offline_optimum, zero_drop_rate
from loadtest.bulk_floors import bulk_floors
from loadtest.door_floors import door_floors
from loadtest.pools import DEVICE, SHAPES, Floor, Section, a_scenario, run
from loadtest.tight_floors import tight_floors
from loadtest.urgency_floors import urgency_floors

BURSTS = "gamma:4"
LIMIT_US, HOPS_US = 100_000, 3_000


def floors() -> Iterator[Floor]:
    yield from chain(
        _overload(),
        _tables(),
        _lossless(),
        _optimum(),
        _recovery(),
        bulk_floors(),
        urgency_floors(),
        door_floors(),
        tight_floors(),
        _fairness(),
        _slower_device(),
        _disturbed(),
        _mixtures(),
        _field(),
        _field_elsewhere(),
    )


def _overload() -> Iterator[Floor]:
    """Goodput over the bound of any policy."""
    for name, model in SHAPES.items():
        for models in (1, 5, 20):
            for arrivals in ("poisson", BURSTS):
                for load in (1.5, 2.0):

                    def measure(
                        seconds: float,
                        model: Section = model,
                        models: int = models,
                        arrivals: str = arrivals,
                        load: float = load,
                    ) -> float:
                        stream = {"load": load, "arrivals": arrivals}
                        summary, _ = run(
                            a_scenario(model, stream, models=models, seconds=seconds)
                        )
                        return summary.goodput / summary.bound

                    yield Floor(
                        f"overload {load}x {name} M={models} {arrivals}: of the bound",
                        0.90 if models <= 5 else 0.75,
                        measure,
                    )


def _tables() -> Iterator[Floor]:
    """The same for measured run times that no line fits."""
    tables = {
        "flat (bert-base)": {1: 14.4, 2: 15.3, 4: 15.4, 8: 15.5, 16: 15.6},
        "knee (albert-xxlarge)": {1: 17.5, 2: 17.7, 4: 17.7, 8: 28.9, 16: 48.5},
        "steps (albert-xlarge)": {1: 21.9, 2: 30.9, 4: 55.4, 8: 54.1, 16: 84.8},
    }
    for name, table in tables.items():

        def measure(seconds: float, table: Mapping[int, float] = table) -> float:
            model = {"run_ms": table, "max_batch": 16}
            scenario = a_scenario(model, {"load": 1.5}, seconds=seconds)
            summary, _ = run(scenario)
            return summary.goodput / summary.bound

        yield Floor(f"overload 1.5x {name}: of the bound", 0.90, measure)


def _lossless() -> Iterator[Floor]:
    """Part in time at a part of the rate at which nobody need be lost."""
    for name, model in SHAPES.items():
        for models in (1, 5):
            for arrivals in ("poisson", BURSTS):
                # Here no policy has 99 % at 0.85: 0.973 ours, the next one 0.964.
                hard = models == 5 and name == "a11.6" and arrivals == BURSTS
                part = 0.78 if hard else 0.85

                def measure(
                    seconds: float,
                    model: Section = model,
                    models: int = models,
                    arrivals: str = arrivals,
                    part: float = part,
                ) -> float:
                    rate = part * _staggered(model)
                    stream = {"rate": rate, "arrivals": arrivals}
                    summary, _ = run(
                        a_scenario(model, stream, models=models, seconds=seconds)
                    )
                    return summary.attainment

                yield Floor(
                    f"in time at {part} of the zero-drop bound, {name} M={models} "
                    f"{arrivals}",
                    0.99,
                    measure,
                )


def _staggered(model: Section) -> float:
    alpha, beta = model["alpha_ms"] * 1000, model["beta_ms"] * 1000
    return zero_drop_rate(
        lambda rows: int(alpha + beta * rows),
        model["max_batch"],
        8,
        LIMIT_US - HOPS_US,
    )


def _optimum() -> Iterator[Floor]:
    """Answered in time over what one worker could who knew all arrivals before."""
    small = {**SHAPES["a11.6"], "max_batch": 16}
    for load in (0.7, 0.9, 1.1, 1.5):

        def measure(seconds: float, load: float = load) -> float:
            # The optimum takes time with the square of the requests.
            lasts_s = min(seconds, 6.0)
            scenario = a_scenario(
                small,
                {"load": 0.4, "end_s": 2.0, "tenant": "before"},
                {"load": load, "start_s": 2.5, "end_s": 2.5 + lasts_s},
                workers=1,
                seconds=2.5 + lasts_s,
                pool=dict.fromkeys(("request_ms", "control_ms", "response_ms"), 0.0),
            )
            _, results = run(scenario)
            arrivals = read_arrivals(scenario, stream=1)
            optimum = offline_optimum(
                arrivals, LIMIT_US, lambda rows: 11_560 + 4_588 * rows, 16
            )
            return results.of(tenant="default").on_time / optimum

        yield Floor(f"one worker at {load}x: of the offline optimum", 0.95, measure)


def _recovery() -> Iterator[Floor]:
    """Four times the capacity, then half of it."""

    def results_of(seconds: float, models: int) -> Results:
        half = seconds / 2
        return run(
            a_scenario(
                SHAPES["a5.2"],
                {"load": 4.0, "end_s": half},
                {"load": 0.5, "start_s": half},
                models=models,
                seconds=seconds,
            )
        )[1]

    for models in (1, 5):

        def after(seconds: float, models: int = models) -> float:
            whole = results_of(seconds, models).of()
            return whole.attainment_between(int(seconds / 2) + 1, int(seconds))

        yield Floor(f"4x, then 0.5x, M={models}: in time a second after", 0.99, after)


def _fairness() -> Iterator[Floor]:
    """Tenant a asks for ten times what b does, 1.5 times the capacity together."""
    models = {"device": (DEVICE, 1), "a5.2": (SHAPES["a5.2"], 8)}
    models["a11.6"] = SHAPES["a11.6"], 8
    for name, (model, workers) in models.items():
        for admission in (True, False):
            door = "" if admission else ", no door"

            def small(
                seconds: float,
                model: Section = model,
                workers: int = workers,
                admission: bool = admission,  # noqa: FBT001 - bound here
            ) -> float:
                scenario = a_scenario(
                    model,
                    {"load": 1.5 * 10 / 11, "tenant": "a"},
                    {"load": 1.5 / 11, "tenant": "b"},
                    workers=workers,
                    seconds=seconds,
                    admission=admission,
                )
                return run(scenario)[0].tenants["b"].attainment

            def switched(
                seconds: float,
                model: Section = model,
                workers: int = workers,
                admission: bool = admission,  # noqa: FBT001 - bound here
            ) -> float:
                much, little, half = 1.5 * 10 / 11, 1.5 / 11, seconds / 2
                scenario = a_scenario(
                    model,
                    {"load": much, "tenant": "a", "end_s": half},
                    {"load": little, "tenant": "a", "start_s": half},
                    {"load": little, "tenant": "b", "end_s": half},
                    {"load": much, "tenant": "b", "start_s": half},
                    workers=workers,
                    seconds=seconds,
                    admission=admission,
                )
                tallies = run(scenario)[1].of(tenant="a")
                return tallies.attainment_between(int(half) + 1, int(seconds))

            yield Floor(f"tenant b at a tenth of a, {name}{door}: in time", 0.95, small)
            yield Floor(
                f"roles of a and b switch, {name}{door}: a in time a second after",
                0.95,
                switched,
            )


def _slower_device() -> Iterator[Floor]:
    """Every run takes twice as long from half of the time on."""
    for load in (0.4, 0.8):

        def measure(seconds: float, load: float = load) -> float:
            half = seconds / 2
            scenario = a_scenario(
                SHAPES["a5.2"],
                {"load": load, "end_s": half + 0.5, "tenant": "before"},
                {"load": load, "start_s": half + 0.5, "tenant": "after"},
                models=5,
                seconds=seconds,
                pool={"slow_from_s": half},
            )
            after = run(scenario)[1].of(tenant="after")
            return 1 - after.late / after.offered

        yield Floor(f"runs double at {load}x: not late half a second on", 0.98, measure)


def _disturbed() -> Iterator[Floor]:
    """Goodput at 1.5 times the capacity over the bound of an undisturbed pool."""

    def of_the_bound(seconds: float, **pool: Any) -> float:
        scenario = a_scenario(
            SHAPES["a5.2"], {"load": 1.5}, models=5, seconds=seconds, pool=pool
        )
        summary, _ = run(scenario)
        return summary.goodput / summary.bound

    def lost(seconds: float) -> float:
        loss = {"worker": 0, "at_s": seconds / 3, "seconds": seconds / 3}
        return of_the_bound(seconds, losses=[loss])

    yield Floor(
        "overload 1.5x, runs vary by 10 %: of the bound",
        0.90,
        partial(of_the_bound, noise=0.1),
    )
    yield Floor(
        "overload 1.5x, four lanes and four doors: of the bound",
        0.90,
        partial(of_the_bound, lanes=4, ingresses=4),
    )
    yield Floor(
        "overload 1.5x, every other worker at two thirds of the speed: of the bound",
        0.88,
        partial(of_the_bound, speeds=(1.0, 1.5)),
    )
    # A third of the time without an eighth of the workers.
    yield Floor("overload 1.5x, a worker lost: of the bound", 0.90, lost)


def _mixtures() -> Iterator[Floor]:
    """Requests that differ in shape or in time limit, in one queue."""

    def shapes(seconds: float) -> float:
        model = {**DEVICE, "max_batch": 8}
        stream = {"load": 1.2, "shapes": 2}
        return run(a_scenario(model, stream, workers=1, seconds=seconds))[0].mean_batch

    def impatient(seconds: float) -> float:
        summary, _ = run(_two_limits(seconds))
        return summary.tenants["20ms"].attainment

    def unshrunk(seconds: float) -> float:
        mixed, _ = run(_two_limits(seconds))
        equal, _ = run(_two_limits(seconds, long_ms=20.0))
        return mixed.mean_batch / equal.mean_batch

    yield Floor("interleaved shapes, batches of at most 8: mean batch", 7.0, shapes)
    yield Floor("20 ms among 5 s: those of 20 ms in time", 0.99, impatient)
    yield Floor("20 ms among 5 s: mean batch, of that with 20 ms alone", 1.0, unshrunk)


def _two_limits(seconds: float, *, long_ms: float = 5000.0) -> Scenario:
    """Batches wait for half of their spare time, so that the limits matter; a full
    run leaves room for another one within 20 ms."""
    short = {"rate": 30.0, "limit_ms": 20.0, "tenant": "20ms"}
    long = {"load": 0.4, "limit_ms": long_ms, "tenant": "5s"}
    return a_scenario(
        {**DEVICE, "max_batch": 16},
        *(short, long),
        workers=1,
        seconds=seconds,
        scheduling={"deferral": 0.5},
    )


def _field() -> Iterator[Floor]:
    """No other policy has more goodput and larger batches on the same requests: the
    least of ours over theirs, in whichever of both we are better."""
    for name, model in SHAPES.items():
        for models in (1, 5, 20):
            for load in (0.5, 0.8, 1.5, 2.0):

                def measure(
                    seconds: float,
                    model: Section = model,
                    models: int = models,
                    load: float = load,
                ) -> float:
                    stream = {"load": load}
                    return _of_the_field(model, stream, models=models, seconds=seconds)

                # Equal but for noise: half a percent of a run of seconds.
                yield Floor(
                    f"the field at {load}x, {name} M={models}: not behind in both",
                    0.995,
                    measure,
                )


def _field_elsewhere() -> Iterator[Floor]:
    """The same where the door decides: at a device that is idle now and then, and
    where the time limit holds few batches, or slots serve several models."""
    one, three = {**DEVICE, "max_batch": 1}, {**DEVICE, "alpha_ms": 25.0}
    three |= {"beta_ms": 0.5}
    slow = {"alpha_ms": 30.0, "beta_ms": 1.0, "max_batch": 32}
    few = {"alpha_ms": 24.5, "beta_ms": 0.5, "max_batch": 16}
    cases: Mapping[str, tuple[Section, Section, int, int]] = {
        "batches of 1, at 0.8x": (one, {"load": 0.8}, 1, 1),
        "bursts at 0.6x": (DEVICE, {"load": 0.6, "arrivals": BURSTS}, 1, 1),
        "41 ms of 130, 2x, M=3": (three, {"load": 2.0, "limit_ms": 130.0}, 3, 8),
        "62 ms of 200, 1.5x, M=2": (slow, {"load": 1.5, "limit_ms": 200.0}, 2, 4),
        "32.5 ms of 100, 1.5x, M=20": (few, {"load": 1.5}, 20, 8),
        "one worker, 1.5x, M=20": (DEVICE, {"load": 1.5}, 20, 1),
    }
    for name, (model, stream, models, workers) in cases.items():

        def measure(
            seconds: float,
            model: Section = model,
            stream: Section = stream,
            models: int = models,
            workers: int = workers,
        ) -> float:
            return _of_the_field(
                model, stream, models=models, workers=workers, seconds=seconds
            )

        yield Floor(f"the field, {name}: not behind in both", 0.995, measure)


def _of_the_field(
    model: Section, stream: Section, *, models: int, seconds: float, workers: int = 8
) -> float:
    ours, *theirs = (
        run(
            a_scenario(
                model,
                stream,
                models=models,
                workers=workers,
                seconds=seconds,
                policy=policy,
            )
        )[0]
        for policy in POLICIES
    )
    return min(
        max(ours.goodput / other.goodput, ours.mean_batch / other.mean_batch)
        for other in theirs
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of virtual time")
    parser.add_argument("--only", default="", help="floors whose name has this word")
    arguments = parser.parse_args()
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("floor", "least", "measured", ""):
        table.add_column(heading, justify="left" if heading == "floor" else "right")
    console = Console(width=110)
    missed = 0
    begun = time.process_time()
    for floor in floors():
        if arguments.only in floor.name:
            measured = floor.measure(arguments.seconds)
            is_met = measured >= floor.least
            missed += not is_met
            mark = "[green]held" if is_met else "[red]missed"
            table.add_row(floor.name, f"{floor.least:g}", f"{measured:.4f}", mark)
    console.print(table)
    console.print(f"{time.process_time() - begun:.0f} s of CPU time")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
