"""What clients want no more.

A cancel lies in its request's partition, behind it, so that its record ends the request
wherever that stands. One that names a request not read so far may have come another
way, and is remembered for a while. It is itself settled by being read.

One that names an idempotency key always lies behind its request, whose place its sender
had to know: what is read after it is another try with the key. Where the key was used
for two bodies, the cancel of the one that is to be told so does not end the other.
"""

from __future__ import annotations

from headrace.delivery.attempts import Attempts
from headrace.delivery.events import CancelRead
from headrace.delivery.ledger import Entry, Ledger
from headrace.delivery.limits import LaneLimits

__all__ = ["Cancels"]


class Cancels:
    """Ends the requests that cancels name."""

    def __init__(
        self, *, ledger: Ledger, attempts: Attempts, limits: LaneLimits
    ) -> None:
        self._ledger = ledger
        self._attempts = attempts
        self._limits = limits
        self._until_us: dict[str, int] = {}

    def read(self, event: CancelRead, now_us: int) -> None:
        if not self._ledger.skip(event.source):
            return
        entry = self._ledger.by_key(event.key)
        if entry is None:
            self._remember(event.key, now_us)
        elif entry.request.body_sha256 == event.body_sha256:
            self._attempts.cancel(entry, now_us)

    def overtook(self, entry: Entry, now_us: int) -> bool:
        """Whether the request just read had been cancelled; then it has ended."""
        if not self._until_us or entry.keyed is not None:
            return False
        until_us = self._until_us.get(entry.request.key)
        if until_us is None or until_us <= now_us:
            return False
        self._attempts.cancel(entry, now_us)
        return True

    def _remember(self, key: str, now_us: int) -> None:
        until_us = self._until_us
        until_us.pop(key, None)  # to the end of the order
        until_us[key] = now_us + self._limits.cancel_memory_us
        while until_us:
            oldest = next(iter(until_us))
            if until_us[oldest] > now_us and len(until_us) <= self._limits.cancels_max:
                break
            del until_us[oldest]
