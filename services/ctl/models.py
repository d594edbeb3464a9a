"""``headrace models``: what the workers say of the versions in their folders."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from headrace.broker import KafkaConnection, Record, tail
from headrace.domain import ModelState
from headrace.errors import UndecodableRecord
from headrace.repository import bare_models
from headrace.wire import Announcement, Topics, decode_json
from services.ctl.cluster import reached
from services.ctl.running import find_running
from services.ctl.where import kafka_elsewhere

__all__ = ["VersionRow", "announced_versions", "bare_sentences", "models", "versions"]

# Longer ones are folded.
_WIDTHS_MAX = {"model": 24, "version": 9}


class VersionRow(msgspec.Struct, frozen=True):
    """One version, over all slots that speak of it."""

    model: str
    version: str
    slots: dict[str, list[int]]
    """State to the slots in it."""

    reasons: list[str]
    """Why it is refused or not ready; a refusal names its remedy."""

    warnings: list[str]
    max_batch: int
    latency_objective_ms: float | None
    run_ms: dict[int, float]
    """Rows to measured time of one run, the slowest slot's."""

    sha256: str


def models(
    *,
    bootstrap: str | None = None,
    data: Path | None = None,
    output: Literal["table", "json"] = "table",
) -> int:
    """List the versions that are served, and those that are not, with the reason.

    Parameters
    ----------
    bootstrap
        Address of the Kafka [default: KAFKA_BOOTSTRAP_SERVERS, or the one that runs
        here].
    data
        The folder given to `up`.
    output
        table, or json.
    """
    connection, topics = reached(bootstrap, data)
    rows = asyncio.run(announced_versions(connection, topics.prefix))
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(rows)).decode())
        return 0
    if rows:
        _show(rows)
    else:
        print("No worker has announced a model.")
    here = None if bootstrap or kafka_elsewhere() else find_running(data)
    for sentence in bare_sentences(here.models) if here else ():
        Console().print(sentence, markup=False, highlight=False, soft_wrap=True)
    return 0


async def announced_versions(
    connection: KafkaConnection, prefix: str
) -> list[VersionRow]:
    """What the workers have announced up to now. Raises BusError."""
    topic = Topics(prefix).control_models
    return versions([record async for record in tail(connection, topic)])


def bare_sentences(folder: Path) -> list[str]:
    """About each model of a repository that has no version to serve."""
    return [
        f"not served: {model}: it has no version folder; put its files into "
        f"{folder / model / '1'}"
        for model in bare_models(folder)
    ]


def versions(records: Iterable[Record]) -> list[VersionRow]:
    """Fold the records of ``control.models``, oldest first, by version."""
    newest: dict[bytes | None, Announcement] = {}
    for record in records:
        newest.pop(record.key, None)
        if record.value is not None:
            try:
                newest[record.key] = decode_json(Announcement, record)
            except UndecodableRecord:
                continue
    by_version: dict[tuple[str, str], list[Announcement]] = {}
    for announced in newest.values():
        key = (announced.model, announced.version)
        by_version.setdefault(key, []).append(announced)
    ordered = sorted(by_version, key=lambda key: (key[0], _number(key[1]), key[1]))
    return [_row(by_version[key]) for key in ordered]


def _number(version: str) -> int:
    """-1: a folder that is refused for its name."""
    return int(version) if version.isdecimal() else -1


def _row(slots: list[Announcement]) -> VersionRow:
    by_state: dict[str, list[int]] = {}
    for announced in sorted(slots, key=lambda one: one.slot):
        by_state.setdefault(announced.state, []).append(announced.slot)
    ready = [one for one in slots if one.state is ModelState.READY]
    best = (ready or slots)[0]
    sizes = sorted({rows for one in ready for rows in one.run_us})
    return VersionRow(
        model=best.model,
        version=best.version,
        slots=by_state,
        reasons=sorted({one.reason for one in slots if one.reason}),
        warnings=sorted({warning for one in slots for warning in one.warnings}),
        max_batch=best.max_batch,
        latency_objective_ms=best.latency_objective_ms,
        run_ms={
            size: max(one.run_us.get(size, 0) for one in ready) / 1000 for size in sizes
        },
        sha256=best.sha256,
    )


def _ms(ms: float) -> str:
    """To three digits, without an exponent."""
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"


def _show(rows: list[VersionRow]) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0))
    for heading in ("model", "version"):
        longest = max(len(heading), *(len(getattr(row, heading)) for row in rows))
        width = min(longest, _WIDTHS_MAX[heading])
        table.add_column(heading, overflow="fold", width=width)
    table.add_column("slots", no_wrap=True)
    table.add_column("max batch", no_wrap=True)
    # Wrapped between the pairs, each of which is one word.
    table.add_column("run ms by rows")
    for row in rows:
        slots = [
            f"{state} {','.join(map(str, numbers))}"
            for state, numbers in row.slots.items()
        ]
        runs = " ".join(f"{size}:{_ms(ms)}" for size, ms in row.run_ms.items())
        is_ready = ModelState.READY in row.slots
        table.add_row(
            escape(row.model),
            escape(row.version),
            "\n".join(slots),
            str(row.max_batch) if is_ready else "",
            runs,
            style=None if is_ready else "red",
        )
    console = Console()
    console.print(table)
    # Sentences, which a column of what is left of a terminal would tear to pieces.
    for row in rows:
        for text in (*row.reasons, *row.warnings):
            name = f"{row.model}/{row.version}: "
            style = None if ModelState.READY in row.slots else "red"
            console.print(Text(name + text, style=style or ""), soft_wrap=True)
