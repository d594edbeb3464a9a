"""A batch in a worker's hands."""

from __future__ import annotations

from enum import Enum

import msgspec

from headrace.delivery.worker_events import BatchRead, Outcome

__all__ = ["Held", "Phase"]


class Phase(Enum):
    WAITING = 1
    RUNNING = 2
    REPLYING = 3
    DONE = 4


class Held(msgspec.Struct):
    """A batch from taking it to the ack of its done."""

    read: BatchRead
    phase: Phase = Phase.WAITING
    run_limit_at_us: int = 0
    replies_by_us: int = 0
    outcomes: list[Outcome] = []
    pending: set[int] = set()
    """Members whose replies are neither acked nor failed."""

    done_at_us: int = 0
    """When its done was first written."""
