"""Whether a reader that is silent has anything to read.

A client can hang: its connections live, its calls return, and nothing comes. Who waits
for records cannot tell that from a log to which nobody writes; the log's ends can.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from headrace.broker.interface import LogRange, TopicPartition

__all__ = ["StuckWatch", "Verdict"]

LOOKS: Final = 2
"""At so many looks in a row the same records lie unread; at one they may be new."""

UNANSWERED: Final = 3
"""So many looks in a row got no answer: the log is away, or to this client alone (of
five restarts of a broker one left a client that was refused for ever after). A new
client costs little either way."""


class Verdict(Enum):
    FINE = 1
    RESTART = 2
    """Make the client anew."""
    GIVE_UP = 3
    """A new client has not helped: the process is to be made anew."""


class StuckWatch:
    """Judges one reader. Call ``delivered`` when records come, ``look`` when none did
    for a while; ``ranges`` None: the log did not answer, which gives no reader up."""

    def __init__(self) -> None:
        self._behind: dict[TopicPartition, int] = {}
        self._looks = 0
        self._unanswered = 0
        self._is_restarted = False

    def delivered(self) -> None:
        self._behind = {}
        self._looks = self._unanswered = 0
        self._is_restarted = False

    def look(
        self,
        positions: Mapping[TopicPartition, int],
        ranges: Mapping[TopicPartition, LogRange] | None,
    ) -> Verdict:
        if ranges is None:
            self._behind = {}
            self._looks = 0
            self._unanswered += 1
            if self._unanswered < UNANSWERED:
                return Verdict.FINE
            self._unanswered = 0
            return Verdict.RESTART
        self._unanswered = 0
        # A position outside the log is told by an event, and moved by its owner.
        behind = {
            one: at
            for one, at in positions.items()
            if one in ranges and ranges[one].start <= at < ranges[one].end
        }
        same = behind.items() & self._behind.items()
        self._looks = self._looks + 1 if same else bool(behind)
        self._behind = behind
        if self._looks < LOOKS:
            return Verdict.FINE
        self._behind, self._looks = {}, 0
        if self._is_restarted:
            return Verdict.GIVE_UP
        self._is_restarted = True
        return Verdict.RESTART
