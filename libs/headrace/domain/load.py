"""What a lane has to do and how fast it does it; what admission goes by."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.domain.request import Priority

__all__ = ["Count", "Load", "Microseconds", "Price", "QueueLoad"]

Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
"""Of things, or the number of one; as large as the log numbers partitions."""

Microseconds = Annotated[int, Meta(ge=0, le=2**53)]
"""A time or a duration that a float still tells exactly."""


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

    queues: list[QueueLoad] = []
    prices: list[Price] = []
    """Of the versions that were asked for lately."""
