"""What may be set about scheduling; the defaults are right for most pools."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Annotated

from pydantic import (
    BaseModel,
    Field,
    field_validator,
)

__all__ = ["SchedulingSettings"]

DAY_US = 86_400_000_000
"""No time that is set here is longer."""

BYTES_MAX = 1 << 40
REQUESTS_MAX = 10_000_000
WEIGHT_MIN, WEIGHT_MAX = 0.001, 1_000
"""A tenant of the one gets a millionth of what one of the other gets."""

Part = Annotated[float, Field(ge=0, le=1)]
Time = Annotated[int, Field(gt=0, le=DAY_US)]
TimeOrNone = Annotated[int, Field(ge=0, le=DAY_US)]
Bytes = Annotated[int, Field(gt=0, le=BYTES_MAX)]
Weight = Annotated[float, Field(ge=WEIGHT_MIN, le=WEIGHT_MAX)]


class SchedulingSettings(BaseModel, frozen=True, extra="forbid"):
    """Parameters of the scheduling core."""

    spacing_us_max: TimeOrNone = 5_000
    """Longest that a batch which is not full keeps from the last one of its queue,
    where batches keep the former itself busy and more requests come. 0: never."""

    gate: float = Field(default=0.6, gt=0, le=1)
    """A queue's heads are given up only when they would force a batch below this part
    of what the queue could fill. Lower: fewer drops, smaller batches in overload."""

    deferral: float = Field(default=0.0, ge=0, le=0.5)
    """Part of the spare time that a batch waits for company although a worker is
    idle. 0 sends at once; above 0.5 contention has nothing left to be absorbed by."""

    deferral_bulk: float = Field(default=0.3, ge=0, le=0.5)
    """As ``deferral``, while bulk work waits: it fills the time that is saved."""

    quantile: float = Field(default=0.95, gt=0.5, lt=1)
    """Of measured run times, by which a deadline is judged to be attainable."""

    batch_bytes_max: Bytes = 16 * 1024 * 1024
    """A batch closes before its tensors pass this; one request always fits."""

    behind_bytes_max: Bytes = 1024 * 1024
    """A batch that would be the third or a later one in a worker's hands: beyond this
    size it waits until there is at most one before it."""

    queue_requests_max: int = Field(default=4096, gt=0, le=REQUESTS_MAX)
    """Online requests that one tenant may have waiting in one queue; the next one is
    refused with ``queue_full``. Bulk waits in the log instead: its partition pauses."""

    shares: tuple[Part, Part, Part, Part] = (0.0, 0.10, 0.10, 0.05)
    """Part of the busy time that each priority gets when it has work, whatever the
    more urgent ones want; realtime needs none. At most 1 together."""

    tenant_weights: Mapping[str, Weight] = {}
    """Shares of the device time between tenants who want more than there is; whoever
    is not named has 1."""

    burst_us: Time = 500_000
    """Device time by which a tenant may be behind the most served one and catch up;
    what he missed beyond that is forgotten."""

    bulk_chunk: float = Field(default=0.2, gt=0, le=1)
    """Longest bulk run as a part of the shortest online time limit."""

    bulk_of_rest: Part = 0.85
    """Part of what online requests leave of the workers that bulk is to have: a run in
    which it takes part is no longer than that needs, since all who come meanwhile wait
    for it. 1: as long as ``bulk_chunk`` allows."""

    bulk_ageing_us: Time = 600_000_000
    """A bulk request older than this is scheduled as standard."""

    online_memory_us: Time = 1_000_000
    """A model without online requests for this long no longer shortens bulk runs."""

    control_hop_us: TimeOrNone = 2_000
    """From a decision to the start of its run, until it is measured."""

    response_hop_us: TimeOrNone = 3_000
    """From the end of a run to the client, until it is measured."""

    @field_validator("shares", mode="before")
    @classmethod
    def _are_four(cls, given: object) -> object:
        if isinstance(given, Sized) and len(given) != 4:
            raise ValueError(
                "give four numbers, for realtime, interactive, standard and bulk, got "
                f"{len(given)}"
            )
        return given

    @field_validator("shares")
    @classmethod
    def _are_parts_of_one(cls, given: tuple[Part, ...]) -> tuple[Part, ...]:
        if sum(given) > 1 + 1e-9:
            raise ValueError(
                "they are parts of one busy time: give at most 1 together, got "
                f"{sum(given):g}"
            )
        return given
