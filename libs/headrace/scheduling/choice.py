"""A batch that could leave."""

from __future__ import annotations

from typing import NamedTuple

from headrace.domain import ReleaseReason
from headrace.scheduling.line import Line
from headrace.scheduling.selection import Selection, Times
from headrace.scheduling.slots import Slot

__all__ = ["Choice"]


class Choice(NamedTuple):
    """A batch that could leave."""

    line: Line
    priority: int
    slot: Slot
    times: Times
    chosen: Selection
    reason: ReleaseReason
    start_us: int
