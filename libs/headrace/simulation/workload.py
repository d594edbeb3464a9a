"""Requests in order of time, drawn from a seed, in constant memory."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from headrace.domain import Priority
from headrace.errors import SetupError

__all__ = ["Arrival", "Stream", "arrivals", "merged"]

BLOCK = 8192
SECOND_US = 1_000_000


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of one kind: ``rate`` per second from ``start_s`` to ``end_s``."""

    rate: float
    end_s: float
    start_s: float = 0.0
    process: str = "poisson"
    """``poisson``, ``gamma:CV2``, ``even``, or ``trace:FILE`` (Azure's CSV or
    Mooncake's JSON Lines; its shape, scaled to ``rate``)."""

    models: tuple[int, ...] = (0,)
    """Indices of the models asked for, equally often."""

    limit_us: int | None = 100_000
    priority: Priority = Priority.STANDARD
    tenant: str = "default"
    rows: int = 1


class Arrival(NamedTuple):
    at_us: int
    model: int
    stream: Stream


def arrivals(stream: Stream, seed: int) -> Iterator[Arrival]:
    """The requests of one stream, ascending."""
    dice = np.random.default_rng(seed)
    end_us = stream.end_s * SECOND_US
    at_us = stream.start_s * SECOND_US
    models = stream.models
    for gaps in _gaps(stream, dice):
        instants = at_us + np.cumsum(gaps)
        picks = dice.integers(len(models), size=len(gaps)).tolist()
        for instant, pick in zip(instants.tolist(), picks, strict=True):
            if instant >= end_us:
                return
            yield Arrival(int(instant), models[pick], stream)
        at_us = float(instants[-1])


def merged(streams: Sequence[Stream], seed: int) -> Iterator[Arrival]:
    """All streams in one order of time."""
    sources = [
        arrivals(stream, seed * 1_000 + place) for place, stream in enumerate(streams)
    ]
    if len(sources) == 1:
        yield from sources[0]
        return
    heads = [next(source, None) for source in sources]
    while True:
        waiting = [
            (head.at_us, place) for place, head in enumerate(heads) if head is not None
        ]
        if not waiting:
            return
        _, place = min(waiting)
        head = heads[place]
        assert head is not None
        yield head
        heads[place] = next(sources[place], None)


def _gaps(
    stream: Stream, dice: np.random.Generator
) -> Iterator[np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Blocks of times between requests, µs."""
    mean_us = SECOND_US / stream.rate
    name, _, argument = stream.process.partition(":")
    match name:
        case "poisson":
            while True:
                yield dice.exponential(mean_us, BLOCK)
        case "even":
            while True:
                yield np.full(BLOCK, mean_us)
        case "gamma":
            shape = 1 / float(argument)
            while True:
                yield dice.gamma(shape, mean_us / shape, BLOCK)
        case "trace":
            instants = np.array(_instants(Path(argument)), dtype=np.float64)
            gaps = np.diff(instants)
            gaps *= mean_us / gaps.mean()
            while True:
                yield gaps
        case _:
            raise SetupError(
                f"arrivals {stream.process!r} are unknown: say poisson, even, "
                "gamma:CV2 or trace:FILE"
            )


def _instants(path: Path) -> list[float]:
    """Seconds of each request of a trace."""
    try:
        with path.open() as file:
            if path.suffix == ".jsonl":
                rows = map(msgspec.json.decode, file)
                instants = [float(row["timestamp"]) / 1000 for row in rows]
            else:
                table = islice(csv.reader(file), 1, None)
                instants = [_seconds(row[0]) for row in table]
    except (OSError, KeyError, ValueError, IndexError) as error:
        raise SetupError(f"trace {path} cannot be read: {error}") from error
    if len(instants) < 2 or instants[0] == instants[-1]:
        raise SetupError(f"trace {path} has fewer than two instants")
    return sorted(instants)


def _seconds(text: str) -> float:
    # Azure writes seven digits of a second; Python reads six.
    head, _, fraction = text.partition(".")
    return datetime.fromisoformat(f"{head}.{fraction[:6].ljust(6, '0')}").timestamp()
