"""When an owner must prove itself again before it says anything.

Two occasions stop a lane's output until a commit sent after them is accepted: its loop
stood still, so that the lane may have moved on unnoticed (D5), and workers who remember
a higher epoch, which either a successor has or a lost log once had.
"""

from __future__ import annotations

from enum import Enum

from headrace.delivery.commits import Commits, Purpose
from headrace.delivery.decisions import ReadToEnds
from headrace.delivery.events import CommitEnded, CommitOutcome
from headrace.delivery.ledger import Ledger
from headrace.delivery.limits import LaneLimits
from headrace.delivery.outbox import Outbox

__all__ = ["Confirming"]


class _Gap(Enum):
    NONE = 0
    CONFIRMING = 1
    READING = 2
    """Confirmed; what was missed is being read."""


class Confirming:
    """What holds up an ACTIVE lane's output, if anything does."""

    def __init__(
        self,
        lane: int,
        *,
        limits: LaneLimits,
        ledger: Ledger,
        commits: Commits,
        out: Outbox,
    ) -> None:
        self._lane = lane
        self._limits = limits
        self._ledger = ledger
        self._commits = commits
        self._out = out
        self._gap = _Gap.NONE
        self._raise_to: int | None = None
        self._commit: int | None = None
        self._again_at_us: int | None = None

    @property
    def is_needed(self) -> bool:
        return self._raise_to is not None or self._gap is not _Gap.NONE

    def gap_noticed(self, epoch: int, position: int) -> None:
        self._gap = _Gap.CONFIRMING
        self._send(epoch, position)

    def outrun(self, seen: int, epoch: int, position: int) -> None:
        """Workers have seen ``seen``. One commit is both the proof that the lane is
        still ours and the confirmation of the epoch above it: it is sent after the
        refusal was read, and carries the new epoch."""
        if self._raise_to is None or self._raise_to <= seen:
            self._raise_to = seen + 1
            self._send(epoch, position)

    def commit_ended(self, event: CommitEnded, epoch: int, now_us: int) -> int:
        """The epoch from now on."""
        if event.commit != self._commit:
            return epoch  # a later question is out
        self._commit = None
        if event.outcome is not CommitOutcome.ACCEPTED:
            self._again_at_us = now_us + self._limits.again_us
            return epoch
        if self._raise_to is not None:
            epoch, self._raise_to = self._raise_to, None
        if self._gap is _Gap.CONFIRMING:
            self._gap = _Gap.READING
            self._out.put(ReadToEnds(self._lane))
        return epoch

    def on_time(self, epoch: int, position: int, now_us: int, *, is_tick: bool) -> None:
        """``is_tick``: the shell ticks after ``ReadToEnds`` when the ends are read."""
        if self._again_at_us is not None and now_us >= self._again_at_us:
            self._send(epoch, position)
        elif self._gap is _Gap.READING and is_tick:
            self._gap = _Gap.NONE

    def wakeup_at_us(self) -> int | None:
        return 0 if self._gap is _Gap.READING else self._again_at_us

    def _send(self, epoch: int, position: int) -> None:
        self._again_at_us = None
        purpose, confirmed = Purpose.GAP, epoch
        if self._raise_to is not None:
            purpose, confirmed = Purpose.RAISE, self._raise_to
        self._commit = self._commits.confirm(purpose, self._ledger, confirmed, position)
