"""How far a request partition is settled, and what may be committed of it (D8).

W is the lowest offset that is read and not settled. c is where a successor that
starts at W must begin to read completions: no later than the position up to which we
have read them, and no later than the ``done`` of any request that is settled above W,
since the successor will read that request again and must learn its end.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from headrace.delivery.limits import LaneLimits
from headrace.delivery.metadata import CommitMetadata

__all__ = ["PartitionLog"]

Entry = TypeVar("Entry")


class PartitionLog(Generic[Entry]):
    """One request partition between its watermark and its reader.

    ``start`` is the first offset that is not known to be settled, which is below
    ``position`` when records between them were lost with their log.
    """

    __slots__ = (
        "_open",
        "_settled",
        "bytes_open",
        "committed",
        "entries",
        "found",
        "found_deaths",
        "is_paused",
        "marked_committed",
        "partition",
        "position",
        "start",
        "suspect",
        "takeovers",
        "topic",
        "was_ahead",
    )

    def __init__(
        self, topic: str, partition: int, *, position: int, takeovers: int = 0
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.position = position
        self.start = position
        self.takeovers = takeovers
        self.committed: int | None = None
        self.suspect: int | None = None
        """The record that is being read by itself, as a commit says."""
        self.found: int | None = None
        self.found_deaths = 0
        """The record that the predecessor was reading by itself when it ended, and of
        how many owners it was the last."""
        self.marked_committed: tuple[int, int] | None = None
        """What the last accepted commit has as the suspect."""
        self.entries: dict[int, Entry] = {}
        self.bytes_open = 0
        self.is_paused = False
        self.was_ahead = False
        """Why ``read`` last said no: its end had been read before it."""

        self._open: deque[int] = deque()
        self._settled: dict[int, int | None] = {}

    def read(self, offset: int) -> bool:
        """Take note that the record at ``offset`` is read; False: it was before, or
        its end is known already and nothing is left to do with it."""
        if offset < self.position:
            self.was_ahead = False
            return False
        self.position = offset + 1
        if offset in self._settled:
            self.was_ahead = True
            if self._open:
                self._open.append(offset)
            else:
                del self._settled[offset]
            return False
        self._open.append(offset)
        return True

    def skip(self, offset: int) -> bool:
        """Take note of a record that is settled by being read; False: it was read
        before."""
        if not self.read(offset):
            return False
        self._settled[offset] = None
        self._advance()
        return True

    def lose(self, first: int, log_start: int) -> None:
        """Records from ``first`` on are gone from the log, unread. ``first`` stands for
        all of them until it is settled; the reader goes on at ``log_start``."""
        self._open.append(first)
        self._settled = {
            offset: done
            for offset, done in self._settled.items()
            if offset < first or offset >= log_start
        }
        self.start = min(self.start, first)
        self.position = log_start

    def cut(self, log_end: int) -> list[Entry]:
        """The log now ends at ``log_end``, below the reader: what was read beyond it
        is returned and no longer of this log."""
        beyond = [entry for offset, entry in self.entries.items() if offset >= log_end]
        self._open = deque(offset for offset in self._open if offset < log_end)
        self._settled = {o: done for o, done in self._settled.items() if o < log_end}
        self.entries = {o: entry for o, entry in self.entries.items() if o < log_end}
        self.position = log_end
        return beyond

    def settle(self, offset: int, done_offset: int | None) -> None:
        """The request at ``offset`` has its evidence; ``done_offset``: where in the
        lane's completions that stands, None where it stands elsewhere. The offset may
        lie ahead of the reader."""
        if offset < self.position and self.entries.pop(offset, None) is None:
            return  # settled before
        self._settled[offset] = done_offset
        self._advance()

    def _advance(self) -> None:
        while self._open and self._open[0] in self._settled:
            del self._settled[self._open.popleft()]

    @property
    def watermark(self) -> int:
        """W: the lowest unsettled offset."""
        return self._open[0] if self._open else self.position

    @property
    def marked(self) -> tuple[int, int] | None:
        """The suspect that a commit names, and its deaths, with the next one: the
        record at which the predecessor ended, until that has its end or is survived."""
        suspect, found = self.suspect, self.found
        if suspect is not None:
            return suspect, self.found_deaths + 1 if suspect == found else 1
        if found is not None and found >= self.watermark:
            return found, self.found_deaths
        return None

    @property
    def has_moved(self) -> bool:
        """Whether a commit would say something new."""
        return self.watermark != self.committed or self.marked != self.marked_committed

    def knows(self, offset: int) -> bool:
        """Whether the end of the record at ``offset`` is known before it is read."""
        return offset in self._settled

    def scan_from(self, completions_position: int) -> int:
        """c, when completions are read up to ``completions_position``."""
        known = (done for done in self._settled.values() if done is not None)
        return min(min(known, default=completions_position), completions_position)

    def metadata(self, epoch: int, completions_position: int) -> str:
        takeovers = 0 if self.watermark > self.start else self.takeovers
        scan_from = self.scan_from(completions_position)
        suspect, deaths = self.marked or (None, 1)
        return CommitMetadata(epoch, scan_from, takeovers, suspect, deaths).encode()

    def is_full(self, limits: LaneLimits) -> bool:
        return (
            len(self.entries) >= limits.unsettled_max
            or self.bytes_open >= limits.unsettled_bytes_max
            or self.position - self.watermark >= limits.span_max
        )

    def has_room(self, limits: LaneLimits) -> bool:
        """Room enough to read on after a pause."""
        return (
            len(self.entries) <= limits.unsettled_max // 2
            and self.bytes_open <= limits.unsettled_bytes_max // 2
            and self.position - self.watermark <= limits.span_max // 2
        )
