"""What may be set about admission."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

__all__ = ["AdmissionSettings"]

DAY_US = 86_400_000_000
"""No time that is set here is longer."""

REQUESTS_MAX = 10_000_000
BATCHES_MAX = 1_000
CHOICE_MAX = 1_000

Time = Annotated[int, Field(gt=0, le=DAY_US)]
Requests = Annotated[int, Field(gt=0, le=REQUESTS_MAX)]


class AdmissionSettings(BaseModel, frozen=True, extra="forbid"):
    """Parameters of the door."""

    fill: float = Field(default=0.6, gt=0, le=1)
    """A request enters while what is ahead of it and its own run take at most this
    part of its time limit; the hops have the rest. A queue of two to three batches
    keeps every batch full; a longer one only puts all answers on the edge of their
    deadlines, where a hiccup makes them late (measured at twice the capacity: 67 % of
    the device's goodput at 1.0, 99 % at 0.6)."""

    batches_within_limit_min: int = Field(default=3, gt=0, le=BATCHES_MAX)
    """What batches need to be full: one runs, one waits, one is the request's own. A
    request also enters while so many are ahead with its own, though that be more than
    ``fill``; and as many more as versions share a slot besides one. A time limit that
    holds fewer than this has no room for full ones: the former then needs requests to
    choose from, and gives up the others."""

    choice: float = Field(default=4.0, ge=1, le=CHOICE_MAX)
    """There a request enters while the work ahead is at most this many times what the
    time limit holds, if it could finish in a batch of its own; nowhere at more. Less
    than that refuses what comes at the end of a burst, and could be served after it,
    for the sake of what came first and is lost anyway."""

    dear_part: float = Field(default=0.6, gt=0, le=1)
    """Of ``fill``, for a version whose time limit holds fewer than
    ``batches_within_limit_min`` batches where far cheaper ones share its workers. The
    room to choose from that it has by itself would keep out many of their requests for
    each of its own."""

    heavy_part: float = Field(default=0.8, gt=0, le=1)
    """Of both, for a tenant who lately took more than his share of a lane: what is
    left of the queue is the others', so that they are let in while he is refused."""

    loop_lag_part: float = Field(default=0.5, gt=0, le=1)
    """Everything is refused while the event loop is later than this part of the time
    limit: a saturated ingress loses every deadline at once. What it is late by below
    that is taken off the time limit; at 0.3 a busy machine's hiccups refused so much
    that the device ran dry."""

    loop_lag_limit_us_max: Time = 5_000_000
    """A longer time limit counts as this one there: a client that grants minutes does
    not make the requests of all others wait behind its own."""

    load_age_us_max: Time = 1_000_000
    """A lane's published load older than this is not believed; then the number of
    requests in flight is limited by their latency instead."""

    unheard_us_max: Time = 50_000
    """A lane counts as having worked since its load was published for so long at most.
    A busy one publishes several times in that time; when it is not heard of, whoever
    sends on would fill its queue by all the time for which nobody has heard of it."""

    concurrency_initial: Requests = 64
    """In flight per model, before any latency is known."""

    concurrency_max: Requests = 4096
    """Above this a request is refused whatever the latency says."""
