"""What a lane is told: facts read from the log, outcomes of what it asked for, time.

The shell (``services.batch_former``) turns records into these, in the order of each
partition, and never filters: a lane ignores what its state makes irrelevant.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from headrace.domain import (
    CancelRead,
    Completion,
    Done,
    DoneMember,
    HeldBatch,
    HopsMeasured,
    Joined,
    Left,
    MemberStatus,
    Refused,
    Reported,
    RequestRead,
    RequestRejected,
    ServedVersion,
    StaleWritten,
)

__all__ = [
    "Assigned",
    "CancelRead",
    "ClaimSeen",
    "ClaimWritten",
    "CommitEnded",
    "CommitOutcome",
    "Completed",
    "Completion",
    "CompletionsAt",
    "CompletionsLost",
    "Done",
    "DoneMember",
    "DrainRequested",
    "Event",
    "GapNoticed",
    "HeldBatch",
    "HopsMeasured",
    "Joined",
    "KeysRead",
    "Left",
    "Lost",
    "MemberStatus",
    "OwnHeartbeatRead",
    "PartitionState",
    "PositionsFetched",
    "ReadingLost",
    "Refused",
    "Reported",
    "RequestRead",
    "RequestRejected",
    "Revoked",
    "SlotHeard",
    "StaleWritten",
    "StatusAdvanced",
    "Ticked",
    "VersionsChanged",
    "WriteEnded",
]


class Assigned(msgspec.Struct, frozen=True):
    """T1: the group gave us the lane."""


class Revoked(msgspec.Struct, frozen=True):
    """The group takes the lane back; commits are accepted until we return."""


class Lost(msgspec.Struct, frozen=True):
    """Ownership is gone: forget at once, write nothing."""


class DrainRequested(msgspec.Struct, frozen=True):
    """SIGTERM: LEAVING."""


class ClaimWritten(msgspec.Struct, frozen=True):
    """T2: ``offset`` None: the produce timed out."""

    offset: int | None


class ClaimSeen(msgspec.Struct, frozen=True):
    """A claim of another former lies in the lane's claims partition."""

    offset: int


class PartitionState(msgspec.Struct, frozen=True):
    """A request partition: its log, and what the group committed for it."""

    topic: str
    partition: int
    log_start: int
    log_end: int
    committed: int | None
    metadata: str


class PositionsFetched(msgspec.Struct, frozen=True):
    """T3. Also after a model appeared, with its partitions alone."""

    partitions: tuple[PartitionState, ...]
    completions_start: int
    completions_end: int


class CommitOutcome(StrEnum):
    ACCEPTED = "accepted"
    TRANSIENT = "transient"
    NOT_MEMBER = "not_member"
    FENCED = "fenced"
    UNAVAILABLE = "unavailable"


class CommitEnded(msgspec.Struct, frozen=True):
    """The answer to :class:`headrace.delivery.decisions.Commit` number ``commit``."""

    commit: int
    outcome: CommitOutcome


class VersionsChanged(msgspec.Struct, frozen=True):
    """The served versions of the pool, whole, after any change."""

    served: tuple[ServedVersion, ...]


class KeysRead(msgspec.Struct, frozen=True):
    """The answer to ``ReadKeys``: ids, and when each was answered."""

    ended: tuple[tuple[str, int], ...]


class ReadingLost(msgspec.Struct, frozen=True):
    """A request partition's position lies outside its log, which now reaches from
    ``log_start`` to ``log_end``; its reading has stopped."""

    topic: str
    partition: int
    log_start: int
    log_end: int


class CompletionsLost(msgspec.Struct, frozen=True):
    """The same for the lane's completions."""

    log_start: int
    log_end: int


class SlotHeard(msgspec.Struct, frozen=True):
    """A worker's heartbeat of this lane, appended at ``log_us``."""

    slot: int
    incarnation: int
    log_us: int


class LinkFound(msgspec.Struct, frozen=True):
    """There is a stream to the process ``incarnation`` of a slot, on this machine.
    ``link`` is a number that no other one has; at most one for each incarnation."""

    slot: int
    incarnation: int
    link: int


class LinkLost(msgspec.Struct, frozen=True):
    """A link has ended, or took no more. What was sent by it may have been read or
    not."""

    slot: int
    link: int


class StatusAdvanced(msgspec.Struct, frozen=True):
    """The newest record read from ``status`` was appended at ``log_us`` (D3)."""

    log_us: int


class OwnHeartbeatRead(msgspec.Struct, frozen=True):
    """Our own heartbeat came back through the log (D4)."""


class Completed(msgspec.Struct, frozen=True):
    """A record of the lane's completions partition, in order. The offset of a
    ``Joined`` is the slot's new incarnation."""

    offset: int
    completion: Completion


class CompletionsAt(msgspec.Struct, frozen=True):
    """The completions reader's position, when no record says it (empty reads)."""

    position: int


class WriteEnded(msgspec.Struct, frozen=True):
    """A write of ours ended: ``offset`` None: not acked in its time."""

    write: int
    offset: int | None


class GapNoticed(msgspec.Struct, frozen=True):
    """D5: the loop's last turn took longer than 500 ms."""


class Ticked(msgspec.Struct, frozen=True):
    """Nothing but time has passed."""


Event = (
    Assigned
    | Revoked
    | Lost
    | DrainRequested
    | ClaimWritten
    | ClaimSeen
    | PositionsFetched
    | CommitEnded
    | VersionsChanged
    | RequestRead
    | RequestRejected
    | CancelRead
    | ReadingLost
    | KeysRead
    | CompletionsLost
    | SlotHeard
    | LinkFound
    | LinkLost
    | StatusAdvanced
    | OwnHeartbeatRead
    | HopsMeasured
    | Completed
    | CompletionsAt
    | WriteEnded
    | GapNoticed
    | Ticked
)
