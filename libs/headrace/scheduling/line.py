"""The queue of one (model version, shape), with what is known about it."""

from __future__ import annotations

import re

from headrace.domain import Priority, ServedVersion
from headrace.scheduling.demand import Demand
from headrace.scheduling.estimate import RunTimes
from headrace.scheduling.lengths import rows_limit
from headrace.scheduling.queue import Entry, KeyQueue, QueueKey

__all__ = ["Line"]

_PADDED = re.compile(r"~\d+")
"""The padded extent in a compatibility key (:mod:`headrace.wire.compatibility`)."""


class Line:
    """The queue of one (model version, shape), with what is known about it."""

    def __init__(
        self,
        key: QueueKey,
        shape: QueueKey,
        served: ServedVersion,
        times: RunTimes,
        edge: int,
    ) -> None:
        self.queue = KeyQueue(key)
        self.version = (key.model, key.version)
        self.shape = shape
        """The key under which run times are learned; ``key`` differs from it for a
        group that keeps to itself."""
        self.times = times
        self.edge = edge
        """Length to which every row is padded; 0 without padding."""
        self.kin = (*self.version, _PADDED.sub("~", shape.shape) if edge else "")
        """Equal for lines that differ in that length alone."""

        self.demand = Demand()
        self.waits_since_us: list[int | None] = [None] * len(Priority)
        """When what waits here of each priority could first have left, and waited for
        company."""

        self.sent_at_us = -1
        """When the last online batch left."""

        self.counts: dict[str, int] = {}
        """Requests with a time limit that wait here, by tenant."""

        self.serve(served)

    @property
    def alone(self) -> bool:
        return self.queue.key is not self.shape

    def serve(self, served: ServedVersion) -> None:
        self.served = served
        self.rows_limit = rows_limit(served, self.edge)
        """Most rows of a batch, on any slot."""

        self.slots = served.ready_slots | served.unloading_slots

    def rows_max(self, slot: int) -> int:
        """Most rows of a batch for this slot, by its memory."""
        return min(self.served.rows_fit.get(slot, self.rows_limit), self.rows_limit)

    def drain_us(self) -> int:
        """How long what waits here keeps its slots busy."""
        row_us = self.times.expected(self.rows_limit) / self.rows_limit
        return int(len(self.queue) * row_us / max(len(self.slots), 1))

    def sent(self, priority: int, rows: int, lost: int, now_us: int) -> None:
        """An online batch leaves with so many rows of its priority, and so many are
        given up for it."""
        self.sent_at_us = now_us
        self.demand.sent(priority, rows)
        self.demand.settled(priority, rows, lost)

    def head(self, priority: int) -> Entry:
        return self.queue.bands[priority].head
