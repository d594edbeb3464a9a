"""A replay as one sheet: an HTML page with tables and plots, or a PNG file."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headrace.comparison import BIN_EDGES, OutputFigures, WorstRow
from headrace.errors import SetupError
from headrace.replay.report import Report

__all__ = ["OUTPUT_COLUMNS", "output_cells", "shown_row", "write_page"]

CLASSES_MAX = 20
_WORST_SHOWN = 10
_ELEMENTS_SHOWN = 8

OUTPUT_COLUMNS = (
    *("output", "rows", "identical", "within", "max abs", "mean abs"),
    *("max rel", "mean rel", "agreement"),
)
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 14px/1.4 system-ui, sans-serif; margin: 2em; }}
table {{ border-collapse: collapse; margin: 1em 0; }}
td, th {{ padding: .2em .7em; text-align: right; border-bottom: 1px solid #ddd; }}
td:first-child, th:first-child {{ text-align: left; }}
.pass {{ color: #175; }} .fail {{ color: #b00; }}
svg {{ max-width: 100%; height: auto; }}
</style></head><body><h1>{title}</h1>
{body}
</body></html>
"""

Cells = Sequence[str]


def output_cells(name: str, figures: OutputFigures) -> Cells:
    """Under :data:`OUTPUT_COLUMNS`."""
    rows = figures.rows
    return (
        name,
        f"{rows:,}",
        f"{figures.identical / rows:.2%}",
        f"{figures.within / rows:.2%}",
        *(
            "" if each is None else f"{each:.3g}"
            for each in (
                figures.max_absolute,
                figures.mean_absolute,
                figures.max_relative,
                figures.mean_relative,
            )
        ),
        "" if figures.agreement is None else f"{figures.agreement:.2%}",
    )


def shown_row(elements: Sequence[object]) -> str:
    head = ", ".join(
        f"{each:.4g}" if isinstance(each, float) else str(each)
        for each in elements[:_ELEMENTS_SHOWN]
    )
    return head + (", ..." if len(elements) > _ELEMENTS_SHOWN else "")


def write_page(
    path: Path, report: Report, latencies_us: tuple[Sequence[int], Sequence[int]]
) -> None:
    """Write a ``.html`` or ``.png`` file; ``latencies_us`` of the successes then and
    of those now. Raises SetupError when it cannot be written."""
    figure = _figure(report, latencies_us)
    try:
        if path.suffix == ".png":
            figure.savefig(path, dpi=110)
        else:
            path.write_text(_page(report, figure), encoding="utf-8")
    except OSError as error:
        raise SetupError(f"page {path} cannot be written: {error}") from error


def _page(report: Report, figure: Figure) -> str:
    plots = io.StringIO()
    figure.savefig(plots, format="svg")
    svg = plots.getvalue()
    title = f"Requests to {report.model} once more, by {report.into}"
    body = "\n".join([*_tables(report), svg[svg.index("<svg") :]])
    return _PAGE.format(title=escape(title), body=body)


def _tables(report: Report) -> Iterator[str]:
    found = report.differences
    if report.verdict is not None:
        yield f'<h2 class="{report.verdict}">{report.verdict}</h2>'
    for told in (*report.against, *report.warnings):
        yield f"<p>{escape(told)}</p>"
    yield (
        f"<p>{escape(report.from_)} to {escape(report.to)}; run {report.at}, "
        f"{report.elapsed_s:.1f} s</p>"
    )
    counts = ("requests", "compared", "identical", "within", "failed", "mended")
    yield _table(
        (*counts, "unanswered", "mismatched"),
        [
            [
                f"{getattr(found, each):,}"
                for each in (*counts, "unanswered", "mismatched")
            ]
        ],
    )
    yield _table(
        OUTPUT_COLUMNS,
        [output_cells(name, each) for name, each in found.outputs.items()],
    )
    yield _table(
        ("answered then by version", "compared", "identical", "within"),
        [
            (name, f"{each.compared:,}", f"{each.identical:,}", f"{each.within:,}")
            for name, each in found.versions.items()
        ],
    )
    yield _table(
        ("latency, ms", "p50", "p90", "p99", "max"),
        [
            (
                name,
                *(f"{ms:,.1f}" for ms in (at.p50_ms, at.p90_ms, at.p99_ms, at.max_ms)),
            )
            for name, at in (
                ("then", found.latency_then),
                ("now, as bulk", found.latency_now),
            )
            if at is not None
        ],
    )
    for name, each in found.outputs.items():
        if each.worst:
            yield f"<h3>The worst rows of {escape(name)}</h3>"
            yield _table(
                ("request, row", "difference", "then", "now"),
                map(_worst_cells, each.worst[:_WORST_SHOWN]),
            )
    for told in (*found.mismatches, *found.failures):
        yield f"<p>{escape(told)}</p>"


def _worst_cells(row: WorstRow) -> Cells:
    return (
        f"{row.place}, {row.row}",
        "no number" if row.is_unlike else f"{row.difference:.4g}",
        shown_row(row.then),
        shown_row(row.now),
    )


def _table(head: Cells, rows: Iterable[Cells]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = (
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
        for row in rows
    )
    return f"<table><tr>{top}</tr>{''.join(lines)}</table>"


def _figure(
    report: Report, latencies_us: tuple[Sequence[int], Sequence[int]]
) -> Figure:
    outputs = report.differences.outputs
    chosen = {name: each for name, each in outputs.items() if each.pairs}
    count = 2 + len(chosen)
    lines = (count + 1) // 2
    figure = Figure(figsize=(13, 4.4 * lines), layout="constrained")
    places = iter(range(1, count + 1))
    _draw_differences(figure.add_subplot(lines, 2, next(places)), outputs)
    _draw_latencies(figure.add_subplot(lines, 2, next(places)), latencies_us)
    for name, each in chosen.items():
        _draw_pairs(figure.add_subplot(lines, 2, next(places)), name, each)
    return figure


def _draw_differences(axes: Axes, outputs: dict[str, OutputFigures]) -> None:
    axes.set_title("Rows that differ by no more than so much, part")
    # The first point stands for no difference at all.
    edges = np.concatenate(([BIN_EDGES[1] / 10], BIN_EDGES[1:]))
    for name, each in outputs.items():
        if each.max_absolute is not None:
            parts = np.cumsum(each.histogram) / max(each.rows, 1)
            axes.step(edges, parts, where="post", label=name)
    axes.set_xscale("log")
    axes.set_xlabel("largest absolute difference in a row (leftmost: none)")
    axes.set_ylim(-0.02, 1.05)
    _finish(axes)


def _draw_latencies(
    axes: Axes, latencies_us: tuple[Sequence[int], Sequence[int]]
) -> None:
    axes.set_title("Answered within, part")
    for name, times_us in zip(("then", "now, as bulk"), latencies_us, strict=True):
        if times_us:
            times_ms = np.sort(np.asarray(times_us)) / 1000
            parts = np.arange(1, len(times_ms) + 1) / len(times_ms)
            axes.step(times_ms, parts, where="post", label=name)
            axes.set_xscale("log")
    axes.set_xlabel("ms")
    _finish(axes)


def _draw_pairs(axes: Axes, name: str, figures: OutputFigures) -> None:
    """How often each answer then became each answer now."""
    axes.set_title(f"{name}: said then (down) and now (across)")
    often = dict.fromkeys(word for pair in figures.pairs for word in pair[:2])
    words = sorted(list(often)[:CLASSES_MAX], key=_natural)
    place = {word: at for at, word in enumerate(words)}
    grid = np.zeros((len(words), len(words)))
    for then, now, times in figures.pairs:
        if then in place and now in place:
            grid[place[then], place[now]] = times
    shade = np.log1p(grid)
    axes.imshow(shade, cmap="Blues")
    axes.set_xticks(range(len(words)), words)
    axes.set_yticks(range(len(words)), words)
    for down, across in np.argwhere(grid):
        is_dark = shade[down, across] > shade.max() / 2
        axes.text(
            across,
            down,
            f"{grid[down, across]:.0f}",
            ha="center",
            va="center",
            fontsize="x-small",
            color="white" if is_dark else "black",
        )


def _natural(word: str) -> tuple[int, float, str]:
    try:
        return 0, float(word), word
    except ValueError:
        return 1, 0.0, word


def _finish(axes: Axes) -> None:
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")
