"""Runs as one sheet of plots: an HTML page with a table, or a PNG file."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from html import escape
from math import nan
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headrace.errors import SetupError
from headrace.simulation.summary import Share, Summary
from headrace.simulation.tallies import Results

__all__ = ["COLUMNS", "PART_COLUMNS", "part_rows", "row_of", "write_report"]

Run = tuple[Summary, Results]
Draw = Callable[[Axes, Sequence[Run]], None]
COLUMNS = (
    *("policy", "times", "offered/s", "goodput/s", "bound/s", "of bound", "in time"),
    *("p50 ms", "p99 ms", "batch", "busy", "refused", "late", "no limit/s"),
)
PART_COLUMNS = "of", "offered/s", "goodput/s", "in time", "p99 ms", "device"
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 14px/1.4 system-ui, sans-serif; margin: 2em; }}
table {{ border-collapse: collapse; margin-bottom: 1em; }}
td, th {{ padding: .2em .7em; text-align: right; border-bottom: 1px solid #ddd; }}
td:first-child, th:first-child {{ text-align: left; }}
svg {{ max-width: 100%; height: auto; }}
</style></head><body><h1>{title}</h1>
{tables}
{plots}
</body></html>
"""


def row_of(summary: Summary) -> tuple[str, ...]:
    """A run's cells under :data:`COLUMNS`."""
    return (
        summary.policy,
        f"{summary.factor:g}",
        f"{summary.offered:,.0f}",
        f"{summary.goodput:,.0f}",
        f"{summary.bound:,.0f}",
        f"{summary.goodput / summary.bound:.3f}" if summary.bound else "",
        f"{summary.attainment:.4f}",
        f"{summary.p50_ms:.1f}",
        f"{summary.p99_ms:.1f}",
        f"{summary.mean_batch:.1f}",
        f"{summary.busy:.2f}",
        f"{summary.refused:,}",
        f"{summary.late:,}",
        f"{summary.unlimited:,.0f}",
    )


def part_rows(summary: Summary) -> list[tuple[str, ...]]:
    """Cells under :data:`PART_COLUMNS`; none where the whole run is the only part."""
    told = {
        "tenant": summary.tenants,
        "priority": summary.priorities,
        "model": summary.models,
    }
    if all(len(parts) < 2 for parts in told.values()):
        return []
    return [
        (
            f"{kind} {name}",
            f"{part.offered:,.0f}",
            f"{part.goodput:,.0f}",
            f"{part.attainment:.4f}",
            f"{part.p99_ms:.1f}",
            f"{part.device_part:.3f}",
        )
        for kind, parts in told.items()
        for name, part in parts.items()
    ]


def write_report(path: Path, title: str, runs: Sequence[Run]) -> None:
    """Write a ``.html`` or ``.png`` file; SetupError when it cannot be written."""
    draws = _SWEPT if len({summary.factor for summary, _ in runs}) > 1 else _SINGLE
    if not any(summary.unlimited for summary, _ in runs):
        draws = [draw for draw in draws if draw is not _draw_unlimited]
    if not any(len(summary.tenants) > 1 for summary, _ in runs):
        draws = [draw for draw in draws if draw is not _draw_fairness]
    if not any(len(summary.models) > 1 for summary, _ in runs):
        draws = [draw for draw in draws if draw is not _draw_models]
    figure = Figure(figsize=(13, 4.2 * ((len(draws) + 1) // 2)), layout="constrained")
    for place, draw in enumerate(draws, start=1):
        axes = figure.add_subplot((len(draws) + 1) // 2, 2, place)
        draw(axes, runs)
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="small")
    try:
        if path.suffix == ".png":
            figure.savefig(path, dpi=110)
        else:
            path.write_text(_page(title, runs, figure), encoding="utf-8")
    except OSError as error:
        raise SetupError(f"report {path} cannot be written: {error}") from error


def _page(title: str, runs: Sequence[Run], figure: Figure) -> str:
    plots = io.StringIO()
    # Letters as such are smaller than their outlines, and can be found.
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(plots, format="svg")
    svg = plots.getvalue()
    tables = [_table(COLUMNS, [row_of(summary) for summary, _ in runs])]
    if len(runs) == 1 and (rows := part_rows(runs[0][0])):
        tables.append(_table(PART_COLUMNS, rows))
    return PAGE.format(
        title=escape(title), tables="".join(tables), plots=svg[svg.index("<svg") :]
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _by_policy(runs: Sequence[Run]) -> dict[str, list[Summary]]:
    found: dict[str, list[Summary]] = {}
    for summary, _ in runs:
        found.setdefault(summary.policy, []).append(summary)
    return found


def _lines(
    axes: Axes, runs: Sequence[Run], value_of: Callable[[Summary], float]
) -> None:
    for policy, summaries in _by_policy(runs).items():
        axes.plot(
            [summary.offered for summary in summaries],
            [value_of(summary) for summary in summaries],
            marker="o",
            label=policy,
        )
    axes.set_xlabel("offered, requests/s")


def _bounds(axes: Axes, runs: Sequence[Run], *, per_offered: bool) -> None:
    """What no policy can beat, and the rate at which nobody need be lost."""
    (summaries, *_) = _by_policy(runs).values()
    axes.plot(
        [summary.offered for summary in summaries],
        [
            summary.bound / summary.offered if per_offered else summary.bound
            for summary in summaries
        ],
        linestyle="--",
        color="black",
        label="overload bound",
    )
    lossless = summaries[0].zero_drop_bound
    if lossless is not None:
        axes.axvline(lossless, linestyle=":", color="black", label="zero-drop bound")


def _draw_goodput(axes: Axes, runs: Sequence[Run]) -> None:
    axes.set_title("Answered in time, requests/s")
    _lines(axes, runs, lambda summary: summary.goodput)
    _bounds(axes, runs, per_offered=False)
    axes.set_ylim(bottom=0)


def _draw_attainment(axes: Axes, runs: Sequence[Run]) -> None:
    axes.set_title("Part answered in time")
    _lines(axes, runs, lambda summary: summary.attainment)
    _bounds(axes, runs, per_offered=True)
    axes.set_ylim(-0.02, 1.05)


def _draw_p99(axes: Axes, runs: Sequence[Run]) -> None:
    axes.set_title("p99 of what was answered, ms")
    _lines(axes, runs, lambda summary: summary.p99_ms)
    axes.set_yscale("log")


def _draw_sizes(axes: Axes, runs: Sequence[Run]) -> None:
    axes.set_title("Mean batch, rows")
    _lines(axes, runs, lambda summary: summary.mean_batch)


def _draw_busy(axes: Axes, runs: Sequence[Run]) -> None:
    axes.set_title("Part of the workers' time that is busy")
    _lines(axes, runs, lambda summary: summary.busy)
    axes.set_ylim(-0.02, 1.05)


def _draw_unlimited(axes: Axes, runs: Sequence[Run]) -> None:
    axes.set_title("Without a time limit (bulk), requests/s")
    _lines(axes, runs, lambda summary: summary.unlimited)


def _draw_fairness(axes: Axes, runs: Sequence[Run]) -> None:
    axes.set_title("Device time by tenant, part of what was used")
    _draw_parts(axes, runs, lambda summary: summary.tenants)


def _draw_models(axes: Axes, runs: Sequence[Run]) -> None:
    axes.set_title("Device time by model, part of what was used")
    _draw_parts(axes, runs, lambda summary: summary.models)


def _draw_parts(
    axes: Axes,
    runs: Sequence[Run],
    parts_of: Callable[[Summary], Mapping[str, Share]],
) -> None:
    """Device time by what was offered, or by name where a policy ran once."""
    axes.set_ylim(-0.02, 1.05)
    by_policy = _by_policy(runs)
    for policy, summaries in by_policy.items():
        parts = [parts_of(summary) for summary in summaries]
        if len(parts) == 1:
            device = [part.device_part for part in parts[0].values()]
            axes.plot(list(parts[0]), device, marker="o", linestyle="", label=policy)
            continue
        axes.set_xlabel("offered, requests/s")
        for name in parts[0]:
            axes.plot(
                [summary.offered for summary in summaries],
                [each[name].device_part for each in parts],
                marker="o",
                label=f"{policy}, {name}" if len(by_policy) > 1 else name,
            )


def _draw_rates(axes: Axes, runs: Sequence[Run]) -> None:
    axes.set_title("Answered in time, requests/s")
    summaries = [summary for summary, _ in runs]
    first = summaries[0]
    axes.barh(
        [summary.policy for summary in summaries],
        [summary.goodput for summary in summaries],
        height=0.5,
    )
    axes.axvline(first.offered, color="grey", label="offered")
    axes.axvline(first.bound, linestyle="--", color="black", label="overload bound")
    if first.zero_drop_bound is not None:
        axes.axvline(
            first.zero_drop_bound,
            linestyle=":",
            color="black",
            label="zero-drop bound",
        )
    axes.set_ylim(-1, len(summaries))
    axes.set_xlim(left=0)


def _draw_latency(axes: Axes, runs: Sequence[Run]) -> None:
    axes.set_title("Latency of what was answered, part below")
    for summary, results in runs:
        latency = results.of(limited=True).latency_us
        if latency.count:
            points = latency.distribution()
            values = [us / 1000 for us, _ in points]
            parts = [part for _, part in points]
            axes.step(values, parts, where="post", label=summary.policy)
    axes.set_xlabel("ms")


def _draw_batches(axes: Axes, runs: Sequence[Run]) -> None:
    axes.set_title("Batch size, part of batches that are at most as large")
    for summary, results in runs:
        points = results.batch_rows.distribution()
        rows = [rows for rows, _ in points]
        parts = [part for _, part in points]
        axes.step(rows, parts, where="post", label=summary.policy)
    axes.set_xlabel("rows")


def _draw_seconds(axes: Axes, runs: Sequence[Run]) -> None:
    axes.set_title("Part answered in time, by the second of the request")
    for summary, results in runs:
        limited = results.of(limited=True)
        # A second without requests is a gap.
        parts = [
            limited.attainment_between(second, second + 1) if offered else nan
            for second, offered in enumerate(limited.offered_by_second)
        ]
        axes.plot(parts, marker=".", label=summary.policy)
    axes.set_ylim(-0.02, 1.05)
    axes.set_xlabel("s")


def _draw_tenants(axes: Axes, runs: Sequence[Run]) -> None:
    axes.set_title("Device time by tenant, workers")
    for summary, results in runs:
        for tenant in summary.tenants:
            given = results.of(tenant=tenant).device_us_by_second
            name = tenant if len(runs) == 1 else f"{summary.policy}, {tenant}"
            axes.plot([us / 1e6 for us in given], label=name)
    axes.set_xlabel("s")


_SWEPT: Sequence[Draw] = (
    *(_draw_goodput, _draw_attainment, _draw_p99, _draw_sizes),
    *(_draw_busy, _draw_unlimited, _draw_fairness, _draw_models),
)
_SINGLE: Sequence[Draw] = (
    *(_draw_rates, _draw_latency, _draw_batches, _draw_seconds, _draw_tenants),
    _draw_models,
)
