"""A head that a client sends again, byte for byte, is not parsed again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.domain import Priority, ServedVersion
from services.ingress.head import Head, Target
from services.ingress.refusal import Refusal

__all__ = ["KNOWN_HEADS_MAX", "KnownHead", "KnownHeads", "TurnedAway", "known_head"]

KNOWN_HEAD_BYTES_MAX = 2048
"""Longer heads are parsed each time."""

KNOWN_HEADS_MAX = 8
"""So often a connection's last head is remembered; a client whose heads all differ
then goes the long way without paying for it."""

SHARED_HEADS_MAX = 256
"""So many heads are shared among connections, then all are forgotten."""

_HEAD_END = b"\r\n\r\n"


@dataclass(slots=True)
class KnownHead:
    """A head, and what it says: most requests of a connection differ in the values of
    their tensors alone."""

    text: bytes
    size: int
    """Of the whole request."""

    target: Target
    head: Head
    turned_away: TurnedAway | None = field(default=None, compare=False)
    """What one with this head was told a moment ago."""

    def begins(self, data: bytes) -> bool:
        """Whether ``data`` is a whole request with this head."""
        return len(data) == self.size and data.startswith(self.text)


class TurnedAway(NamedTuple):
    """A refusal for what the head asks and how much is ahead, whatever the body is. It
    holds for as long as the door would say the same."""

    refusal: Refusal
    served: ServedVersion | None
    priority: Priority
    until_us: int
    verdict: int
    """The door's count of what may change its verdicts, then."""

    before_id: bytes
    after_id: bytes
    """The answer around the request's id."""


class KnownHeads:
    """One object for equal heads: clients that ask the same are told the same."""

    def __init__(self) -> None:
        self._by_text: dict[bytes, KnownHead] = {}

    def one(self, known: KnownHead) -> KnownHead:
        if len(self._by_text) >= SHARED_HEADS_MAX:
            self._by_text.clear()
        return self._by_text.setdefault(known.text, known)


def known_head(data: bytes, target: Target, head: Head) -> KnownHead | None:
    """``data`` was read to its end and gave ``head`` last; None where it was anything
    but one request whose body's length stands in its head."""
    if head.content_length is None:
        return None
    end = len(data) - head.content_length
    # The first empty line ends the first head: two requests in one piece do not pass.
    if end > KNOWN_HEAD_BYTES_MAX or data.find(_HEAD_END) != end - len(_HEAD_END):
        return None
    return KnownHead(data[:end], len(data), target, head)
