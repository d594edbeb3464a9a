"""What was measured, as a table, as JSON and as a page with plots."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from loadtest import plots
from loadtest.summary import COMPARED, Judged, Summary, Value, machine

__all__ = ["SERVICES", "page_of", "print_report", "table_of", "write_report"]

SERVICES = ("ingress", "batch_former", "gpu_worker", "kafka")
_HEADINGS = (
    *("run", "offered/s", "answered/s", "in time/s", "of bare", "in time"),
    *("p50 ms", "p99 ms", "refused", "p99 ms", "batch"),
    *("ingress", "former", "worker", "broker", "all", "of floor", "foreign"),
)


def print_report(
    title: str,
    summaries: Sequence[Summary],
    judged: Sequence[Judged],
    baseline: dict[str, dict[str, float]],
    console: Console,
) -> None:
    table = Table(title=title, box=box.SIMPLE_HEAD)
    for place, heading in enumerate(_HEADINGS):
        table.add_column(heading, justify="left" if place == 0 else "right")
    for row in map(_row, summaries):
        table.add_row(*row)
    console.print(table)
    console.print(
        "CPU in µs per answer of any status; of floor: a raw ASGI app on uvicorn; "
        "foreign: cores that others used"
    )
    for line in _remarks(summaries):
        console.print(line, style="yellow")
    for line in _compared(summaries, baseline):
        console.print(line)
    for each in judged:
        style = "green" if each.met else "red"
        console.print(_judgement(each), style=style, highlight=False)


def write_report(
    folder: Path,
    scenario: str,
    title: str,
    summaries: Sequence[Summary],
    judged: Sequence[Judged],
) -> Path:
    """Write ``<scenario>.json`` and ``.html``; returns the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "title": title,
        "machine": machine(),
        "runs": summaries,
        "targets": judged,
    }
    (folder / f"{scenario}.json").write_bytes(msgspec.json.encode(document) + b"\n")
    page = folder / f"{scenario}.html"
    page.write_text(_page(title, summaries, judged), "utf-8")
    return page


def _row(summary: Summary) -> list[str]:
    figures = summary.figures
    last = summary.results[-1]
    stream = last.streams[0]
    return [
        summary.name,
        f"{stream.offered:.0f}",
        _shown(figures["answered"], 0),
        _shown(figures["goodput"], 0),
        _shown(figures.get("goodput_of_bare"), 3),
        _shown(figures["attainment"], 3),
        _shown(figures["p50_ms"], 1),
        _shown(figures["p99_ms"], 1),
        f"{stream.refused.count}",
        _shown(figures["refused_p99_ms"], 1) if stream.refused.count else "",
        _shown(figures["mean_batch"], 1),
        *(_shown(figures.get(f"{service}_us"), 0) for service in SERVICES),
        _shown(figures["cpu_us"], 0),
        _shown(figures["cpu_of_floor"], 1),
        f"{last.host.foreign_cores:.2f}",
    ]


def _shown(value: Value | None, digits: int) -> str:
    if value is None:
        return ""
    text = f"{value.median:.{digits}f}"
    if value.least == value.most:
        return text
    return f"{text} [{value.least:.{digits}f}-{value.most:.{digits}f}]"


def _remarks(summaries: Sequence[Summary]) -> list[str]:
    """What a reader must know before believing a row."""
    found = []
    for summary in summaries:
        for result in summary.results:
            where = f"{summary.name}, round {result.round + 1}: "
            lost = sum(each.lost for each in result.streams)
            if lost:
                outcomes = ", ".join(
                    f"{count} {outcome}"
                    for each in result.streams
                    for outcome, count in each.outcomes.items()
                )
                found.append(f"{where}{lost} requests were lost ({outcomes})")
            if result.host.restarts:
                found.append(f"{where}{result.host.restarts} processes were restarted")
            lag_ms = max(each.lag_p99_ms for each in result.streams)
            if lag_ms > 5:
                found.append(
                    f"{where}the generator itself was {lag_ms:.0f} ms late at p99, "
                    "which counts as latency"
                )
    return found


def _compared(
    summaries: Sequence[Summary], baseline: dict[str, dict[str, float]]
) -> list[str]:
    found = []
    for summary in summaries:
        kept = baseline.get(summary.name, {})
        ratios = [
            f"{figure} {summary.figures[figure].median / kept[figure]:.2f}x"
            for figure in COMPARED
            if kept.get(figure) and figure in summary.figures
        ]
        if ratios:
            found.append(f"{summary.name} against the baseline: {', '.join(ratios)}")
    return found


def _judgement(each: Judged) -> str:
    value = "not measured" if each.value is None else f"{each.value:.4g}"
    verdict = "met" if each.met else "MISSED"
    return f"{verdict}: {each.name}: {each.figure} {each.target}, measured {value}"


def _resources(summaries: Sequence[Summary]) -> str:
    """Memory of each service and bytes of each kind of topic, as a table."""
    hosts = [(each.name, each.results[-1].host) for each in summaries]
    services = sorted({name for _, host in hosts for name in host.memory_mb})
    kinds = sorted(
        {
            kind
            for _, host in hosts
            for kind, size in host.log_bytes.items()
            if size >= 1
        }
    )
    heads = [f"{name} MB" for name in services] + [f"{kind} bytes" for kind in kinds]
    rows = [
        [
            name,
            *(f"{host.memory_mb.get(each, 0):.0f}" for each in services),
            *(f"{host.log_bytes.get(each, 0):.0f}" for each in kinds),
        ]
        for name, host in hosts
    ]
    return (
        "<h2>Memory, and bytes in the log per answer</h2>"
        f"{table_of(['run', *heads], rows)}"
    )


def table_of(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of a page."""
    heads = "".join(f"<th>{escape(heading)}" for heading in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}" for cell in row) for row in rows
    )
    return f"<table><tr>{heads}{body}</table>"


def _page(title: str, summaries: Sequence[Summary], judged: Sequence[Judged]) -> str:
    lines = [_judgement(each) for each in judged] + _remarks(summaries)
    remarks = "".join(f"<li>{escape(line)}" for line in lines)
    drawn = "".join(plots.drawn(summaries))
    table = table_of(_HEADINGS, [_row(each) for each in summaries])
    resources = _resources(summaries)
    return page_of(title, f"{table}<ul>{remarks}</ul>{resources}{drawn}")


def page_of(title: str, body: str) -> str:
    """A page by itself, with the machine under its title."""
    style = (
        "body{font:15px sans-serif;margin:2em}td,th{padding:2px 8px;text-align:right}"
        "td:first-child,th:first-child{text-align:left}tr:nth-child(odd){background:#eee}"
        "svg{max-width:48em;height:auto;display:block}"
    )
    return (
        f"<!doctype html><meta charset=utf-8><title>{escape(title)}</title>"
        f"<style>{style}</style><h1>{escape(title)}</h1><p>{escape(machine())}{body}"
    )
