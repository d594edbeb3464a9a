"""A batch in a worker's hands."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import msgspec

from headrace.delivery.worker_events import ALL_OK, BatchRead, Outcome
from headrace.domain import MemberStatus, Setback

__all__ = ["HANDED_BACK", "LATE", "OVERDUE", "UNACKED", "Held", "Phase"]

HANDED_BACK = (Outcome(MemberStatus.RETRY, Setback.HANDED_BACK, "the worker ends"),)
OVERDUE = (Outcome(MemberStatus.RETRY, Setback.RUN_LIMIT, "its run would not stop"),)
LATE = (Outcome(MemberStatus.RETRY, Setback.LATE, "past its latest start"),)
UNACKED = Outcome(MemberStatus.UNACKED, "unacked", "the reply was not acked in time")


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

    def ran(self, told: tuple[Outcome, ...]) -> tuple[int, ...]:
        """Note one outcome for all members or one each; the members that succeeded."""
        if told == ALL_OK:
            self.outcomes = [*told] * self.read.members
            return tuple(range(self.read.members))
        outcomes = told * self.read.members if len(told) == 1 else told
        assert len(outcomes) == self.read.members, "one outcome for all or one each"
        self.outcomes = list(outcomes)
        return tuple(
            member
            for member, outcome in enumerate(outcomes)
            if outcome.status is MemberStatus.OK
        )

    def unacked(self, members: Iterable[int]) -> None:
        for member in members:
            self.outcomes[member] = UNACKED
