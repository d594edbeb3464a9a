"""What a worker's core wants done.

Join, report, done, refused and leave go through one producer in the order in which
they are decided (W6); replies and results through another. Every write but the
replies has a number, answered by ``WriteEnded``.
"""

from __future__ import annotations

import msgspec

from headrace.delivery.decisions import Alarm
from headrace.delivery.worker_events import Outcome, WorkerExit

__all__ = [
    "Alarm",
    "EndLink",
    "Exit",
    "Forget",
    "ReadToEnd",
    "Run",
    "StartReading",
    "Terminate",
    "WorkerDecision",
    "WorkerExit",
    "WriteDone",
    "WriteJoin",
    "WriteLeave",
    "WriteRefused",
    "WriteReplies",
    "WriteReport",
]


class WriteJoin(msgspec.Struct, frozen=True):
    """W1; the offset in its ``WriteEnded`` is this process's incarnation."""

    write: int


class StartReading(msgspec.Struct, frozen=True):
    """Read the slot's partition from ``position``."""

    position: int


class ReadToEnd(msgspec.Struct, frozen=True):
    """D5: read the slot's partition to its present end, then say ``CaughtUp``."""


class WriteReport(msgspec.Struct, frozen=True):
    """``held``: batches not yet acked as done, oldest first; the shell adds their
    members from the records that it kept."""

    write: int
    incarnation: int
    epoch: int
    former: str
    k: int
    draining: bool
    models: frozenset[str]
    held: tuple[str, ...]


class WriteRefused(msgspec.Struct, frozen=True):
    """``batch`` is empty when the sync ``k`` is refused. ``reason``: ``epoch``,
    ``incarnation``, ``lane`` or ``cap``."""

    write: int
    incarnation: int
    batch: str
    k: int
    reason: str
    epoch_seen: int


class Run(msgspec.Struct, frozen=True):
    """Hand the batch to the runner, which is idle."""

    batch: str


class Terminate(msgspec.Struct, frozen=True):
    """The run has taken too long: stop it (``RunOptions.terminate``). Its ``RunEnded``
    is still expected. ``is_over``: it is older than its limit, and the process ends."""

    batch: str
    is_over: bool


class WriteReplies(msgspec.Struct, frozen=True):
    """Write the results of these members of the batch, to each member's address."""

    batch: str
    members: tuple[int, ...]


class WriteDone(msgspec.Struct, frozen=True):
    """``outcomes``: one for all members, or one each; ``OK`` now means acked.
    The record's times are those that the shell measured."""

    write: int
    incarnation: int
    batch: str
    outcomes: tuple[Outcome, ...]


class WriteLeave(msgspec.Struct, frozen=True):
    write: int
    incarnation: int


class Forget(msgspec.Struct, frozen=True):
    """The batch's done is acked, or the batch was refused: drop its record."""

    batch: str


class EndLink(msgspec.Struct, frozen=True):
    """What still comes by the link does not count: close it."""

    link: int


class Exit(msgspec.Struct, frozen=True):
    why: WorkerExit


WorkerDecision = (
    WriteJoin
    | StartReading
    | ReadToEnd
    | WriteReport
    | WriteRefused
    | Run
    | Terminate
    | WriteReplies
    | WriteDone
    | WriteLeave
    | Forget
    | EndLink
    | Exit
    | Alarm
)
