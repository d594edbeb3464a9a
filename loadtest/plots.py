"""Plots of a page, as SVG."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loadtest.summary import Summary

__all__ = ["drawn", "growth"]

_PARTS = {
    "ingress": "ingress",
    "batch_former": "batch former",
    "gpu_worker": "worker",
    "kafka": "broker",
}


def drawn(summaries: Sequence[Summary]) -> Iterator[str]:
    """Every plot for which there is something to show."""
    figure, axes = _plot("CPU per answer", "", "µs")
    _draw_cpu(axes, summaries)
    yield _svg(figure)
    figure, axes = _plot("Latency of what was answered", "ms", "share below")
    _draw_latency(axes, summaries)
    yield _svg(figure)
    open_loops = [each for each in summaries if "goodput_of_bare" in each.figures]
    if len(open_loops) > 2:
        figure, axes = _plot("Answered in time", "offered/s", "/s")
        _draw_goodput(axes, open_loops)
        yield _svg(figure)
    for summary in summaries:
        if "recovery_s" in summary.figures:
            figure, axes = _plot(summary.name, "s", "/s")
            _draw_timeline(axes, summary)
            yield _svg(figure)


def growth(
    unit: str,
    amounts: Sequence[int],
    cpu_us: Mapping[str, Sequence[float]],
    answered: Sequence[float],
) -> str:
    """CPU per answer by service, and answers per second beside it, against what
    grows."""
    figure, axes = _plot("", unit, "CPU per answer, µs")
    for service, costs in cpu_us.items():
        axes.plot(amounts, costs, marker="o", label=_PARTS[service])
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left")
    beside = axes.twinx()
    beside.plot(amounts, answered, linestyle="--", color="grey")
    beside.set_ylabel("answered/s (dashed)")
    beside.set_ylim(bottom=0)
    return _svg(figure)


def _plot(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    return figure, axes


def _draw_cpu(axes: Axes, summaries: Sequence[Summary]) -> None:
    names = [each.name for each in summaries]
    bottom = [0.0] * len(names)
    for service, label in _PARTS.items():
        costs = [each.figures[f"{service}_us"].median for each in summaries]
        axes.bar(names, costs, bottom=bottom, label=label)
        bottom = [sum(pair) for pair in zip(bottom, costs, strict=True)]
    axes.tick_params(axis="x", rotation=30)
    axes.legend()


def _draw_latency(axes: Axes, summaries: Sequence[Summary]) -> None:
    for summary in summaries:
        answers = summary.results[-1].streams[0].succeeded
        if answers.count:
            points = answers.percentiles_ms
            shares = [float(share) / 100 for share in points]
            axes.plot(list(points.values()), shares, label=summary.name)
    axes.set_xscale("log")
    axes.legend()


def _draw_goodput(axes: Axes, summaries: Sequence[Summary]) -> None:
    ordered = sorted(summaries, key=lambda each: each.results[-1].streams[0].offered)
    offered = [each.results[-1].streams[0].offered for each in ordered]
    goodput = [each.figures["goodput"].median for each in ordered]
    bare = [each.results[-1].host.bare or 0.0 for each in ordered]
    axes.plot(offered, goodput, marker="o", label="in time")
    axes.plot(offered, bare, linestyle="--", label="bare accelerator")
    axes.set_ylim(bottom=0)
    axes.legend()


def _draw_timeline(axes: Axes, summary: Summary) -> None:
    windows = summary.results[-1].timeline
    instants = [each.at_s for each in windows]
    axes.plot(instants, [each.offered for each in windows], label="offered")
    axes.plot(instants, [each.goodput for each in windows], label="in time")
    axes.plot(instants, [each.refused for each in windows], label="refused")
    axes.legend()


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg")
    _, _, svg = text.getvalue().partition("<svg")
    return f"<svg{svg}"
