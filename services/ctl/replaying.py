"""Doing what ``headrace replay`` was asked for, and telling of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec
from rich import box
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table
from rich.text import Text

from headrace.broker import KafkaConnection
from headrace.domain import ServedVersion
from headrace.lifecycle import BusSettings
from headrace.replay import (
    Allowed,
    Comparison,
    Differences,
    Gate,
    JoinCounts,
    Payloads,
    Recording,
    Report,
    Rerun,
    Selection,
    judged,
)
from headrace.replay.export import ParquetExport
from headrace.replay.leftovers import remove_leftovers, run_name
from headrace.replay.page import (
    OUTPUT_COLUMNS,
    output_cells,
    shown_row,
    write_page,
)
from headrace.wire import Topics
from services.ctl.where import payload_reader
from services.ctl.wording import counted

__all__ = ["Exported", "Task", "show_export", "show_report"]

_WORST_SHOWN = 3
_WIDE = 110


class Exported(msgspec.Struct, frozen=True):
    """A file of recorded requests."""

    exported: int
    file: str
    passed_over: JoinCounts
    warnings: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """``range``: how its bounds were given; ``gate`` None: no verdict is wanted;
    ``page`` and ``export``: files to write."""

    selection: Selection
    range: tuple[str, str]
    speed: float | None
    limit: int | None
    allowed: Allowed
    gate: Gate | None
    export: Path | None
    page: Path | None

    def export_recorded(self, connection: KafkaConnection, topics: Topics) -> Exported:
        """Run nothing. Raises BusError, and SetupError for the file."""
        assert self.export is not None
        payloads = Payloads(payload_reader())
        with (
            _bars("records read") as (bar, (read,)),
            self._recording(connection, topics, bar, read) as recording,
            _exporting(self.export, payloads, is_replayed=False) as export,
        ):
            assert export is not None
            for recorded in islice(recording, self.limit):
                export.take(payloads.recorded(recorded))
        return Exported(
            export.rows,
            str(self.export),
            recording.counts,
            [*recording.warnings, *payloads.warnings],
        )

    def run(
        self, connection: KafkaConnection, topics: Topics, served: ServedVersion
    ) -> Report:
        """Raises as :meth:`export_recorded`."""
        began_s = time.monotonic()
        at = datetime.now(UTC)
        remove_leftovers(connection, topics, int(at.timestamp() * 1e6))
        comparison = Comparison(served, default=self.allowed)
        payloads = Payloads(payload_reader())
        with (
            _bars("records read", "requests run") as (bar, (read, ran)),
            self._recording(connection, topics, bar, read) as recording,
            _exporting(self.export, payloads, is_replayed=True) as export,
        ):
            rerun = Rerun(
                connection,
                topics,
                served,
                run_name(at, secrets.token_hex(3)),
                BusSettings(bootstrap_servers=connection.bootstrap_servers),
                speed=self.speed,
            )
            for ended in rerun.run(islice(recording, self.limit)):
                replayed = payloads.with_data(ended)
                comparison.take(replayed)
                bar.advance(ran)
                if export is not None:
                    export.take(replayed.recorded, replayed)
        differences = comparison.differences()
        verdict, against = None, list[str]()
        if self.gate is not None:
            verdict, against = judged(differences, self.gate)
        report = Report(
            verdict=verdict,
            against=against,
            compared=differences.compared,
            model=self.selection.model,
            into=f"{served.model}/{served.version}",
            from_=self.range[0],
            to=self.range[1],
            at=at.isoformat(timespec="seconds").replace("+00:00", "Z"),
            elapsed_s=round(time.monotonic() - began_s, 2),
            passed_over=recording.counts,
            warnings=[*recording.warnings, *payloads.warnings],
            gate=self.gate or Gate(),
            differences=differences,
        )
        if self.page is not None:
            write_page(self.page, report, comparison.latencies_us)
        return report

    @contextmanager
    def _recording(
        self, connection: KafkaConnection, topics: Topics, bar: Progress, task: TaskID
    ) -> Iterator[Recording]:
        recording = Recording(
            connection,
            topics,
            self.selection,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
        try:
            yield recording
        finally:
            recording.close()


@contextmanager
def _exporting(
    path: Path | None, payloads: Payloads, *, is_replayed: bool
) -> Iterator[ParquetExport | None]:
    """The file appears when all went well."""
    if path is None:
        yield None
        return
    export = ParquetExport(path, payloads, is_replayed=is_replayed)
    try:
        yield export
        export.close()
    finally:
        export.discard()


@contextmanager
def _bars(*names: str) -> Iterator[tuple[Progress, list[TaskID]]]:
    """On a terminal; nothing of it is left behind."""
    console = Console(stderr=True)
    silent = not console.is_terminal
    with Progress(console=console, transient=True, disable=silent) as bar:
        yield bar, [bar.add_task(name, total=None) for name in names]


def show_export(exported: Exported, *, as_json: bool) -> None:
    if as_json:
        _print_json(exported)
        return
    _warn(exported.warnings)
    print(f"{counted(exported.exported, 'request')} written to {exported.file}")


def show_report(report: Report, *, page: Path | None, as_json: bool) -> None:
    if as_json:
        _print_json(report)
        return
    found = report.differences
    _warn(report.warnings)
    print(
        f"{counted(found.requests, 'request')} to {report.model} run by {report.into} "
        f"in {report.elapsed_s:.1f} s: {_told(found.reasons)} "
        f"(then: {_told(found.ended)})"
    )
    if report.verdict is None:
        return
    print(
        f"{found.compared} compared: {found.identical} identical, {found.within} "
        f"within the tolerance; {found.failed} fail now, {found.mended} no longer fail"
    )
    _show_differences(found)
    if page is not None:
        print(f"The page with plots is {page}.")
    for told in (*found.mismatches, *found.failures, *report.against):
        Console().print(Text(told, style="red"), soft_wrap=True)
    style = "bold green" if not report.against else "bold red"
    Console().print(Text(report.verdict, style=style))


def _show_differences(found: Differences) -> None:
    console = Console(highlight=False)
    console.width = max(console.width, _WIDE)
    table = Table(box=box.SIMPLE_HEAD)
    for heading in OUTPUT_COLUMNS:
        justify: Literal["left", "right"] = "left" if heading == "output" else "right"
        table.add_column(heading, justify=justify)
    for name, figures in found.outputs.items():
        table.add_row(*output_cells(name, figures))
    console.print(table)
    for when, latency in (
        ("then", found.latency_then),
        ("now, as bulk", found.latency_now),
    ):
        if latency is not None:
            print(
                f"latency {when}: p50 {latency.p50_ms:.1f} ms, p99 "
                f"{latency.p99_ms:.1f} ms, at most {latency.max_ms:.1f} ms"
            )
    for name, figures in found.outputs.items():
        for row in figures.worst[:_WORST_SHOWN]:
            console.print(
                Text(
                    f"{name} of {row.place}, row {row.row}: {shown_row(row.then)} "
                    f"then, {shown_row(row.now)} now"
                ),
                soft_wrap=True,
            )


def _told(counts: dict[str, int]) -> str:
    return ", ".join(f"{times} {name}" for name, times in counts.items()) or "nothing"


def _warn(warnings: list[str]) -> None:
    for text in warnings:
        Console().print(Text(f"warning: {text}", style="yellow"), soft_wrap=True)


def _print_json(document: Report | Exported) -> None:
    print(msgspec.json.format(msgspec.json.encode(document)).decode())
