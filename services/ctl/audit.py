"""``headrace audit``: whether every request got what it was promised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from headrace.audit import AuditRange, Report, audit_log
from headrace.clock import wall_us
from services.ctl.cluster import reached
from services.ctl.errors import UsageError
from services.ctl.instants import instant_us, shown
from services.ctl.where import payload_store
from services.ctl.wording import counted

__all__ = ["audit"]

_LISTED = 20


def audit(  # noqa: PLR0913 - its options
    *,
    from_: Annotated[str, Parameter(name="--from", allow_leading_hyphen=True)] = "-1h",
    to: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    models: Annotated[
        Sequence[str], Parameter(name="--model", negative=(), show_default=False)
    ] = (),
    prefix: str | None = None,
    bootstrap: str | None = None,
    data: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Join what was asked with how it ended, over a range of time.

    It reports every id that is unanswered, answered twice differently, answered late,
    or committed past. Exit status: 0 clean, 1 findings, 2 wrong usage.

    Parameters
    ----------
    from_
        Begin of the range: -90s, -30m, -1h, -2d, or a date and time (UTC unless it
        says otherwise).
    to
        End of the range, likewise [default: now]. Evidence is read on until every
        request of the range has its end.
    models
        Requests of this model alone; may be repeated.
    prefix
        How the topics' names begin [default: HEADRACE_BUS__PREFIX, or headrace].
    bootstrap
        Address of the Kafka [default: KAFKA_BOOTSTRAP_SERVERS, or the one that runs
        here].
    data
        The folder given to `up`.
    as_json
        Print one JSON document.
    """
    now_us = wall_us()
    from_us = instant_us(from_, now_us, option="--from")
    to_us = None if to is None else instant_us(to, now_us, option="--to")
    if to_us is not None and to_us <= from_us:
        raise UsageError(f"--to {to} is not after --from {from_}.")
    wanted = AuditRange(from_us, to_us, frozenset(models))
    connection, topics = reached(
        bootstrap, data, "headrace-audit", prefix=prefix, models=models
    )
    report = _with_progress(
        partial(
            audit_log, connection, topics, wanted, now_us=now_us, store=payload_store()
        )
    )
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        _show(report)
    return 0 if report.is_clean else 1


def _with_progress(run: Callable[..., Report]) -> Report:
    """On a terminal; nothing of it is left behind."""
    console = Console(stderr=True)
    silent = not console.is_terminal
    with Progress(console=console, transient=True, disable=silent) as bar:
        task = bar.add_task("records", total=None)
        return run(
            progress=lambda done, total: bar.update(task, completed=done, total=total)
        )


def _show(report: Report) -> None:
    console = Console()
    counts = report.counts
    console.print(
        f"{counted(counts.requests, 'request')} from {shown(report.from_us)} to "
        f"{shown(report.to_us)}; the log was read to {shown(report.read_to_us)}."
    )
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in msgspec.structs.asdict(counts).items():
        if isinstance(value, dict):
            for reason, count in value.items():
                table.add_row(f"{name.replace('_', ' ')}: {reason}", str(count))
        elif value:
            table.add_row(name.replace("_", " "), str(value))
    if table.row_count:
        console.print(table)
    for text in report.warnings[:_LISTED]:
        console.print(f"warning: {text}", style="yellow", highlight=False)
    _show_findings(console, report)


def _show_findings(console: Console, report: Report) -> None:
    for kind, total in report.totals.items():
        if not total:
            continue
        listed = [each for each in report.findings if each.kind is kind][:_LISTED]
        title = f"{kind.replace('_', ' ')}: {total}"
        console.print(Text(title, style="bold red"))
        for each in listed:
            place = f"{each.source.topic}/{each.source.partition}/{each.source.offset}"
            head = f"{each.id}  tenant {each.tenant}, asked {shown(each.asked_us)}"
            # Left to the terminal to wrap: what is folded cannot be copied.
            for line in (f"  {head}", f"    {place}", f"    {each.text}"):
                console.print(Text(line), soft_wrap=True)
        if total > len(listed):
            console.print(f"and {total - len(listed)} more (--json lists up to 1000)")
    if report.is_clean:
        console.print("Clean.", style="green")
