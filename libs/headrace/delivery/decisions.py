"""What a lane wants done. Every write has a number, answered by ``WriteEnded``."""

from __future__ import annotations

import msgspec

from headrace.domain import DeadLetter, Dispatch, Request, Terminal

__all__ = [
    "Alarm",
    "Cancelled",
    "Commit",
    "CommitEntry",
    "DeadLetter",
    "Decision",
    "DropLane",
    "FetchPositions",
    "OpenLink",
    "PausePartition",
    "ReadCompletions",
    "ReadKeys",
    "ReadOne",
    "ReadRequests",
    "ReadToEnds",
    "Rejoin",
    "ResumePartition",
    "StopReading",
    "Terminal",
    "WriteBatch",
    "WriteClaim",
    "WriteDeadLetters",
    "WriteReplies",
    "WriteStale",
    "WriteSync",
]


class WriteClaim(msgspec.Struct, frozen=True):
    """T2, answered by ``ClaimWritten``."""

    lane: int


class FetchPositions(msgspec.Struct, frozen=True):
    """T3: committed offsets, metadata and log ranges of the lane's partitions of
    these models, and the range of its completions. None: of every model that has a
    topic, served or not; empty: of none (T6, the completions' end alone)."""

    lane: int
    models: tuple[str, ...] | None


class CommitEntry(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    offset: int
    metadata: str


class Commit(msgspec.Struct, frozen=True):
    """One commit request through the leader, answered by ``CommitEnded``.
    ``wait``: synchronously (the confirming commit, and the last one on leaving)."""

    commit: int
    entries: tuple[CommitEntry, ...]
    wait: bool


class ReadRequests(msgspec.Struct, frozen=True):
    """Read these request partitions from these offsets."""

    positions: tuple[tuple[str, int, int], ...]


class ReadOne(msgspec.Struct, frozen=True):
    """Read the record at ``offset``, or the first behind it, and no other of its
    partition until it is asked for."""

    topic: str
    partition: int
    offset: int


class ReadCompletions(msgspec.Struct, frozen=True):
    """Read the lane's completions from ``position``, its claims from their end."""

    lane: int
    position: int


class ReadKeys(msgspec.Struct, frozen=True):
    """Read which requests with an idempotency key have had a final answer, while keys
    are remembered and up to the present end; answered by ``KeysRead``."""

    lane: int


class ReadToEnds(msgspec.Struct, frozen=True):
    """D5: read completions and status to their present ends before ``Ticked``."""

    lane: int


class StopReading(msgspec.Struct, frozen=True):
    """Stop every reader of the lane, or of these request partitions alone."""

    lane: int
    partitions: tuple[tuple[str, int], ...] | None = None


class PausePartition(msgspec.Struct, frozen=True):
    topic: str
    partition: int


class ResumePartition(msgspec.Struct, frozen=True):
    topic: str
    partition: int


class OpenLink(msgspec.Struct, frozen=True):
    """The first order of a link: of the topic, the process ``incarnation`` has only
    syncs up to ``k`` still to expect. Not a numbered write, as no order of a link is:
    ``LinkLost`` tells of all of them."""

    link: int
    lane: int
    slot: int
    epoch: int
    incarnation: int
    k: int


class WriteSync(msgspec.Struct, frozen=True):
    """``incarnation``: of the process that is known in the slot, None: of none.
    ``link`` None: through the topic. Only a failure need be answered."""

    write: int
    lane: int
    slot: int
    epoch: int
    k: int
    incarnation: int | None = None
    link: int | None = None


class WriteBatch(msgspec.Struct, frozen=True):
    """``link`` None: through the topic. Only a failure need be answered."""

    write: int
    lane: int
    epoch: int
    incarnation: int
    lease_us: int
    dispatch: Dispatch
    link: int | None = None


class WriteReplies(msgspec.Struct, frozen=True):
    """Refusals and errors; the shell groups them by address. The write is acked when
    every record of it is."""

    write: int
    epoch: int
    terminals: tuple[Terminal, ...]


class WriteDeadLetters(msgspec.Struct, frozen=True):
    write: int
    letters: tuple[DeadLetter, ...]


class WriteStale(msgspec.Struct, frozen=True):
    write: int
    lane: int
    topic: str
    partition: int
    ranges: tuple[tuple[int, int], ...]


class Cancelled(msgspec.Struct, frozen=True):
    """A request has ended by its client's cancel, and nothing is written: the cancel's
    record is the evidence."""

    request: Request


class DropLane(msgspec.Struct, frozen=True):
    """The lane is OUT: forget every reader and pending write of it."""

    lane: int


class Rejoin(msgspec.Struct, frozen=True):
    """``UNKNOWN_MEMBER_ID``: drop all lanes, rejoin through poll."""


class Alarm(msgspec.Struct, frozen=True):
    """Something an operator must see; ``event`` is a name of the log's list."""

    event: str
    facts: dict[str, str | int]


Decision = (
    WriteClaim
    | FetchPositions
    | Commit
    | ReadRequests
    | ReadOne
    | ReadCompletions
    | ReadKeys
    | ReadToEnds
    | StopReading
    | PausePartition
    | ResumePartition
    | OpenLink
    | WriteSync
    | WriteBatch
    | WriteReplies
    | WriteDeadLetters
    | WriteStale
    | Cancelled
    | DropLane
    | Rejoin
    | Alarm
)
