"""What the threads tell the loop."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from headrace.broker import LogRange, Record, TopicPartition
from headrace.delivery.events import CommitEnded, KeysRead, PositionsFetched
from services.batch_former.inbox import Channel

__all__ = [
    "Asked",
    "Ended",
    "EndsFound",
    "LanesAssigned",
    "LanesLost",
    "LanesRevoked",
    "LogTimeSampled",
    "Message",
    "ModelsRead",
    "OutOfRange",
    "ReadBatch",
    "StatusRead",
    "ThreadFailed",
    "WritesEnded",
]


class ReadBatch(msgspec.Struct, frozen=True):
    """Records in the order of each partition. ``change`` counts the changes of
    assignment that the reader had made: records read before a change that concerned
    their partition are dropped."""

    channel: Channel
    records: list[Record]
    change: int


class OutOfRange(msgspec.Struct, frozen=True):
    """A position lies outside the partition's log, and its reading has stopped."""

    channel: Channel
    partition: TopicPartition
    log: LogRange
    change: int


class StatusRead(msgspec.Struct, frozen=True):
    """Heartbeats, in order."""

    records: list[Record]


class ModelsRead(msgspec.Struct, frozen=True):
    """Announcements and tombstones, in order."""

    records: list[Record]


class LogTimeSampled(msgspec.Struct, frozen=True):
    """D1: a heartbeat of ours was sent and acked at these instants of our clock, and
    appended at ``log_us``."""

    sent_us: int
    acked_us: int
    log_us: int


class EndsFound(msgspec.Struct, frozen=True):
    """D5: how far completions and status reached when the lane asked."""

    lane: int
    term: int
    completions_end: int
    status_end: int


class LanesAssigned(msgspec.Struct, frozen=True):
    """The group gave us these lanes."""

    lanes: tuple[int, ...]


class LanesRevoked(msgspec.Struct, frozen=True):
    """The group's thread waits until the loop has let these lanes go."""

    lanes: tuple[int, ...]


class LanesLost(msgspec.Struct, frozen=True):
    """These lanes are gone; nothing of them may be written or committed."""

    lanes: tuple[int, ...]


class MemberFenced(msgspec.Struct, frozen=True):
    """Somebody joined the group under our instance id, and our membership ended. If it
    is another process that lives, a heartbeat of its stands below ``status_end``."""

    status_end: int


class Asked(msgspec.Struct, frozen=True):
    """A thread's answer to a lane that held the lane's ``term``."""

    lane: int
    term: int
    event: CommitEnded | PositionsFetched | KeysRead


class Ended(NamedTuple):
    """A write of a lane; ``offset`` None: not acked in its time."""

    lane: int
    term: int
    write: int
    offset: int | None


class WritesEnded(msgspec.Struct, frozen=True):
    """Reports of one poll of a producer."""

    ended: list[Ended]


class LinkEnded(msgspec.Struct, frozen=True):
    """A link has ended, by whatever."""

    link: int


class ThreadFailed(msgspec.Struct, frozen=True):
    """A thread ended by an error that it does not handle: the process ends too."""

    thread: str
    error: BaseException


Message = (
    ReadBatch
    | OutOfRange
    | StatusRead
    | ModelsRead
    | LogTimeSampled
    | EndsFound
    | LanesAssigned
    | LanesRevoked
    | LanesLost
    | MemberFenced
    | Asked
    | WritesEnded
    | LinkEnded
    | ThreadFailed
)
