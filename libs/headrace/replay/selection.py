"""Which recorded requests are meant."""

from __future__ import annotations

from typing import NamedTuple

from headrace.replay.conditions import Condition
from headrace.replay.recorded import Recorded
from headrace.wire import Record

__all__ = ["At", "Bound", "Selection"]


class At(NamedTuple):
    """A place in the request topic."""

    partition: int
    offset: int


Bound = int | At
"""An instant in epoch microseconds of log time, or a place."""


class Selection(NamedTuple):
    """Requests to ``model`` from ``since`` to before ``until`` (None: all) of which
    every condition holds. A place as a bound means its partition alone."""

    model: str
    since: Bound
    until: Bound | None = None
    conditions: tuple[Condition, ...] = ()

    def is_asked(self, record: Record) -> bool:
        """Whether a record of the model's request topic lies between the bounds."""
        if self.partition not in {None, record.partition}:
            return False
        is_begun = not _is_before(record, self.since)
        return is_begun and (self.until is None or _is_before(record, self.until))

    def is_chosen(self, recorded: Recorded) -> bool:
        facts = recorded.facts() if self.conditions else {}
        return all(each.holds(facts) for each in self.conditions)

    @property
    def partition(self) -> int | None:
        """The only one that is meant; None: all."""
        for bound in (self.since, self.until):
            if isinstance(bound, At):
                return bound.partition
        return None


def _is_before(record: Record, bound: Bound) -> bool:
    """In time, or in the one partition of a place."""
    if isinstance(bound, At):
        return record.offset < bound.offset
    return record.timestamp_us < bound
