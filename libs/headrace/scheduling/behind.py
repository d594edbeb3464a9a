"""Which batches may be the third or a later one in a worker's hands."""

from __future__ import annotations

from headrace.domain import ReleaseReason
from headrace.scheduling.selection import Selection

__all__ = ["is_light"]


def is_light(chosen: Selection, reason: ReleaseReason, bytes_max: int) -> bool:
    """Whether no later request would fit into the batch, and it takes little of the
    worker's memory."""
    size = sum(entry.request.size_bytes for entry in chosen.members)
    is_full = reason is ReleaseReason.FULL or chosen.leaves_some
    return is_full and size <= bytes_max
