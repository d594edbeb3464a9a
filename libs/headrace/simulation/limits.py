"""What the numbers of a scenario may be: beyond, a run means nothing or never ends."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Strict

__all__ = [
    "BACKLOG_MAX",
    "CV2_MAX",
    "CV2_MIN",
    "FACTOR_MAX",
    "KIND_SECONDS_MAX",
    "LOAD_MAX",
    "PIECES_MAX",
    "REQUESTS_MAX",
    "RUN_TIMES_MAX",
    "SECONDS_MAX",
    "SECONDS_MIN",
    "Duration",
    "Factor",
    "Instant",
    "Load",
    "Milliseconds",
    "Noise",
    "Pieces",
    "Rate",
    "RunTime",
    "Seed",
    "TimeLimit",
]

PIECES_MAX = 10_000
"""Workers, lanes, models that are alike, shapes, and rows of a batch: each."""

SECONDS_MIN, SECONDS_MAX = 0.001, 86_400
REQUESTS_MAX = 100_000_000
"""In a run, those of backlogs included: half an hour on one core."""

RUN_TIMES_MAX = 1_000_000
"""Models times their largest batches: run times are looked up, not computed."""

KIND_SECONDS_MAX = 20_000_000
"""Kinds of requests (models and shapes of all streams) times seconds of the run: each
is counted second by second, in 24 bytes."""

BACKLOG_MAX = 1_000_000
LOAD_MAX = 1_000
CV2_MIN, CV2_MAX = 0.001, 1_000
FACTOR_MAX = 1_000

_STEP_MS = 0.001
"""A microsecond: shorter times are none."""

_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000

Pieces = Annotated[int, Strict(), Field(ge=1, le=PIECES_MAX)]
Seed = Annotated[int, Strict(), Field(ge=0, lt=2**63)]
Duration = Annotated[float, Strict(), Field(ge=SECONDS_MIN, le=SECONDS_MAX)]
Instant = Annotated[float, Strict(), Field(ge=0, le=SECONDS_MAX)]
Milliseconds = Annotated[float, Strict(), Field(ge=0, le=_MINUTE_MS)]
"""Of a hop or a lease."""

RunTime = Annotated[float, Strict(), Field(ge=0, le=_HOUR_MS)]
"""In milliseconds."""

TimeLimit = Annotated[float, Strict(), Field(ge=_STEP_MS, le=_DAY_MS)]
"""In milliseconds."""

Factor = Annotated[float, Strict(), Field(ge=1 / FACTOR_MAX, le=FACTOR_MAX)]
"""Of a run time."""

Noise = Annotated[float, Strict(), Field(ge=0, le=1)]
Rate = Annotated[float, Strict(), Field(gt=0, le=1_000_000_000)]
Load = Annotated[float, Strict(), Field(gt=0, le=LOAD_MAX)]
