"""``python -m loadtest.jobs``: offline jobs against what is promised of them.

Trials, each on a platform of its own (``--only`` picks some):

- ``throughput``: rows per second of a job and of the same rows as single HTTP requests;
- ``beside``: a job on a simulated accelerator that has online requests, and what those
  lose by it;
- ``kills``: a job whose publisher is killed again and again, every row of it checked;
- ``whole``: ``beside`` and ``kills`` in one, only if it is asked for: a million rows
  take twelve minutes.

The rows are handwritten digits. ``jobs.toml`` has the numbers; ``--rows`` the size.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import onnxruntime
import pyarrow as pa
from pyarrow import parquet
from pydantic import BaseModel, PositiveFloat, PositiveInt
from rich.console import Console
from rich.table import Table

from headrace.errors import HeadraceError
from loadtest import models
from loadtest.bench import arrivals_ns
from loadtest.figures import Figures, figures_of
from loadtest.job_site import (
    Site,
    Watch,
    at_work,
    ended,
    rate_of,
    resume,
    submit,
    told,
    watched,
)
from loadtest.scenario import Simulated
from loadtest.scenario import Stream as StreamSpec
from loadtest.sending import send
from loadtest.stream import Stream
from services.ctl.demo import digits

__all__ = ["main"]

SCENARIO: Final = Path(__file__).with_name("jobs.toml")
INPUT: Final = "X"
OUTPUT: Final = "out.parquet"
WIDTH: Final = 64
GROUP_ROWS: Final = 65_536
WARM_UP_S: Final = 6.0
CLOSE: Final = 1e-4
"""Probabilities of one row may differ so much from batch to batch."""


class Throughput(BaseModel, frozen=True, extra="forbid"):
    rounds: PositiveInt
    max_batch: PositiveInt
    connections: PositiveInt
    http_seconds: PositiveFloat
    of_http: PositiveFloat


class Beside(BaseModel, frozen=True, extra="forbid"):
    load: PositiveFloat
    seconds: PositiveFloat
    attainment_loss: PositiveFloat
    p99_rise: PositiveFloat
    of_what_is_left: PositiveFloat
    accelerator: Simulated


class Kills(BaseModel, frozen=True, extra="forbid"):
    times: PositiveInt


class Memory(BaseModel, frozen=True, extra="forbid"):
    mb_max: PositiveFloat


class Numbers(BaseModel, frozen=True, extra="forbid"):
    """``jobs.toml``."""

    title: str
    throughput: Throughput
    beside: Beside
    kills: Kills
    memory: Memory


class Finding(NamedTuple):
    what: str
    value: str
    target: str
    is_met: bool


def main() -> None:
    options = _options()
    numbers = Numbers.model_validate(tomllib.loads(SCENARIO.read_text("utf-8")))
    trials: dict[str, Callable[[Numbers, int], Iterator[Finding]]] = {
        "throughput": _throughput,
        "beside": _beside,
        "kills": _kills,
        "whole": _whole,
    }
    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table(title=f"{numbers.title} ({options.rows:,} rows)")
    for heading in ("trial", "figure", "value", "target", ""):
        table.add_column(heading)
    is_met = True
    try:
        for name, trial in trials.items():
            if name not in (options.only or ("throughput", "beside", "kills")):
                continue
            for found in trial(numbers, options.rows):
                verdict = "met" if found.is_met else "MISSED"
                table.add_row(name, found.what, found.value, found.target, verdict)
                is_met = is_met and found.is_met
    except HeadraceError as error:
        print(f"loadtest.jobs: {error}", file=sys.stderr)
        sys.exit(2)
    console.print(table)
    sys.exit(0 if is_met else 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.jobs")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument(
        "--only", action="append", choices=["throughput", "beside", "kills", "whole"]
    )
    return parser.parse_args()


def _throughput(numbers: Numbers, rows: int) -> Iterator[Finding]:
    """Both kinds by turns on one platform, first on its fresh log and then on what
    that has warmed up: of a cold one each is slower, the first one most."""
    asked = numbers.throughput
    with at_work(_put_digits(asked.max_batch)) as site:
        rows_of = _write_rows(site.folder / "in.parquet", rows)
        stream = StreamSpec(
            model="digits", arrivals="closed", connections=asked.connections
        )
        prepared = [
            models.prepare_row(stream, INPUT, rows_of[place : place + 1], b"")
            for place in range(WIDTH)
        ]
        ratios = []
        with watched(site) as watch:
            for number in range(1 + asked.rounds):
                sent = _stream(site, stream, prepared, asked.http_seconds, capacity=1.0)
                (records,) = send(site.generator, [sent])
                answered = figures_of(
                    records,
                    "digits",
                    sent_s=asked.http_seconds,
                    slo_ms=1e6,
                    last_step_s=None,
                ).answered
                (site.folder / OUTPUT).unlink(missing_ok=True)
                process = submit(site, f"fast{number}", "digits")
                watch.publisher = process.pid
                ended(process)
                rate = rate_of(site.job(f"fast{number}"))
                ratios.append(rate / max(answered, 1e-9))
                yield Finding(
                    f"rows of job {number} and single requests",
                    f"{rate:,.0f} and {answered:,.0f}/s = {ratios[-1]:.1f}x",
                    "" if number else "of a fresh log",
                    is_met=True,
                )
        warm = float(np.median(ratios[1:]))
        target = f">= {asked.of_http:g}x"
        yield Finding(
            "of the warm ones, median", f"{warm:.1f}x", target, warm >= asked.of_http
        )
        yield from _memory(numbers, watch)
        yield _checked(site, rows_of)


def _beside(numbers: Numbers, rows: int) -> Iterator[Finding]:
    asked = numbers.beside
    with at_work(_put_simulated(asked)) as site:
        rows_of = _write_rows(site.folder / "in.parquet", rows, column="x")
        online = _Online(site, asked)
        alone = online.send(asked.seconds, 2)
        with watched(site) as watch:
            process = submit(site, "beside", "sim")
            watch.publisher = process.pid
            before = told(site, "beside", process.pid, 0)
            beside = online.send(asked.seconds, 2)
            after = told(site, "beside", process.pid, 0)
            ended(process)
        rate = (after[1].done - before[1].done) / (after[0] - before[0])
        yield from _cost(asked, alone, [beside], rate)
        yield from _memory(numbers, watch)
        yield _echoed(site, rows_of)


def _whole(numbers: Numbers, rows: int) -> Iterator[Finding]:
    """Everything at once, for as long as it takes."""
    asked = numbers.beside
    with at_work(_put_simulated(asked)) as site:
        rows_of = _write_rows(site.folder / "in.parquet", rows, column="x")
        online = _Online(site, asked)
        alone = online.send(asked.seconds, 2)
        began_s = time.monotonic()
        beside: list[Figures] = []
        with watched(site) as watch, ThreadPoolExecutor(1) as pool:
            job = pool.submit(_killed, site, watch, "sim", rows, numbers.kills.times)
            while not job.done():
                beside.append(online.send(asked.seconds, 2 + len(beside)))
            killed, ended_s = job.result()
        # The last stream outlived the job.
        yield from _cost(
            asked, alone, beside[:-1] or beside, rows / (ended_s - began_s)
        )
        times = numbers.kills.times
        yield Finding("publishers killed", str(killed), str(times), killed == times)
        yield from _memory(numbers, watch)
        yield _echoed(site, rows_of)


class _Online:
    """Requests to the simulated accelerator, at its part of what it can do."""

    def __init__(self, site: Site, asked: Beside) -> None:
        self._site = site
        self._sim = asked.accelerator
        self._spec = StreamSpec(model="sim", load=asked.load)
        self._prepared = models.prepare(self._spec, self._sim, 0)
        self.send(WARM_UP_S, 1)

    def send(self, seconds: float, seed: int) -> Figures:
        sim = self._sim
        stream = _stream(
            self._site,
            self._spec,
            self._prepared,
            seconds,
            capacity=sim.capacity,
            seed=seed,
        )
        (records,) = send(self._site.generator, [stream])
        slo_ms = sim.objective_ms or 100.0
        return figures_of(
            records, "sim", sent_s=seconds, slo_ms=slo_ms, last_step_s=None
        )


def _cost(
    asked: Beside, alone: Figures, beside: Sequence[Figures], rate: float
) -> Iterator[Finding]:
    """What online requests lose by a job of ``rate`` rows/s, over all of ``beside``."""
    attainment = float(np.mean([each.attainment for each in beside]))
    p99 = float(np.median([each.succeeded.percentile(99) for each in beside]))
    worst = max(each.succeeded.percentile(99) for each in beside)
    p99_alone = alone.succeeded.percentile(99)
    capacity = asked.accelerator.capacity
    left = capacity - float(np.mean([each.answered for each in beside]))
    yield Finding(
        "attainment alone, beside",
        f"{alone.attainment:.2%}, {attainment:.2%}",
        f"loses <= {asked.attainment_loss:.0%}",
        alone.attainment - attainment <= asked.attainment_loss,
    )
    yield Finding(
        f"p99 alone, beside (of {len(beside)}: median, worst)",
        f"{p99_alone:.1f}, {p99:.1f}, {worst:.1f} ms",
        f"rises <= {asked.p99_rise:.0%}",
        p99 <= p99_alone * (1 + asked.p99_rise),
    )
    yield Finding(
        "the job's part of what is left",
        f"{rate:,.0f} of {left:,.0f} rows/s = {rate / left:.0%}",
        f">= {asked.of_what_is_left:.0%}",
        rate >= asked.of_what_is_left * left,
    )


def _kills(numbers: Numbers, rows: int) -> Iterator[Finding]:
    with at_work(_put_digits(64)) as site:
        rows_of = _write_rows(site.folder / "in.parquet", rows)
        times = numbers.kills.times
        with watched(site) as watch:
            killed, _ = _killed(site, watch, "digits", rows, times)
        yield Finding("publishers killed", str(killed), str(times), killed == times)
        yield from _memory(numbers, watch)
        yield _checked(site, rows_of)


def _killed(
    site: Site, watch: Watch, model: str, rows: int, times: int
) -> tuple[int, float]:
    """Run a job whose publisher is killed so often; how often it was, and when it was
    over."""
    dice = random.Random(rows)
    killed = 0
    process = submit(site, "killed", model)
    for number in range(times):
        watch.publisher = process.pid
        part = rows * number // (times + 1)
        told(site, "killed", process.pid, part)
        time.sleep(dice.uniform(0, 1.0))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        process = resume(site, "killed")
    watch.publisher = process.pid
    ended(process)
    return killed, time.monotonic()


def _put_simulated(asked: Beside) -> Callable[[Path], None]:
    def put(folder: Path) -> None:
        models.write_models(folder, {"sim": asked.accelerator})

    return put


def _echoed(site: Site, rows: npt.NDArray[np.float32]) -> Finding:
    """A simulated accelerator says what it was told."""
    table = parquet.read_table(site.folder / OUTPUT)
    right = 0
    if table.num_rows == len(rows):
        is_right = (_matrix(table["x.out"]) == rows).all(axis=1)
        is_right &= table["number"].to_numpy() == np.arange(len(rows))
        right = int(is_right.sum())
    told = f"{right:,} of {table.num_rows:,}"
    return Finding("rows right", told, f"{len(rows):,}", right == len(rows))


def _put_digits(max_batch: int) -> Callable[[Path], None]:
    def put(folder: Path) -> None:
        version = folder / "digits" / "1"
        version.mkdir(parents=True)
        digits.train(version / "model.onnx")
        (version / "model.toml").write_text(f"max_batch = {max_batch}\n")

    return put


def _write_rows(path: Path, rows: int, column: str = INPUT) -> npt.NDArray[np.float32]:
    """Digits drawn at random, with a number for each row."""
    shown, _ = digits.held_out()
    drawn = shown[np.random.default_rng(0).integers(0, len(shown), rows)]
    listed = pa.list_(pa.float32(), WIDTH)
    schema = pa.schema([("number", pa.int64()), (column, listed)])
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for first in range(0, rows, GROUP_ROWS):
            part = drawn[first : first + GROUP_ROWS]
            flat = pa.array(part.reshape(-1))
            lists = pa.FixedSizeListArray.from_arrays(flat, WIDTH)
            numbers = pa.array(np.arange(first, first + len(part)))
            writer.write_batch(
                pa.RecordBatch.from_arrays([numbers, lists], schema=schema)
            )
    return drawn


def _checked(site: Site, rows: npt.NDArray[np.float32]) -> Finding:
    """Every row of the output against the model itself."""
    table = parquet.read_table(site.folder / OUTPUT)
    session = onnxruntime.InferenceSession(
        site.folder / "models" / "digits" / "1" / "model.onnx",
        providers=["CPUExecutionProvider"],
    )
    labels, probabilities = session.run(["label", "probabilities"], {INPUT: rows})
    right = 0
    if table.num_rows == len(rows):
        found = _matrix(table["probabilities"])
        is_right = np.abs(found - probabilities).max(axis=1) < CLOSE
        is_right &= table["label"].to_numpy() == labels
        is_right &= table["number"].to_numpy() == np.arange(len(rows))
        right = int(is_right.sum())
    told = f"{right:,} of {table.num_rows:,}"
    return Finding("rows right", told, f"{len(rows):,}", right == len(rows))


def _matrix(column: Any) -> npt.NDArray[np.float32]:
    flat = column.combine_chunks().flatten().to_numpy()
    return np.asarray(flat.reshape(len(column), -1), np.float32)


def _stream(
    site: Site,
    spec: StreamSpec,
    prepared: list[Any],
    seconds: float,
    *,
    capacity: float,
    seed: int = 0,
) -> Stream:
    return Stream(
        site.running.addresses,
        prepared,
        spec.connections,
        min(spec.connections, 64),
        round(seconds * 1e9),
        3_000_000_000,
        arrivals_ns(spec, seconds, capacity, seed),
    )


def _memory(numbers: Numbers, watch: Watch) -> Iterator[Finding]:
    most = numbers.memory.mb_max
    for name, peak in sorted(watch.peak_mb.items()):
        yield Finding(
            f"memory of {name}", f"{peak:.0f} MB", f"<= {most:g}", peak <= most
        )


if __name__ == "__main__":
    main()
