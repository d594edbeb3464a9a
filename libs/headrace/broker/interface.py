"""What the product asks of a log, in the fewest verbs.

Two tenants: Apache Kafka (:class:`headrace.broker.KafkaProducer` and its kin) and the
broker in memory (``headrace.testing``); one contract suite holds both. Every call
blocks at most as long as its ``timeout_s``; none is safe on an event loop except
``produce``, and ``poll`` without a wait. All calls of one reader, and of one leader,
are made by one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from headrace.errors import BusError
from headrace.wire import Headers, NewTopic, Record

__all__ = [
    "Admin",
    "CommitRefused",
    "Committed",
    "Delivery",
    "Headers",
    "Leader",
    "LeaderListener",
    "LogRange",
    "NewTopic",
    "Producer",
    "Reader",
    "Record",
    "TopicPartition",
]


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class Delivery(NamedTuple):
    """How a produce ended. ``error`` None: acked by all, at ``offset``; acked at an
    unknown place is a :class:`headrace.errors.BusTimeout`, as what was not acked."""

    topic: str
    partition: int
    offset: int
    timestamp_us: int
    error: BusError | None


class LogRange(NamedTuple):
    """``start`` is the first offset kept, ``end`` the next one to be written."""

    start: int
    end: int


class Committed(NamedTuple):
    """A group's committed offset with its metadata; offset None: never committed."""

    offset: int | None
    metadata: str


class CommitRefused(StrEnum):
    """Why the coordinator refused a commit, by what the caller does next."""

    TRANSIENT = "transient"
    """A rebalance runs: the same commit again at the next tick."""
    NOT_MEMBER = "not_member"
    """Ownership is lost: drop every lane, rejoin through poll."""
    FENCED = "fenced"
    """Another process has this instance id: end the process (76)."""
    UNAVAILABLE = "unavailable"
    """The coordinator did not answer: outcome unknown, again at the next tick."""


class Producer(Protocol):
    """An idempotent producer with acks from all; records of one partition keep their
    order. ``produce`` never blocks and may be called from any thread; ``on_delivery``
    runs on the thread that calls ``poll`` or ``flush``."""

    def produce(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> None:
        """``partition`` -1: equal keys have one place, a missing key any.

        Raises :class:`BusFull` when the queue is full, :class:`BusError` when the
        record is refused locally (too large, unknown partition); what was held before
        is refused by its ``on_delivery``."""
        ...

    def poll(self, timeout_s: float) -> int:
        """Run delivery callbacks; how many ran."""
        ...

    def flush(self, timeout_s: float) -> int:
        """Wait for outstanding records; how many are left."""
        ...

    @property
    def is_holding(self) -> bool:
        """Whether records wait for the acks of others, which only ``poll`` hears of."""
        ...


class Reader(Protocol):
    """A group-less reader of partitions at positions that the caller chose."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Add partitions, or move those already assigned."""
        ...

    def unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Forget them. Here and below, what is not assigned is passed over."""
        ...

    def pause(self, partitions: Sequence[TopicPartition]) -> None: ...

    def resume(self, partitions: Sequence[TopicPartition]) -> None: ...

    def read(self, records_max: int, timeout_s: float) -> list[Record]:
        """Records of any assigned partition; at least one as soon as there is one,
        an empty list after the time-out. Raises :class:`OffsetOutOfRange` once for
        a position outside the log."""
        ...

    def positions(self) -> dict[TopicPartition, int]:
        """Where it reads on, of every assigned partition that is not paused."""
        ...

    def restart(self) -> None:
        """Read on from the same positions with a new client."""
        ...

    def log_range(self, partition: TopicPartition, timeout_s: float) -> LogRange: ...

    def log_ranges(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, LogRange]:
        """Those of many partitions, at the price of one."""
        ...

    def offsets_since(
        self, partitions: Sequence[TopicPartition], since_us: int, timeout_s: float
    ) -> dict[TopicPartition, int]:
        """The first offset of each that was appended at ``since_us`` or later; its end
        where none was."""
        ...

    def close(self) -> None: ...


class LeaderListener(Protocol):
    """Called inside :meth:`Leader.poll`, on its thread."""

    def on_assign(self, lanes: Sequence[int]) -> None: ...

    def on_revoke(self, lanes: Sequence[int]) -> None:
        """The lanes may still be committed until this returns, by
        :meth:`Leader.commit` alone: the group goes on after it on the same
        connection."""
        ...

    def on_lost(self, lanes: Sequence[int]) -> None: ...


class Leader(Protocol):
    """Membership in the lane group (static id, classic protocol, cooperative-sticky,
    subscribed to the ``lanes`` topic alone) and the commits that prove it."""

    def poll(self, timeout_s: float) -> None:
        """Serve the group. Raises :class:`BusError` with code ``_FATAL`` when the
        client is fenced."""
        ...

    def commit(
        self,
        offsets: Mapping[TopicPartition, Committed],
        on_done: Callable[[CommitRefused | None], None],
    ) -> None:
        """Send one commit; ``on_done`` runs inside a later :meth:`poll` or
        :meth:`commit_now`, with None when it was accepted."""
        ...

    def commit_now(
        self, offsets: Mapping[TopicPartition, Committed], timeout_s: float
    ) -> CommitRefused | None:
        """As :meth:`commit`, waiting for the answer; None: accepted. It serves the
        group meanwhile, so the listener may be called; a listener may not call it."""
        ...

    def committed(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, Committed]: ...

    def close(self, *, leave: bool = False) -> None:
        """A static member does not leave the group on close: its lanes wait for its
        successor until its session ends. ``leave``: the others get them at once."""
        ...


class Admin(Protocol):
    """Topics and their facts."""

    def create_topics(self, topics: Sequence[NewTopic], timeout_s: float) -> None:
        """Create what is missing, add partitions where there are fewer; existing
        topics with another ``message.timestamp.type`` are refused."""
        ...

    def partitions(self, topic: str, timeout_s: float) -> int:
        """0: no such topic."""
        ...

    def topics(self, timeout_s: float) -> dict[str, int]:
        """Every topic with its partitions."""
        ...
