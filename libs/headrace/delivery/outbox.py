"""Where the parts of a lane put what they want done, in order."""

from __future__ import annotations

from headrace.delivery.decisions import Decision

__all__ = ["Outbox"]


class Outbox:
    """Decisions on their way out, and the numbers that tie answers to them.

    Numbers rise over all ownerships of a lane, so that an answer to an earlier one is
    recognised as nobody's.
    """

    def __init__(self) -> None:
        self._decisions: list[Decision] = []
        self._last = 0

    def number(self) -> int:
        """A number for a write or a commit; none is given twice."""
        self._last += 1
        return self._last

    def put(self, decision: Decision) -> None:
        self._decisions.append(decision)

    def take(self) -> list[Decision]:
        decisions, self._decisions = self._decisions, []
        return decisions
