"""What a worker says of a lane's batches; the values of the completions topic."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from headrace.domain.request import Source

__all__ = [
    "Completion",
    "Done",
    "DoneMember",
    "HeldBatch",
    "Joined",
    "Left",
    "MemberStatus",
    "Refused",
    "Reported",
    "Setback",
    "StaleWritten",
]


class Joined(msgspec.Struct, frozen=True):
    """``previous_exit``: how the slot's process before ended, ``exit:<code>`` or
    ``signal:<name>``; empty for a first start."""

    slot: int
    previous_exit: str
    pid: int = 0
    host: str = ""


class HeldBatch(msgspec.Struct, frozen=True):
    batch: str
    members: tuple[Source, ...]


class Reported(msgspec.Struct, frozen=True):
    """The answer to the sync ``k`` of (``epoch``, ``former``); ``models`` are
    ``<model>/<version>`` that the slot can run."""

    slot: int
    incarnation: int
    epoch: int
    former: str
    k: int
    draining: bool
    models: frozenset[str]
    held: tuple[HeldBatch, ...]


class MemberStatus(StrEnum):
    OK = "ok"
    """Its reply or result is acked."""
    UNACKED = "unacked"
    """It ran; its reply or result was not acked in time."""
    RETRY = "retry"
    """It did not run to its end; the reason says why."""
    FINAL = "final"
    """It can never succeed; the reason says why."""


class Setback(StrEnum):
    """Why a member is to run again, where its status is ``retry``. A newer worker may
    have others: they count as an attempt."""

    LATE = "late"
    """The batch came after its latest start; nothing ran."""
    NEIGHBOUR = "neighbour"
    """Another member could not be read, so nothing ran."""
    MODEL_ERROR = "model_error"
    """The batch failed as a whole, whoever caused it."""
    OOM = "oom"
    """The batch needed more memory than there was."""
    RUN_LIMIT = "run_limit"
    """The run passed its limit; the process ends."""
    STOPPED = "stopped"
    """The run took so long that it was stopped, to find out for which of its members;
    the process goes on."""
    DEVICE = "device"
    """The device failed for good under the batch; the process ends."""
    HANDED_BACK = "handed_back"
    """The process ends and did not come to run it."""


_CUT_SHORT = frozenset({Setback.RUN_LIMIT, Setback.STOPPED})


class DoneMember(msgspec.Struct, frozen=True, gc=False):
    source: Source
    id: str
    status: MemberStatus
    reason: str
    text: str


class Done(msgspec.Struct, frozen=True):
    """``wait_us`` from the record's arrival to the run; ``run_us`` 0: no run."""

    batch: str
    slot: int
    incarnation: int
    rows: int
    wait_us: int
    run_us: int
    members: tuple[DoneMember, ...]
    input_us: int = 0
    output_us: int = 0
    model: str = ""
    version: str = ""
    order: bytes = b""
    """How it was ordered, of a batch that no other record tells of
    (:func:`headrace.wire.order_of`)."""

    @property
    def measured_us(self) -> int | None:
        """What the run took, where there was one that ended by itself: how long a
        stopped one went on says nothing of those to come."""
        if any(member.reason in _CUT_SHORT for member in self.members):
            return None
        return self.run_us or None


class Refused(msgspec.Struct, frozen=True):
    """A worker refused a batch (``batch``) or a sync (``k``) without taking it."""

    batch: str
    k: int
    slot: int
    incarnation: int
    reason: str
    epoch_seen: int


class Left(msgspec.Struct, frozen=True):
    slot: int
    incarnation: int


class StaleWritten(msgspec.Struct, frozen=True):
    """Ranges that a former ended without a reply; first and last are inclusive."""

    topic: str
    partition: int
    ranges: tuple[tuple[int, int], ...]


Completion = Joined | Reported | Done | Refused | Left | StaleWritten
