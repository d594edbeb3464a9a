"""What a worker's core is told: records of its own partition, ends of what it asked
for, time.

The shell (``services.gpu_worker``) keeps each batch's record, tensors and outputs
under its uuid; the core sees what its decisions need and nothing of a member but its
index. ``WriteEnded``, ``DrainRequested``, ``GapNoticed`` and ``Ticked`` are those of
:mod:`headrace.delivery.events`.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from headrace.delivery.events import (
    DrainRequested,
    GapNoticed,
    MemberStatus,
    Ticked,
    WriteEnded,
)

__all__ = [
    "ALL_OK",
    "BatchRead",
    "CaughtUp",
    "DrainRequested",
    "GapNoticed",
    "GiveUp",
    "HeartbeatAcked",
    "LinkEnded",
    "LinkOpened",
    "ModelsReady",
    "Outcome",
    "PayloadsCame",
    "PositionLost",
    "RepliesEnded",
    "ReplyStoring",
    "RunEnded",
    "Started",
    "SyncRead",
    "Ticked",
    "WorkerEvent",
    "WorkerExit",
    "WriteEnded",
]


class Started(msgspec.Struct, frozen=True):
    """W1: ``end`` is the end offset of the slot's partition, read before the join."""

    end: int


class BatchRead(msgspec.Struct, frozen=True):
    """A batch lies at ``offset`` of the slot's partition, or came by ``link``.

    ``latest_start_us`` is on the worker's monotonic clock. ``bulk``: no member has
    an ingress waiting for it, so that its results may take longer to be acked.
    ``predicted_us``: how long its former expects the run to take. ``store_wait_us``:
    how long it may wait for tensors in the payload store; 0: it brought them all.
    """

    offset: int
    batch: str
    lane: int
    epoch: int
    former: str
    incarnation: int
    members: int
    model: str
    version: str
    padded_rows: int
    latest_start_us: int | None
    bulk: bool
    predicted_us: int
    store_wait_us: int = 0
    link: int | None = None


class SyncRead(msgspec.Struct, frozen=True):
    """A sync lies at ``offset`` of the slot's partition, or came by ``link``.
    ``incarnation``: of the process that its former knows in the slot, if any."""

    offset: int
    lane: int
    epoch: int
    former: str
    k: int
    incarnation: int | None = None
    link: int | None = None


class LinkOpened(msgspec.Struct, frozen=True):
    """A former on this machine sends to this process by ``link``, a number that no
    other one has; of its orders in the partition only syncs up to (``epoch``, ``k``)
    may still come."""

    link: int
    lane: int
    epoch: int
    former: str
    k: int
    incarnation: int


class LinkEnded(msgspec.Struct, frozen=True):
    """Everything that came by ``link`` has been told."""

    link: int


class Outcome(msgspec.Struct, frozen=True):
    """How the run went for a member. ``OK``: it has a result, still to be written;
    ``RETRY`` and ``FINAL`` say why in ``reason``, a value of
    :class:`headrace.domain.Reason` where one fits."""

    status: MemberStatus
    reason: str = ""
    text: str = ""


ALL_OK = (Outcome(MemberStatus.OK),)


class RunEnded(msgspec.Struct, frozen=True):
    """The runner is free again. ``outcomes``: one for all members, or one each.
    ``run_us`` 0: nothing ran (the model was not loaded, the batch not decodable)."""

    batch: str
    run_us: int
    outcomes: tuple[Outcome, ...]


class RepliesEnded(msgspec.Struct, frozen=True):
    """The replies or results of these members are acked, or failed. Members without
    a reply address are acked as soon as ``WriteReplies`` is carried out. ``unstored``:
    why the payload store did not take them, where that is what failed."""

    batch: str
    members: tuple[int, ...]
    acked: bool
    unstored: str = ""


class PayloadsCame(msgspec.Struct, frozen=True):
    """What a batch waited for is here, or is known not to come."""

    batch: str


class ReplyStoring(msgspec.Struct, frozen=True):
    """The payload store was asked to take a member's reply, or (``is_stored``) has."""

    batch: str
    member: int
    is_stored: bool


class ModelsReady(msgspec.Struct, frozen=True):
    """The versions that this process can run now, as ``<model>/<version>``."""

    models: frozenset[str]


class CaughtUp(msgspec.Struct, frozen=True):
    """Everything is read that lay in the slot's partition at ``ReadToEnd``."""


class HeartbeatAcked(msgspec.Struct, frozen=True):
    """The log acknowledged a heartbeat of this process: the bus is alive."""


class PositionLost(msgspec.Struct, frozen=True):
    """The reader's position lies outside its partition: cut, replaced or expired."""


class WorkerExit(StrEnum):
    """Why the process ends at once; :mod:`headrace.lifecycle` has the codes."""

    DRAINED = "drained"
    REPLACED = "replaced"
    """W2: another process has this slot."""
    RUN_LIMIT = "run_limit"
    OUT_OF_MEMORY = "out_of_memory"
    """Neither a smaller arena nor a new session has helped."""
    DEVICE_LOST = "device_lost"
    """The device answers every call with an error until the process is gone."""
    DONE_UNACKED = "done_unacked"
    """W5: a done stayed unacked for 60 s on a live bus."""
    POSITION_LOST = "position_lost"


class GiveUp(msgspec.Struct, frozen=True):
    """The process cannot go on: hand back what is held, then end for this reason."""

    why: WorkerExit


WorkerEvent = (
    Started
    | BatchRead
    | SyncRead
    | LinkOpened
    | LinkEnded
    | RunEnded
    | RepliesEnded
    | ReplyStoring
    | PayloadsCame
    | WriteEnded
    | ModelsReady
    | CaughtUp
    | HeartbeatAcked
    | PositionLost
    | DrainRequested
    | GapNoticed
    | GiveUp
    | Ticked
)
