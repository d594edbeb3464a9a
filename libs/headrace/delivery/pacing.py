"""Bulk work waits in the log, not in memory: how much of it, and in which lane.

A publisher keeps the queue of each lane short enough that nothing grows old in it, and
deep enough that no worker waits for the publisher. What waits is what the lane's
former has not committed past, whoever wrote it; so several publishers share the room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import BaseModel, PositiveInt

__all__ = ["Mark", "Outstanding", "Pacing", "PacingLimits"]

ROUNDS_MAX = 3
"""So often an item without an outcome is published again (``delivery.md`` calls for
it after the log has settled everything); then it is lost, and told so."""


class PacingLimits(BaseModel, frozen=True, extra="forbid"):
    """What may wait in one partition; beyond, the publisher waits."""

    records_max: PositiveInt = 4096
    """Records that the lane's former has not finished, of whatever publisher."""

    bytes_max: PositiveInt = 128 * 1024 * 1024
    """Bytes of this publisher's own records there. Far below what a partition keeps,
    so that none is removed before it ran."""


class Mark(NamedTuple):
    """An instant of a publisher's work: by partition, how many records had been sent,
    and an offset below those of all later ones."""

    sent: dict[int, int]
    ends: dict[int, int]


class _Queue:
    """One partition: ``committed`` by its former, ``end`` as far as is known."""

    __slots__ = ("acked", "committed", "end", "sent", "size", "unacked")

    def __init__(self, committed: int, end: int) -> None:
        self.committed = committed
        self.end = end
        self.sent = self.unacked = 0
        self.size = 0
        self.acked: deque[tuple[int, int]] = deque()

    @property
    def waiting(self) -> int:
        return max(self.end - self.committed, 0) + self.unacked


class Pacing:
    """``queues``: of each partition that may be written to, the committed offset (the
    log's start where there is none) and the log's end."""

    def __init__(
        self,
        queues: Mapping[int, tuple[int, int]],
        limits: PacingLimits = PacingLimits(),  # noqa: B008 - immutable
    ) -> None:
        self._queues = {number: _Queue(*known) for number, known in queues.items()}
        self._limits = limits

    @property
    def waiting(self) -> int:
        """Records in the log that no former has finished, as far as is known."""
        return sum(queue.waiting for queue in self._queues.values())

    @property
    def is_drained(self) -> bool:
        """Whether every record that was sent is acked, and finished by its former."""
        return not self.waiting

    @property
    def partitions(self) -> list[int]:
        return list(self._queues)

    def mark(self) -> Mark:
        queues = self._queues.items()
        return Mark(
            {number: queue.sent for number, queue in queues},
            {number: queue.end for number, queue in queues},
        )

    def has_acked(self, mark: Mark) -> bool:
        """Whether all that had been sent at the mark is acked, or has failed."""
        # Acks of one partition come in the order of its records.
        return all(
            queue.sent - queue.unacked >= mark.sent[number]
            for number, queue in self._queues.items()
        )

    def place(self, size: int) -> int | None:
        """The partition for a record of so many bytes: the one with the shortest
        queue, so that no key can make one hot. None: all are full."""
        number, queue = min(
            self._queues.items(), key=lambda item: (item[1].waiting, item[0])
        )
        is_first = not queue.size
        if queue.waiting >= self._limits.records_max:
            return None
        if queue.size + size > self._limits.bytes_max and not is_first:
            return None
        return number

    def sent(self, number: int, size: int) -> None:
        queue = self._queues[number]
        queue.sent += 1
        queue.unacked += 1
        queue.size += size

    def acked(self, number: int, offset: int, size: int) -> None:
        queue = self._queues[number]
        queue.unacked -= 1
        queue.end = max(queue.end, offset + 1)
        queue.acked.append((offset, size))

    def failed(self, number: int, size: int) -> None:
        """It was not acked, and is not known to lie in the log."""
        queue = self._queues[number]
        queue.unacked -= 1
        queue.size -= size

    def committed(self, offsets: Mapping[int, int]) -> None:
        """What the formers have committed; partitions of others are passed over."""
        for number, offset in offsets.items():
            queue = self._queues.get(number)
            if queue is None:
                continue
            queue.committed = max(queue.committed, offset)
            acked = queue.acked
            while acked and acked[0][0] < queue.committed:
                queue.size -= acked.popleft()[1]


class Outstanding:
    """The ids that still want an answer, for senders of so few that all fit in
    memory."""

    def __init__(self) -> None:
        self._rounds: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._rounds)

    def __contains__(self, name: str) -> bool:
        return name in self._rounds

    def sent(self, name: str) -> None:
        self._rounds[name] = self._rounds.get(name, 0) + 1

    def answered(self, name: str) -> bool:
        """False: it was answered before, or was never sent."""
        return self._rounds.pop(name, None) is not None

    def missing(self) -> tuple[list[str], list[str]]:
        """Once the log has settled all that was sent: whom to send again, and who is
        lost after :data:`ROUNDS_MAX` rounds and is forgotten here."""
        lost = [name for name, rounds in self._rounds.items() if rounds >= ROUNDS_MAX]
        for name in lost:
            del self._rounds[name]
        return list(self._rounds), lost
