"""The records of one identity, and which of them an end ends.

Whoever forms batches joins a record to the unsettled one of its identity, and settles
both with one end, which names the record that was there first: the *head*. A request
without an idempotency key has one life, whatever its copies. A key lives on after an
end that invites a retry: what is read then is the head of another try. Where that
boundary lies the log tells best by what ends name. A former reads each partition in
order, so the records ahead of a head in its partition had ended before it was read, and
none of them ends with it.
"""

from __future__ import annotations

from headrace.audit.events import Asked, Claimed
from headrace.domain import Reason, ReplyAddress, Source, is_final

__all__ = ["Life", "invites_retry"]

_RETRIED = frozenset(reason.value for reason in Reason if not is_final(reason))


def invites_retry(reason: str) -> bool:
    """Whether an error ends those who wait for the answer to a key, and not the key."""
    return reason in _RETRIED


class Life:
    """One identity, from its first record until it is forgotten."""

    __slots__ = (
        "answered_at",
        "answers",
        "asked",
        "claim",
        "committed_past",
        "digest",
        "error",
        "heads",
        "is_over",
        "named",
        "open",
        "ran",
        "ran_us",
        "records",
        "replied",
        "settled_us",
    )

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.records = {asked.place: asked}
        self.open = {asked.place: asked}
        """Those without evidence, as they were asked."""

        self.heads = {asked.place}
        """Those that count as requests; the others end with one of them."""

        self.named: set[Source] = set()
        """Those that an end or a run has named: they are heads, whatever else could
        have ended them by its time."""

        self.ran: set[Source] = set()
        """With a key: those that a worker ran. Each has an end of its own."""

        self.replied: set[Source] = set()
        """The heads that have had a reply."""

        self.is_over = False
        """It has had an end that is every later record's, too."""

        self.settled_us: int | None = None
        """When the last of its records ended; None: one is open."""

        self.digest: bytes | None = None
        self.answers: Source | None = None
        """The head that the first success answers."""

        self.answered_at: Source | None = None
        """Where that lies."""

        self.error = ""
        """Of the first error reply or dead letter that is no invitation to retry."""

        self.claim: Claimed | None = None
        """A success of its id that names no record, and came before any other."""

        self.ran_us: int | None = None
        self.committed_past = False

    @property
    def is_keyed(self) -> bool:
        return self.asked.is_keyed

    def is_of(self, tenant: str, address: ReplyAddress | None) -> bool:
        """Whether this is the identity of our records of its id that have these."""
        own = self.asked
        return own.made_by_us and (own.tenant, own.address) == (tenant, address)

    def waits_longest(self) -> tuple[Asked, int | None]:
        """The oldest record without an end, and until when that may come. Of several
        with a key any may be the head, whose deadline counts."""
        if not self.is_keyed:
            return self.asked, self.asked.deadline_us
        oldest = min(self.open.values(), key=lambda asked: (asked.at_us, asked.place))
        until_us = 0
        for asked in self.open.values():
            if asked.deadline_us is None:
                return oldest, None
            until_us = max(until_us, asked.deadline_us)
        return oldest, until_us

    def head_of(self, place: Source) -> Asked:
        """Whose deadline counts for an end that names ``place``."""
        return self.records[place] if self.is_keyed else self.asked

    def ends_with(self, head: Source) -> list[Source]:
        """The open records that an end of ``head`` ends."""
        if not self.is_keyed:
            return [*self.open]
        return [
            each
            for each in self.open
            if each == head
            or (
                (each[:2] != head[:2] or each.offset > head.offset)
                and (self.is_over or each not in self.ran)
            )
        ]
