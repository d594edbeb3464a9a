"""The boundary of the scheduling core: what it is told, what it decides.

A lane (:mod:`headrace.delivery`) owns the protocol: which slots may be sent to, what
is in flight, what is settled. A scheduler owns the policy: which requests go together,
in what order, to which slot, and which can no longer make it. They meet here, so that
production, the simulator and the policies of other systems are the same kind of
object: ``handle(event, now_us) -> list[Decision]`` and ``wakeup_at_us()``.

A scheduler takes in every other event in silence and decides on ``Ticked``: it asks
for one at once (``wakeup_at_us() <= now_us``) when something may follow. So requests
that were read together are batched together, although a worker was idle when the
first of them came.

All instants are integer microseconds of one monotonic source.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec

from headrace.domain.model import ServedVersion
from headrace.domain.reason import Reason
from headrace.domain.request import Request

__all__ = [
    "Arrived",
    "BatchEnded",
    "Dispatch",
    "Event",
    "HopsMeasured",
    "Refuse",
    "ReleaseReason",
    "Scheduler",
    "SchedulerDecision",
    "SlotChanged",
    "Ticked",
    "VersionChanged",
    "Withdrawn",
]


class ReleaseReason(StrEnum):
    """Why a batch left when it did; travels in the batch and in a metric."""

    FULL = "full"
    IDLE = "idle"
    """A worker was free and nothing was gained by waiting."""
    DEADLINE = "deadline"
    AHEAD = "ahead"
    """The credit ahead: the running batch is about to end."""
    ALONE = "alone"
    """A group that keeps to itself, after a failure."""
    OWED = "owed"
    """A lower priority's guaranteed share."""
    TARGET = "target"
    """The size after which a larger batch gains nothing."""


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """A request may be scheduled, for the first time or again."""

    request: Request


class Withdrawn(msgspec.Struct, frozen=True):
    """Forget a queued request (cancelled, settled elsewhere); unknown keys are fine."""

    key: str


class SlotChanged(msgspec.Struct, frozen=True):
    """What may be sent to a worker slot now: a level, not a difference, so repeating
    it changes nothing. ``credits_free`` is 0 for a slot that may not be sent to;
    ``held`` are the batches that it has, oldest first."""

    slot: int
    credits_free: int
    held: tuple[str, ...]


class BatchEnded(msgspec.Struct, frozen=True):
    """A batch left its slot. ``run_us`` is None when it did not run to its end."""

    batch: str
    slot: int
    run_us: int | None


class VersionChanged(msgspec.Struct, frozen=True):
    """A version appeared, changed its slots or limits, or is gone (no slots)."""

    served: ServedVersion


class HopsMeasured(msgspec.Struct, frozen=True):
    """The usual hops: former to a run's start, run's end to the client; and how long
    before the end of a run the next batch must leave, so that it nearly always lies in
    the worker's memory by then (None: twice the control hop). ``path_us``: how long a
    batch keeps the batch former itself busy, its requests and its end with it (0:
    unknown, or nothing to speak of)."""

    control_us: int
    response_us: int
    ahead_us: int | None = None
    path_us: int = 0


class Ticked(msgspec.Struct, frozen=True):
    """Nothing but time has passed."""


Event = (
    Arrived
    | Withdrawn
    | SlotChanged
    | BatchEnded
    | VersionChanged
    | HopsMeasured
    | Ticked
)


class Dispatch(msgspec.Struct, frozen=True):
    """Send these requests, all of one ``(model, version, shape)``, as one batch.

    ``padded_rows`` is the ladder's size for ``sum(rows)``, ``padded_length`` the edge
    that lengths are padded to (0 without padding); ``predicted_us`` the expected run
    time, ``predicted_p99_us`` what a lease is built from;
    ``latest_start_us`` the instant after which no member can make its deadline.
    """

    batch: str
    slot: int
    requests: tuple[Request, ...]
    padded_rows: int
    predicted_us: int
    predicted_p99_us: int
    latest_start_us: int | None
    reason: ReleaseReason
    padded_length: int = 0


class Refuse(msgspec.Struct, frozen=True):
    """End a queued request without running it."""

    request: Request
    reason: Reason
    text: str
    retry_after_us: int | None = None


SchedulerDecision = Dispatch | Refuse


class Scheduler(Protocol):
    """A scheduling policy: the product's own, or another system's in the simulator."""

    def handle(self, event: Event, now_us: int) -> list[SchedulerDecision]:
        """Take in one event and say what follows from it now."""
        ...

    def wakeup_at_us(self) -> int | None:
        """The next instant at which ``Ticked`` can change anything."""
        ...
