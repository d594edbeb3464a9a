"""What a job publishes next, and when each of its rows has its end. Decisions alone.

A row ends once: with the outputs of a result, or with an error of its own. A dead
letter for several rows ends none of them; they are sent again one by one, so that a
row that fails takes no other with it (``delivery.md``, D9).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from typing import Generic, NamedTuple, TypeVar

from headrace.domain import Reason, is_final
from headrace.jobs.answers import Answers, Part
from headrace.jobs.outputs import RowError
from headrace.wire.jobs import RowRange

__all__ = ["LOST", "Desk", "Single", "is_end"]

T = TypeVar("T")

LOST = "lost"
"""The reason of a row that has no outcome although the log has settled everything."""

ROUNDS_MAX = 3
AHEAD_MAX = 100_000
"""Answers that wait for an earlier row; beyond, nothing new is published until the
earlier row has its end."""

_OF_ALL_ROWS = frozenset(
    {
        Reason.CANCELLED,
        Reason.EXPIRED,
        Reason.MODEL_UNAVAILABLE,
        Reason.MODEL_UNKNOWN,
        Reason.REPLY_ADDRESS,
    }
)
"""Ends that do not come from what is in the rows: one by one they would end alike."""

_LATE = frozenset({Reason.EXPIRED, Reason.DEADLINE_UNATTAINABLE})
_ENDS = frozenset({Reason.ATTEMPTS_EXHAUSTED, Reason.CANCELLED})
SOON_US = 60_000_000
"""So long before a job's deadline its rows may be told that it cannot be met."""


def is_end(reason: Reason, left_us: int | None) -> bool:
    """Whether an error in a result's place, which other priorities than bulk have, is
    the end of its rows. After any other, such as one that was shed, they are sent again
    in the end. ``left_us``: until the job's deadline; None: it has none, but each such
    record has one of its own."""
    if reason in _LATE:
        return left_us is not None and left_us <= SOON_US
    return reason in _ENDS or is_final(reason)


class Single(NamedTuple):
    """A row of a record that failed as a whole: the one at ``place`` of ``rows``."""

    place: int
    rows: RowRange
    request: bytes

    @property
    def row(self) -> int:
        return self.rows.first + self.place


class Desk(Generic[T]):
    """One run of a job's publisher, which begins at the row ``start``. ``known``:
    records from there on that lie in the log already. ``T``: what a result holds.

    Every row before ``cursor`` was published once at least, or broke the signature.
    """

    def __init__(
        self,
        start: int = 0,
        known: Collection[RowRange] = (),
        *,
        ahead_max: int = AHEAD_MAX,
    ) -> None:
        self.cursor = start
        self.failed = 0
        self.expired = 0
        """Those of the failed that a deadline ended."""

        self._known = set(known)
        self._answers: Answers[T | RowError] = Answers()
        self._errors: dict[int, RowRange] = {}
        """Of what has ended without a result and is not taken, by the first row."""
        self._singly: deque[Single] = deque()
        self._ahead_max = ahead_max
        self._rounds = 0
        self._asked_at = -1

    @property
    def frontier(self) -> int:
        """Every row before it has ended and was taken."""
        return self._answers.frontier

    @property
    def is_held_up(self) -> bool:
        """Whether too many answers wait for an earlier row."""
        return len(self._answers) >= self._ahead_max

    def planned(self, rows: RowRange) -> bool:
        """Whether these rows, which follow on the cursor, are to be published now."""
        self.cursor = max(self.cursor, rows.end)
        if rows in self._known:
            self._known.discard(rows)
            return False
        return not self._answers.has(rows.first)

    def broken(self, row: int, text: str) -> None:
        """A row that breaks the signature: it follows on the cursor."""
        self.cursor = max(self.cursor, row + 1)
        self._end(RowRange(row, 1), RowError(Reason.INVALID, text))

    def answered(self, rows: RowRange, answer: T) -> bool:
        """A result, which counts more than an error of its rows that came before and
        is not taken (D9 of the delivery protocol). False: all its rows had ended
        before."""
        for row in range(rows.first, rows.end) if self._errors else ():
            error = self._errors.get(row)
            if error is not None and error.end <= rows.end:
                del self._errors[row]
                self._answers.withdraw(row)
        return self._answers.add(*rows, answer)

    def buried(
        self, rows: RowRange, reason: Reason, text: str, request: bytes | None
    ) -> None:
        """A dead letter, or an error in a result's place. ``request``: the value of
        the record that failed; without it several rows are as good as lost."""
        if reason in _LATE:
            reason = Reason.EXPIRED  # as the rows after it
        if rows.rows == 1 or reason in _OF_ALL_ROWS:
            self._end(rows, RowError(reason, text))
        elif rows.end > self.frontier and request is not None:
            self._singly.append(Single(0, rows, request))

    def next_single(self) -> Single | None:
        """A row to be published by itself."""
        while self._singly:
            single = self._singly.popleft()
            if single.place + 1 < single.rows.rows:
                self._singly.appendleft(single._replace(place=single.place + 1))
            if not self._answers.has(single.row):
                return single
        return None

    @property
    def wants_singles(self) -> bool:
        return bool(self._singly)

    def take(self) -> Iterator[Part[T | RowError]]:
        """The rows that have ended, in order, each once."""
        for part in self._answers.take():
            if isinstance(part.answer, RowError):
                self._errors.pop(part.first, None)
                self.failed += part.rows
                if part.answer.reason == Reason.EXPIRED:
                    self.expired += part.rows
            yield part

    def missing(self) -> list[RowRange]:
        """Once the log has settled all that was published: the rows that are to be
        published again. One that stays without an outcome for :data:`ROUNDS_MAX`
        rounds ends as lost."""
        gaps = [RowRange(at, end - at) for at, end in self._answers.gaps(self.cursor)]
        if self.frontier > self._asked_at:
            self._asked_at, self._rounds = self.frontier, 0
        if gaps and self._rounds >= ROUNDS_MAX:
            text = f"it has no outcome after {ROUNDS_MAX} times"
            self._end(gaps.pop(0), RowError(LOST, text))
            self._rounds = 0
        self._rounds += 1
        return gaps

    def give_up(self, end: int, reason: str, text: str) -> None:
        """Every row before ``end`` that has no outcome ends without one."""
        self.cursor = max(self.cursor, end)
        for first, behind in [*self._answers.gaps(end)]:
            self._end(RowRange(first, behind - first), RowError(reason, text))

    def _end(self, rows: RowRange, error: RowError) -> None:
        if self._answers.add(*rows, error) and rows.first >= self.frontier:
            self._errors[rows.first] = rows
