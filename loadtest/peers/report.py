"""The comparison printed, and kept as JSON and as a page."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from pathlib import Path

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from headrace.errors import SetupError
from loadtest.peers.comparing import (
    HEADINGS,
    LEGEND,
    Failure,
    Verdict,
    rows,
    verdicts,
)
from loadtest.peers.measuring import Measurement
from loadtest.report import page_of, table_of
from loadtest.summary import machine

__all__ = ["Document", "print_document", "read_document", "write_document"]

_STEM = "peers"


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


class Document(msgspec.Struct):
    """Everything that was measured, in one run or in several on the same machine."""

    machine: str = msgspec.field(default_factory=machine)
    date: str = msgspec.field(default_factory=_today)
    settings: dict[str, str] = {}
    measurements: list[Measurement] = []
    failures: list[Failure] = []
    verdicts: list[Verdict] = []

    @property
    def rounds(self) -> int:
        return max((each.round + 1 for each in self.measurements), default=0)


def read_document(folder: Path) -> Document:
    """What an earlier run left in ``folder``; empty if there is nothing.

    Raises SetupError if it cannot be read, or is of another machine.
    """
    path = folder / f"{_STEM}.json"
    if not path.exists():
        return Document()
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Document)
    except msgspec.DecodeError as error:
        raise SetupError(f"{path} cannot be added to: {error}") from error
    if found.machine != machine():
        raise SetupError(f"{path} is of another machine: {found.machine}")
    return found


def write_document(folder: Path, document: Document) -> Path:
    """Write ``peers.json`` and ``peers.html``; returns the path of the page."""
    document.verdicts = verdicts(document.measurements)
    folder.mkdir(parents=True, exist_ok=True)
    content = msgspec.json.format(msgspec.json.encode(document), indent=1)
    (folder / f"{_STEM}.json").write_bytes(content + b"\n")
    page = folder / f"{_STEM}.html"
    page.write_text(_page(document), "utf-8")
    return page


def print_document(document: Document, console: Console) -> None:
    table = Table(title=_title(document), box=box.SIMPLE_HEAD)
    for place, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if place < 2 else "right")
    for row in rows(document.measurements):
        table.add_row(*row)
    console.print(table)
    console.print(LEGEND, highlight=False)
    for verdict in document.verdicts:
        style = "green" if verdict.held else "red"
        console.print(str(verdict), style=style, highlight=False)
    for failure in document.failures:
        console.print(
            f"{failure.system} could not be measured ({failure.scenario}): "
            f"{failure.words}",
            style="yellow",
            highlight=False,
            markup=False,
        )


def _title(document: Document) -> str:
    return (
        f"Headrace and its peers, {document.machine}, {document.date}, "
        f"rounds: {document.rounds}"
    )


def _page(document: Document) -> str:
    foreign = max((each.foreign_cores for each in document.measurements), default=0.0)
    table = table_of(HEADINGS, rows(document.measurements))
    held = _list(map(str, document.verdicts))
    told = _list(f"{name}: {text}" for name, text in document.settings.items())
    failed = _list(
        f"{each.system} ({each.scenario}): {each.words}" for each in document.failures
    )
    return page_of(
        _title(document),
        f"{table}<p>{escape(LEGEND)}"
        f"<p>Others used at most {foreign:.2f} cores during a run."
        f"<h2>Promises</h2>{held}<h2>Settings</h2>{told}"
        f"<h2>Not measured</h2>{failed}",
    )


def _list(lines: Iterable[str]) -> str:
    style = "white-space:pre-line"
    items = (f"<li style={style}>{escape(line)}" for line in lines)
    return f"<ul>{''.join(items)}</ul>"
