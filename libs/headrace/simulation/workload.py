"""Requests in order of time, drawn from a seed, in constant memory."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from datetime import datetime
from heapq import merge
from itertools import cycle, islice, repeat
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from headrace.domain import Priority
from headrace.errors import SetupError
from headrace.simulation.limits import CV2_MAX, CV2_MIN

__all__ = [
    "Arrival",
    "Kind",
    "Stream",
    "arrivals",
    "arrivals_of",
    "gaps_of",
    "kinds_of",
    "merged",
]

BLOCK = 8192
SECOND_US = 1_000_000

UNREADABLE = (
    *(OSError, ValueError, TypeError, IndexError, OverflowError),
    *(csv.Error, msgspec.DecodeError),
)
"""What a file that is no trace can bring about."""

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of one tenant and priority: ``rate`` per second from ``start_s`` to
    ``end_s``."""

    rate: float
    end_s: float
    start_s: float = 0.0
    process: str = "poisson"
    """``poisson``, ``gamma:CV2``, ``even``, ``trace:FILE`` (Azure's CSV or
    Mooncake's JSON Lines; its shape, scaled to ``rate``), ``once`` (all of them at
    the start), or ``backlog:N``: that many requests always wait in each lane."""

    models: tuple[int, ...] = (0,)
    """Indices of the models asked for, equally often."""

    shapes: int = 1
    """As many different shapes, equally often."""

    limit_us: int | None = 100_000
    priority: Priority = Priority.STANDARD
    tenant: str = "default"
    rows: int = 1

    @property
    def backlog(self) -> int:
        """Requests that always wait in each lane; 0: they arrive by a process."""
        name, _, argument = self.process.partition(":")
        return int(argument) if name == "backlog" else 0


class Kind(NamedTuple):
    """Requests that are told apart by nothing but their instants."""

    tenant: str
    priority: Priority
    model: int
    shape: int
    rows: int
    limit_us: int | None


Arrival = tuple[int, int]
"""Instant in µs and the place of its :class:`Kind`."""


def kinds_of(streams: Sequence[Stream]) -> list[Kind]:
    """In the order by which arrivals name them: by stream, model and shape."""
    return [
        Kind(
            stream.tenant,
            stream.priority,
            model,
            shape,
            stream.rows,
            stream.limit_us,
        )
        for stream in streams
        for model in stream.models
        for shape in range(stream.shapes)
    ]


def merged(streams: Sequence[Stream], seed: int) -> Iterator[Arrival]:
    """All streams in one order of time, backlogs excepted."""
    sources = [
        arrivals_of(streams, place, seed)
        for place, stream in enumerate(streams)
        if not stream.backlog
    ]
    return sources[0] if len(sources) == 1 else merge(*sources)


def arrivals_of(streams: Sequence[Stream], place: int, seed: int) -> Iterator[Arrival]:
    """Those of one stream among others; each has dice of its own."""
    first = len(kinds_of(streams[:place]))
    return arrivals(streams[place], first, seed * 1_000 + place)


def arrivals(stream: Stream, first: int, seed: int) -> Iterator[Arrival]:
    """The requests of one stream, ascending; its first kind is number ``first``."""
    dice = np.random.default_rng(seed)
    if stream.process == "once":
        total = round(stream.rate * (stream.end_s - stream.start_s))
        kinds = cycle(range(first, first + len(stream.models) * stream.shapes))
        start_us = int(stream.start_s * SECOND_US)
        yield from ((start_us, kind) for kind in islice(kinds, total))
        return
    count = len(stream.models) * stream.shapes
    end_us = stream.end_s * SECOND_US
    at_us = stream.start_s * SECOND_US
    for gaps in gaps_of(stream.process, SECOND_US / stream.rate, dice):
        instants = at_us + np.cumsum(gaps)
        at_us = float(instants[-1])
        instants = instants[: np.searchsorted(instants, end_us)]
        picks = (
            dice.integers(first, first + count, size=len(instants)).tolist()
            if count > 1
            else repeat(first, len(instants))
        )
        yield from zip(instants.astype(np.int64).tolist(), picks, strict=True)
        if at_us >= end_us:
            return


def gaps_of(
    process: str, mean_us: float, dice: np.random.Generator
) -> Iterator[Floats]:
    """Blocks of times between requests, µs."""
    name, colon, argument = process.partition(":")
    if colon and name in {"poisson", "even"}:
        raise SetupError(f"arrivals {process!r}: {name} takes nothing after it")
    match name:
        case "poisson":
            while True:
                yield dice.exponential(mean_us, BLOCK)
        case "even":
            while True:
                yield np.full(BLOCK, mean_us)
        case "gamma":
            shape = 1 / _cv2(argument)
            while True:
                yield dice.gamma(shape, mean_us / shape, BLOCK)
        case "trace":
            gaps = np.diff(np.array(_instants(argument), dtype=np.float64))
            gaps *= mean_us / gaps.mean()
            while True:
                yield gaps
        case _:
            raise SetupError(
                f"arrivals {process!r} are unknown: say poisson, even, gamma:CV2 or "
                "trace:FILE"
            )


def _cv2(argument: str) -> float:
    """A squared coefficient of variation."""
    try:
        found = float(argument)
    except ValueError:
        found = 0.0
    if not CV2_MIN <= found <= CV2_MAX:
        raise SetupError(
            f"gamma:{argument} names no variation from {CV2_MIN:g} to {CV2_MAX:,}: say "
            "gamma:4 for bursts, gamma:1 for what is Poisson"
        )
    return found


def _instants(name: str) -> list[float]:
    """Seconds of each request of a trace."""
    if not name:
        raise SetupError("a trace needs a file, and none is named: say trace:FILE")
    path = Path(name)
    try:
        with path.open() as file:
            if path.suffix == ".jsonl":
                rows = map(msgspec.json.decode, file)
                instants = [float(row["timestamp"]) / 1000 for row in rows]
            else:
                table = islice(csv.reader(file), 1, None)
                instants = [_seconds(row[0]) for row in table]
    except KeyError as error:
        raise SetupError(f"trace {path}: a line has no {error}") from error
    except UNREADABLE as error:
        raise SetupError(f"trace {path} cannot be read: {error}") from error
    if not all(map(isfinite, instants)):
        raise SetupError(f"trace {path}: an instant is no finite number")
    instants.sort()
    if len(instants) < 2 or instants[0] == instants[-1]:
        raise SetupError(f"trace {path} has fewer than two instants")
    return instants


def _seconds(text: str) -> float:
    # Azure writes seven digits of a second; Python reads six.
    head, _, fraction = text.partition(".")
    return datetime.fromisoformat(f"{head}.{fraction[:6].ljust(6, '0')}").timestamp()
