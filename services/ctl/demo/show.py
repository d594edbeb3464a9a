"""``headrace demo``: start everything, ask three models, show the figures."""

from __future__ import annotations

import asyncio
import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import httpx
import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from headrace.clock import SystemClock
from headrace.embedded import TiedProcess, cache_folder, fetch_jars
from headrace.errors import SetupError
from services.ctl.demo import models
from services.ctl.demo.load import Sent, percentile_ms, send_all
from services.ctl.demo.tasks import Task, Verdict, tasks
from services.ctl.options import usable, writable_folder
from services.ctl.running import DATA_FOLDER, Document
from services.ctl.where import kafka_elsewhere

__all__ = ["demo"]

_JSON_VARIABLE = "HEADRACE_DEMO_JSON"
_READY_WITHIN_S = 120.0
_STOPS_WITHIN_S = 22.0
_LAST_LINES = 5

Connections = Annotated[int, Parameter(validator=Number(gte=1, lte=4096))]


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured for one model."""

    name: str
    sent: int
    answered: int
    accuracy: float | None
    mean_batch: float
    p50_ms: float
    p99_ms: float
    throughput: float


def demo(*, connections: Connections = 64) -> int:
    """Start the platform, send real inputs to three real models, print the figures.

    The first run fetches two models (38 MB) and trains the third. With
    HEADRACE_DEMO_JSON=FILE the figures are also written there.

    Parameters
    ----------
    connections
        How many clients send at the same time.
    """
    console = Console()
    figures = _figures_file()
    data = writable_folder("folder", DATA_FOLDER, "start it from another one")
    repository = _prepare(data, console.print)
    todo = tasks(repository)
    with ExitStack() as stack:
        with console.status("starting Kafka and the services"):
            document = stack.enter_context(_platform(repository.models))
        results = _ask_all(todo, document, connections, console)
    _show(results, console)
    if figures is not None:
        _write_json(results, figures)
    problems = [text for result in results for text in result.problems()]
    for text in problems:
        console.print(text, style="red")
    console.print(
        "\nTo keep it running: [bold]make up[/], on port 8000, until Ctrl-C.\n"
        f"It serves {DATA_FOLDER / 'models'}; in another shell:\n"
        "  .venv/bin/headrace models\n"
        "  .venv/bin/headrace infer --help"
    )
    return 1 if problems else 0


def _prepare(data: Path, say: Callable[[str], None]) -> models.Repository:
    """Train while everything else comes down: on a slow line that takes as long."""
    with ThreadPoolExecutor(1) as beside:
        trained = beside.submit(models.train, data, say=say)
        repository = models.fetch(data, say=say)
        if not kafka_elsewhere():
            fetch_jars(cache_folder(), say=say)
        trained.result()
    return repository


@dataclass(frozen=True, slots=True)
class _Result:
    task: Task
    sent: Sent
    verdict: Verdict
    mean_batch: float

    @property
    def figures(self) -> Figures:
        seconds = max(self.sent.elapsed_us, 1) / 1_000_000
        return Figures(
            name=self.task.model,
            sent=len(self.task.requests),
            answered=self.sent.answered,
            accuracy=self.verdict.accuracy,
            mean_batch=round(self.mean_batch, 2),
            p50_ms=round(percentile_ms(self.sent, 0.50), 2),
            p99_ms=round(percentile_ms(self.sent, 0.99), 2),
            throughput=round(self.sent.answered / seconds, 1),
        )

    def problems(self) -> Iterator[str]:
        """Sentences about what must not be."""
        name = self.task.model
        missing = len(self.task.requests) - self.sent.answered
        if missing:
            first = next(o.problem for o in self.sent.outcomes if o.outputs is None)
            yield f"{name}: {missing} requests were not answered ({first})"
        if not self.verdict.sound:
            yield f"{name}: the answers are wrong ({self.verdict.sample})"


@contextmanager
def _platform(models_folder: Path) -> Iterator[Document]:
    """A platform of its own on free ports, which leaves nothing behind but its log."""
    log = DATA_FOLDER / "demo.log"
    command = (
        *(sys.executable, "-m", "services.ctl", "up", "--json", "--ephemeral"),
        *("--models", models_folder, "--http-port", "0", "--kafka-port", "0"),
    )
    reader, writer = os.pipe()
    with log.open("wb") as lines:
        process = TiedProcess(command, output=writer, errors=lines)
    os.close(writer)
    try:
        with os.fdopen(reader, "rb") as output:
            in_time, _, _ = select.select([output], [], [], _READY_WITHIN_S)
            ready = output.readline() if in_time else b""
            if not ready:
                raise SetupError(_why_not_ready(log))
            yield msgspec.json.decode(ready, type=Document)
    finally:
        process.stop(_STOPS_WITHIN_S)


def _why_not_ready(log: Path) -> str:
    lines = log.read_text("utf-8", errors="replace").splitlines()
    said = [line for line in lines if line.startswith("headrace: ")]
    if said:
        return said[-1].removeprefix("headrace: ")
    last = " | ".join(lines[-_LAST_LINES:])
    return f"The platform did not become ready; its log is {log}: {last}"


def _ask_all(
    todo: Sequence[Task], document: Document, connections: int, console: Console
) -> list[_Result]:
    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    results = []
    with Progress(*columns, console=console) as progress:
        for task in todo:
            bar = progress.add_task(
                f"{task.model} ({task.inputs})", total=len(task.requests)
            )
            results.append(
                _ask(task, document, connections, partial(progress.advance, bar))
            )
    return results


def _ask(
    task: Task, document: Document, connections: int, on_answer: Callable[[], None]
) -> _Result:
    before = _executed(document, task.model)
    sent = asyncio.run(
        send_all(
            document.http,
            f"/v2/models/{task.model}/infer",
            task.requests,
            connections=connections,
            clock=SystemClock(),
            on_answer=on_answer,
        )
    )
    after = _executed(document, task.model)
    batches = max(after[1] - before[1], 1)
    verdict = task.judge([outcome.outputs for outcome in sent.outcomes])
    return _Result(task, sent, verdict, (after[0] - before[0]) / batches)


def _executed(document: Document, model: str) -> tuple[int, int]:
    """Rows that were run, and the batches that they ran in, so far."""
    rows = batches = 0
    with httpx.Client(trust_env=False) as client:
        for url in document.http:
            answer = client.get(f"{url}/v2/models/{model}/stats").raise_for_status()
            for stats in answer.json()["model_stats"]:
                rows += stats["inference_count"]
                batches += stats["execution_count"]
    return rows, batches


def _show(results: Sequence[_Result], console: Console) -> None:
    table = Table(
        title="One request per input, grouped into batches on the way",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("model")
    for heading in ("sent", "answered", "accuracy", "batch", "p50 ms", "p99 ms", "/s"):
        table.add_column(heading, justify="right")
    for result in results:
        figures = result.figures
        accuracy = figures.accuracy
        table.add_row(
            figures.name,
            str(figures.sent),
            str(figures.answered),
            "" if accuracy is None else f"{accuracy:.1%}",
            f"{figures.mean_batch:.1f}",
            f"{figures.p50_ms:.1f}",
            f"{figures.p99_ms:.1f}",
            f"{figures.throughput:.0f}",
        )
    console.print(table)
    for result in results:
        console.print(f"{result.task.model}: {result.verdict.sample}")


def _figures_file() -> Path | None:
    """Refused before the run, not after it."""
    named = os.environ.get(_JSON_VARIABLE)
    if not named:
        return None
    with usable("file of figures", named, f"name another one in {_JSON_VARIABLE}"):
        Path(named).touch()
        return Path(named)


def _write_json(results: Sequence[_Result], path: Path) -> None:
    figures = [result.figures for result in results]
    path.write_bytes(msgspec.json.encode({"models": figures}) + b"\n")
