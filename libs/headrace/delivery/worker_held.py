"""A batch in a worker's hands."""

from __future__ import annotations

from enum import Enum
from typing import assert_never

import msgspec

from headrace.delivery.worker_events import (
    ALL_OK,
    BatchRead,
    Outcome,
    RepliesEnded,
    ReplyStoring,
)
from headrace.domain import MemberStatus, Reason, Setback

__all__ = ["HANDED_BACK", "LATE", "OVERDUE", "UNACKED", "UNSTORED", "Held", "Phase"]

HANDED_BACK = (Outcome(MemberStatus.RETRY, Setback.HANDED_BACK, "the worker ends"),)
OVERDUE = (Outcome(MemberStatus.RETRY, Setback.RUN_LIMIT, "its run would not stop"),)
LATE = (Outcome(MemberStatus.RETRY, Setback.LATE, "past its latest start"),)
UNACKED = Outcome(MemberStatus.UNACKED, "unacked", "the reply was not acked in time")


UNSTORED = Outcome(
    MemberStatus.UNACKED,
    Reason.STORE_UNAVAILABLE,
    "the payload store did not take its reply in time",
)


STORE_PERCENT = 80
"""Of the time that is left to its members, what a batch waits for the payload store at
most: then they still can be told what was away, or be tried where it is not."""


class Phase(Enum):
    WAITING = 1
    RUNNING = 2
    REPLYING = 3
    DONE = 4


class Held(msgspec.Struct):
    """A batch from taking it to the ack of its done."""

    read: BatchRead
    phase: Phase = Phase.WAITING
    started_us: int = 0
    run_limit_at_us: int = 0
    patience_ends_us: int | None = None
    """When its run is stopped for its members' sake; None: not before its limit."""

    store_waits_to_us: int | None = None
    """Until then it does not run, since it lacks tensors; None: it has them all."""

    is_stopped: bool = False
    """That was asked of it; false again at its limit."""

    replies_by_us: int = 0
    outcomes: list[Outcome] = []
    pending: set[int] = set()
    """Members whose replies are neither acked nor failed."""

    storing: set[int] = set()
    """Those of them whose replies are on their way to the payload store."""

    done_at_us: int = 0
    """When its done was first written."""

    @property
    def stops_at_us(self) -> int:
        """When its run is to be stopped."""
        if self.patience_ends_us is None:
            return self.run_limit_at_us
        return min(self.patience_ends_us, self.run_limit_at_us)

    def wait_for_store(self, now_us: int) -> None:
        """If it lacks tensors: for so long, of ``now_us`` on."""
        read = self.read
        if not read.store_wait_us:
            return
        wait_us = read.store_wait_us
        if read.latest_start_us is not None:
            left_us = max(0, read.latest_start_us - now_us)
            wait_us = min(wait_us, left_us * STORE_PERCENT // 100)
        self.store_waits_to_us = now_us + wait_us

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

    def told(self, event: RepliesEnded | ReplyStoring) -> None:
        match event:
            case RepliesEnded(members=members, acked=acked, unstored=text):
                self.pending.difference_update(members)
                why = UNACKED
                if text:
                    why = msgspec.structs.replace(UNSTORED, text=text)
                for member in () if acked else members:
                    self.outcomes[member] = why
            case ReplyStoring(member=member, is_stored=is_stored):
                (self.storing.discard if is_stored else self.storing.add)(member)
            case _:
                assert_never(event)

    def give_up(self) -> None:
        """What is still on its way has taken too long."""
        for member in self.pending:
            is_storing = member in self.storing
            self.outcomes[member] = UNSTORED if is_storing else UNACKED
