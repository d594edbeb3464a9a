"""When a lane commits, and what an answer means (D8).

Every pair (W, c) ever committed stays a valid place to restart from, so a late or a
repeated commit costs re-reading and never a loss. A commit is also the only proof that
the lane's owner is still a member of its group (A2).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from headrace.delivery.decisions import Commit, CommitEntry
from headrace.delivery.events import CommitEnded, CommitOutcome
from headrace.delivery.ledger import Ledger, Log
from headrace.delivery.limits import LaneLimits
from headrace.delivery.metadata import CommitMetadata
from headrace.delivery.outbox import Outbox

__all__ = ["Commits", "Purpose"]


class Purpose(Enum):
    """What waits for a commit's answer."""

    TICK = 1
    """Watermarks, and the verdicts that were decided before it."""
    TAKE = 2
    """T5."""
    RAISE = 3
    """T5 again, after workers named a higher epoch."""
    GAP = 4
    """D5: the loop stood still, and the lane may have moved on."""
    LEAVE = 5


class _Sent(NamedTuple):
    purpose: Purpose
    watermarks: list[tuple[Log, int, tuple[int, int] | None]]


class Commits:
    """Builds commits and keeps those whose answer is outstanding."""

    def __init__(
        self, *, claims: tuple[str, int], limits: LaneLimits, out: Outbox
    ) -> None:
        self._claims = claims
        self._limits = limits
        self._out = out
        self._sent: dict[int, _Sent] = {}
        self._tick_at_us = 0
        self._all_at_us = 0
        self._not_before_us = 0
        self._wants_all = False
        self._wants_now = False

    def start(self, now_us: int) -> None:
        """The lane is ACTIVE: count from here."""
        self._tick_at_us = now_us + self._limits.commit_us
        self._all_at_us = now_us + self._limits.commit_all_us

    def want(self, *, everything: bool = False) -> None:
        """Commit as soon as no answer is outstanding, without waiting for the tick."""
        self._wants_now = True
        self._wants_all |= everything

    def is_due(self, now_us: int, *, urgent: bool) -> bool:
        """Whether to commit now. One at a time: a verdict decided while a commit is
        out waits for the next one, together with all decided until then."""
        if self._sent or now_us < self._not_before_us:
            return False
        return urgent or self._wants_now or now_us >= self._tick_at_us

    def all_is_due(self, now_us: int) -> bool:
        return now_us >= self._all_at_us

    def tick(
        self, ledger: Ledger, epoch: int, position: int, now_us: int, *, urgent: bool
    ) -> int | None:
        """The regular commit; its number, or None when nothing moved."""
        everything = self._wants_all or now_us >= self._all_at_us
        logs = [log for log in ledger.logs.values() if everything or log.has_moved]
        self._tick_at_us = now_us + self._limits.commit_us
        if everything:
            self._all_at_us = now_us + self._limits.commit_all_us
        self._wants_now = self._wants_all = False
        if not logs and urgent:
            logs = list(ledger.logs.values())[:1]
        if not logs:
            return None
        return self._send(Purpose.TICK, logs, epoch, position)

    def confirm(
        self, purpose: Purpose, ledger: Ledger, epoch: int, position: int
    ) -> int:
        """A commit of every partition, for whose answer the lane waits."""
        return self._send(purpose, list(ledger.logs.values()), epoch, position)

    def leave(self, ledger: Ledger, epoch: int, position: int) -> int | None:
        """The last commit; None: there is nothing to say. An owner that comes so far
        did not end at a record of what it leaves behind, nor at the one that it reads
        by itself."""
        for log in ledger.logs.values():
            log.suspect = None
        logs = [log for log in ledger.logs.values() if log.has_moved or log.takeovers]
        for log in logs:
            log.takeovers = 0
        return self._send(Purpose.LEAVE, logs, epoch, position) if logs else None

    def take(self, entries: list[CommitEntry], epoch: int) -> int:
        """T5: what was fetched, under the new epoch."""
        return self._put(Purpose.TAKE, [], entries, epoch)

    def ended(self, event: CommitEnded) -> Purpose | None:
        """What the answer was waited for; None: the question is of an earlier time."""
        sent = self._sent.pop(event.commit, None)
        if sent is None:
            return None
        if event.outcome is CommitOutcome.ACCEPTED:
            for log, watermark, marked in sent.watermarks:
                log.committed = watermark
                log.marked_committed = marked
        return sent.purpose

    def put_off(self, now_us: int) -> None:
        """The coordinator is busy: again at the next tick."""
        self._tick_at_us = self._not_before_us = now_us + self._limits.commit_us

    def wakeup_at_us(self, *, urgent: bool) -> int | None:
        if self._sent:
            return None
        return self._not_before_us if urgent or self._wants_now else self._tick_at_us

    def _send(
        self, purpose: Purpose, logs: list[Log], epoch: int, position: int
    ) -> int:
        entries = [
            CommitEntry(
                log.topic,
                log.partition,
                log.watermark,
                log.metadata(epoch, position),
            )
            for log in logs
        ]
        watermarks = [(log, log.watermark, log.marked) for log in logs]
        return self._put(purpose, watermarks, entries, epoch)

    def _put(
        self,
        purpose: Purpose,
        watermarks: list[tuple[Log, int, tuple[int, int] | None]],
        entries: list[CommitEntry],
        epoch: int,
    ) -> int:
        """A lane without any model commits its place among the claims instead, since
        an empty commit is never sent and proves nothing."""
        if not entries:
            topic, partition = self._claims
            metadata = CommitMetadata(epoch, 0).encode()
            entries = [CommitEntry(topic, partition, 0, metadata)]
        number = self._out.number()
        self._sent[number] = _Sent(purpose, watermarks)
        wait = purpose is not Purpose.TICK
        self._out.put(Commit(number, tuple(entries), wait))
        return number
