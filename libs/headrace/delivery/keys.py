"""Idempotency keys: which have had their answer, and who waits to hear whether.

Requests with one key have one id, and one lane takes them all. While one of them is
not settled the others join it, as any duplicate does; after that the id is remembered
for a while, and a repetition is settled unrun, since its answer lies where its client
looks. A successor reads the kept answers of that while before it runs any such request.

Only final answers are remembered: an error that invites a retry ends those who wait,
and the next request with the key runs. Who is told so may ask again before the former
knows that the error was appended. So what is read after it was written joins nothing:
it is the next one, and waits until the error is acked. What an operator has put back
runs whatever its key was answered before, and its answer is then the key's.
"""

from __future__ import annotations

from headrace.delivery.attempts import Attempts
from headrace.delivery.decisions import ReadKeys
from headrace.delivery.events import KeysRead
from headrace.delivery.ledger import Entry, EntryState, Keyed, Ledger
from headrace.delivery.limits import LaneLimits
from headrace.delivery.outbox import Outbox
from headrace.wire.kept import is_keyed
from headrace.wire.topics import Topics

__all__ = ["Keys"]


class Keys:
    """The keys of a lane, from its takeover on."""

    def __init__(
        self,
        lane: int,
        topics: Topics,
        *,
        ledger: Ledger,
        attempts: Attempts,
        limits: LaneLimits,
        out: Outbox,
    ) -> None:
        self._lane = lane
        self._topics = topics
        self._ledger = ledger
        self._attempts = attempts
        self._limits = limits
        self._out = out
        self._is_read = False
        self._ended_us: dict[str, int] = {}
        self._waiting: list[Entry] = []

    def scan(self) -> None:
        """The end of the completions to be read is known: what a predecessor has
        settled above its watermark was answered before that."""
        self._out.put(ReadKeys(self._lane))

    def mark(self, entry: Entry) -> None:
        """Note whether the entry just read, with a plain answer, has a key."""
        request = entry.request
        reply_to = request.reply_to
        assert reply_to is not None
        if (
            request.made_by_us
            and is_keyed(request.id)
            and self._topics.is_kept_topic(reply_to.topic)
        ):
            entry.keyed = Keyed.ASKED

    def holds(self, entry: Entry, now_us: int) -> bool:
        """Whether an entry with a key, just read, is not to be run: not yet, or not at
        all."""
        knows = self._is_read or entry.request.is_redriven
        if not knows or self._ledger.is_told(entry.request.key):
            entry.keyed = Keyed.WAITING
            self._waiting.append(entry)
            return True
        return self._repeats(entry, now_us)

    def read(self, event: KeysRead, now_us: int) -> None:
        """What was answered before this ownership."""
        for request_id, ended_us in event.ended:
            self._remember(request_id, ended_us, now_us)
        self._is_read = True
        self._go_on(now_us)

    def on_time(self, now_us: int) -> None:
        """What waited for the end of another try may run."""
        if self._is_read and self._waiting:
            self._go_on(now_us)

    def _go_on(self, now_us: int) -> None:
        waiting, self._waiting = self._waiting, []
        for entry in waiting:
            if entry.keyed is not Keyed.WAITING or entry.state is not EntryState.QUEUED:
                continue
            if self._ledger.is_told(entry.request.key):
                self._waiting.append(entry)
            elif not self._repeats(entry, now_us):
                entry.keyed = Keyed.ASKED
                self._attempts.enqueue(entry, now_us)

    def remember_settled(self, now_us: int) -> None:
        """Take over what the ledger has noted."""
        settled, self._ledger.settled_keys = self._ledger.settled_keys, []
        for request_id in settled:
            self._remember(request_id, now_us, now_us)

    def _repeats(self, entry: Entry, now_us: int) -> bool:
        if entry.request.is_redriven:
            return False
        self.remember_settled(now_us)
        ended_us = self._ended_us.get(entry.request.id)
        if ended_us is None or ended_us <= now_us - self._limits.key_memory_us:
            return False
        entry.keyed = Keyed.FORGOTTEN
        self._ledger.settle(entry, None)
        return True

    def _remember(self, request_id: str, ended_us: int, now_us: int) -> None:
        ended = self._ended_us
        # To the end of the order, which is about that of time.
        ended_us = max(ended_us, ended.pop(request_id, ended_us))
        ended[request_id] = ended_us
        until_us = now_us - self._limits.key_memory_us
        while ended:
            oldest = next(iter(ended))
            if ended[oldest] > until_us and len(ended) <= self._limits.keys_max:
                break
            del ended[oldest]
