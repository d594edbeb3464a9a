"""What a lane has to do and how fast it does it; what admission goes by."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.domain.request import Priority

__all__ = ["DUE_WITHIN_US", "Count", "Load", "Microseconds", "Price", "QueueLoad"]

Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
"""Of things, or the number of one; as large as the log numbers partitions."""

Microseconds = Annotated[int, Meta(ge=0, le=2**53)]
"""A time or a duration that a float still tells exactly."""


DUE_WITHIN_US = tuple(int(25_000 * 2 ** (step / 2)) for step in range(25))
"""Bounds of the classes by which queued work is told: from 25 ms to 102 s, each the
square root of two of the one before. Work that is due later, or never, is one more."""


class QueueLoad(msgspec.Struct, frozen=True):
    """What waits for one model version in one priority of a lane."""

    model: str
    version: str
    priority: Priority
    requests: Count
    rows: Count
    oldest_us: Microseconds
    """Age of the oldest."""

    backlog_us: Microseconds
    """Device time of these rows, in batches as large as their time limits allow."""

    due_us: list[Microseconds] = []
    """Of that, what is due within each of :data:`DUE_WITHIN_US` from now and within
    none before it, a little sooner rather than later; empty classes at the end are
    left out. What is told of no class counts as due at once."""


class Price(msgspec.Struct, frozen=True):
    """What a model version's rows cost."""

    model: str
    version: str
    row_us: Microseconds
    """Device time of one row, in a batch as large as the time limits allow."""

    batch_us: Microseconds
    """Bound of the run time of a batch whose rows are about as cheap."""

    one_us: Microseconds
    """Bound of the run time of one row alone: a shorter time limit is unattainable."""

    room: dict[str, Count] = {}
    """Tenants of whom at least half as many online requests wait as may, whatever
    their shape, and how many more may."""

    is_dear: bool = False
    """Beside far cheaper versions on the same slots, and served of late: an ingress
    allows it no more room than others have."""


class Load(msgspec.Struct, frozen=True):
    """A lane's work at an instant. Device times add over all of its slots."""

    slots: Count
    """Worker slots that may be sent to."""

    free_us: list[Microseconds] = []
    """From now until a slot has run what it holds, ascending; of many slots, some
    that stand for the others."""

    heavy: list[str] = []
    """Tenants who lately took more than an equal part of the device time, while
    others asked for some too."""

    shares: list[Annotated[float, Meta(ge=0, le=1)]] = []
    """Part of the busy time that each priority gets when it has work, whatever the
    more urgent ones want; of the priorities that are not named here, none."""

    queues: list[QueueLoad] = []
    prices: list[Price] = []
    """Of the versions that were asked for lately."""
