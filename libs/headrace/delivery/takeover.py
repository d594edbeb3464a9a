"""T1 to T6: how a former comes to own a lane, and where it starts.

Claim, positions, confirming commit, end of the completions, in this order, each from
its beginning again where it failed. Nothing is written under the new epoch before the
commit that carries it is accepted: a former that was assigned the lane and lost it in
the same breath would otherwise speak for it.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from headrace.delivery.commits import Commits
from headrace.delivery.decisions import (
    Alarm,
    CommitEntry,
    FetchPositions,
    WriteClaim,
)
from headrace.delivery.events import (
    CommitEnded,
    CommitOutcome,
    PartitionState,
    PositionsFetched,
)
from headrace.delivery.limits import LaneLimits
from headrace.delivery.metadata import CommitMetadata
from headrace.delivery.outbox import Outbox

__all__ = ["Start", "Takeover", "Taking", "start_of"]


class Start(msgspec.Struct, frozen=True):
    """A request partition at its new owner.

    ``takeovers``: how many owners in a row, with this one, found something unread
    behind the same watermark. ``watermark`` is what it commits, ``read_from`` where it
    reads: beyond the watermark when the records between are gone. ``committed`` is what
    was found with the offset, None without a commit of ours.
    """

    topic: str
    partition: int
    watermark: int
    read_from: int
    log_end: int
    committed: CommitMetadata | None
    takeovers: int
    alarm: Alarm | None

    @property
    def has_unread(self) -> bool:
        return self.log_end > self.watermark

    @property
    def found(self) -> tuple[int, int] | None:
        """The record that the predecessor was reading by itself, and of how many owners
        it was the last."""
        committed = self.committed
        if committed is None or committed.suspect is None:
            return None
        suspect = committed.suspect
        return (suspect, committed.deaths) if suspect >= self.watermark else None

    def suspects_until(self, limits: LaneLimits) -> int:
        """The first offset that no earlier owner can have read; the watermark where
        nothing that lies here unread may have ended them."""
        if self.takeovers > limits.deaths_to_suspect:
            return self.log_end
        return self.watermark if self.found is None else self.found[0] + 1


class Takeover(msgspec.Struct, frozen=True):
    """All of a lane at its new owner: its confirmed epoch, where it reads requests,
    and the stretch of completions that it reads before it acts."""

    epoch: int
    starts: tuple[Start, ...]
    scan_from: int
    scan_end: int


class _Step(Enum):
    CLAIM = 1
    FETCH = 2
    CONFIRM = 3
    FIND_END = 4
    TAKEN = 5


class Taking:
    """The steps of one takeover; each method returns what there is to show for it."""

    def __init__(
        self, lane: int, *, limits: LaneLimits, commits: Commits, out: Outbox
    ) -> None:
        self._lane = lane
        self._limits = limits
        self._commits = commits
        self._out = out
        self._step = _Step.CLAIM
        self._again_at_us: int | None = None
        self._is_fetching = False
        self._starts_over = False
        self._epoch_min = 0
        self.claim = -1
        """Offset of our own claim."""

        self._epoch = 0
        self._commit: int | None = None
        self._starts: tuple[Start, ...] = ()
        self._completions: PositionsFetched | None = None

    def begin(self) -> None:
        """T2."""
        self._step = _Step.CLAIM
        self._out.put(WriteClaim(self._lane))

    def start_over(self, epoch_min: int = 0) -> None:
        """From T3 again: the loop stood still in the middle of a takeover, or workers
        remember a higher epoch."""
        self._epoch_min = max(self._epoch_min, epoch_min)
        if self._is_fetching:
            # Answers carry no number, so that only one question is ever out.
            self._starts_over = True
        elif self._step is not _Step.CLAIM:
            self._fetch(_Step.FETCH, None)

    def claim_written(self, offset: int | None, now_us: int) -> None:
        if offset is None:
            self._again_at_us = now_us + self._limits.again_us
            return
        self.claim = offset
        self._fetch(_Step.FETCH, None)

    def positions_fetched(self, fetched: PositionsFetched) -> Takeover | None:
        """T3 to T5, or T6."""
        self._is_fetching = False
        if self._starts_over:
            self._starts_over = False
            self._fetch(_Step.FETCH, None)
            return None
        if self._step is _Step.FIND_END:
            self._step = _Step.TAKEN
            return self._takeover(fetched.completions_end)
        self._completions = fetched
        self._starts = tuple(start_of(state) for state in fetched.partitions)
        known = [start.committed for start in self._starts]
        epochs = [found.epoch + 1 for found in known if found]
        self._epoch = max([self.claim + 1, self._epoch_min, *epochs])
        self._step = _Step.CONFIRM
        entries = self._entries(fetched.completions_start)
        self._commit = self._commits.take(entries, self._epoch)
        return None

    def commit_ended(self, event: CommitEnded, now_us: int) -> None:
        """T5; a refusal for good is the lane's to see."""
        if self._step is not _Step.CONFIRM or event.commit != self._commit:
            return
        if event.outcome is CommitOutcome.ACCEPTED:
            self._fetch(_Step.FIND_END, ())
        else:
            self._step = _Step.FETCH
            self._again_at_us = now_us + self._limits.again_us

    def on_time(self, now_us: int) -> None:
        if self._again_at_us is not None and now_us >= self._again_at_us:
            self._again_at_us = None
            if self._step is _Step.CLAIM:
                self.begin()
            else:
                self._fetch(_Step.FETCH, None)

    def wakeup_at_us(self) -> int | None:
        return self._again_at_us

    def _fetch(self, step: _Step, models: tuple[str, ...] | None) -> None:
        self._step = step
        self._again_at_us = None
        self._is_fetching = True
        self._out.put(FetchPositions(self._lane, models))

    def _entries(self, completions_start: int) -> list[CommitEntry]:
        """T5: each partition's W, with the new epoch and its own c."""
        entries = []
        for start in self._starts:
            found = start.committed
            scan_from = found.completions if found else completions_start
            metadata = CommitMetadata(
                self._epoch, scan_from, start.takeovers, *(start.found or ())
            )
            entries.append(
                CommitEntry(
                    start.topic, start.partition, start.watermark, metadata.encode()
                )
            )
        return entries

    def _takeover(self, scan_end: int) -> Takeover:
        """T6. Where nothing is unread, completions are read from the end that was
        found before the confirming commit: what the predecessor did until then is
        read, too."""
        fetched = self._completions
        assert fetched is not None
        wanted = [
            start.committed.completions if start.committed else 0
            for start in self._starts
            if start.has_unread
        ]
        scan_from = min(wanted, default=fetched.completions_end)
        return Takeover(
            epoch=self._epoch,
            starts=self._starts,
            scan_from=max(fetched.completions_start, min(scan_from, scan_end)),
            scan_end=scan_end,
        )


def start_of(state: PartitionState) -> Start:
    """Where a partition starts, whatever became of its log."""
    found = None
    watermark = state.log_start
    if state.committed is not None:
        found = CommitMetadata.parse(state.metadata)
        watermark = state.committed
    read_from = watermark
    alarm = None
    facts: dict[str, str | int] = {"topic": state.topic, "partition": state.partition}
    if watermark < state.log_start:
        read_from = state.log_start
        facts |= {"first": watermark, "last": state.log_start - 1}
        alarm = Alarm("retention.gap", facts)
    elif watermark > state.log_end:
        facts |= {"committed": watermark, "log_end": state.log_end}
        alarm = Alarm("position.lost", facts)
        watermark = read_from = state.log_end
    takeovers = 0
    if state.log_end > watermark:
        takeovers = (found.takeovers if found else 0) + 1
    return Start(
        topic=state.topic,
        partition=state.partition,
        watermark=watermark,
        read_from=read_from,
        log_end=state.log_end,
        committed=found,
        takeovers=takeovers,
        alarm=alarm,
    )
