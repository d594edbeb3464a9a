"""How requests end without a result, and how that becomes a fact.

A *verdict* (attempts exhausted, poison, a bulk item's end) is written only after a
commit that was sent later than the decision has been accepted: a former that lost its
lane decides in ignorance of results that its successor knows, and only the commit tells
it. A *refusal* (expired, shed, draining) concerns a request that nobody ran for its
client in time; it is written at once. Both are settled by their acks alone, and are
written again when those do not come.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.delivery.decisions import (
    Cancelled,
    WriteDeadLetters,
    WriteReplies,
    WriteStale,
)
from headrace.delivery.ledger import Entry, EntryState, Keyed, Ledger
from headrace.delivery.limits import LaneLimits
from headrace.delivery.outbox import Outbox
from headrace.domain import DeadLetter, Priority, Reason, Refuse, Terminal, is_final
from headrace.wire.topics import Topics

__all__ = ["Verdicts"]


_PLATFORMS = frozenset({Reason.ATTEMPTS_EXHAUSTED, Reason.STORE_UNAVAILABLE})
"""Verdicts for which a request has done nothing."""


class _Ending(NamedTuple):
    """A record for each of the two that is not None; a stale range without either."""

    entry: Entry
    terminal: Terminal | None
    letter: DeadLetter | None


_TOO_LATE = frozenset({Reason.EXPIRED, Reason.DEADLINE_UNATTAINABLE})


class Verdicts:
    """The ends without a result that a lane has decided and not yet settled."""

    def __init__(
        self,
        *,
        lane: int,
        topics: Topics,
        limits: LaneLimits,
        ledger: Ledger,
        out: Outbox,
    ) -> None:
        self._lane = lane
        self._topics = topics
        self._limits = limits
        self._ledger = ledger
        self._out = out
        self._waiting: list[_Ending] = []
        self._committing: dict[int, list[_Ending]] = {}
        self._decided: list[_Ending] = []
        self._again: list[_Ending] = []
        self._again_at_us: int | None = None
        self._written: dict[int, list[_Ending]] = {}

    @property
    def wants_commit(self) -> bool:
        return bool(self._waiting)

    @property
    def has_unacked(self) -> bool:
        return bool(self._written)

    @property
    def has_decided(self) -> bool:
        """Whether ``flush`` would write something now."""
        return bool(self._decided)

    @property
    def again_at_us(self) -> int | None:
        """When what was not acked is written again."""
        return self._again_at_us

    def fail(self, entry: Entry, reason: Reason, text: str) -> None:
        """A verdict: attempts exhausted, or the store away at the last one, or (any
        other reason) an end that the request itself has earned, which leaves a dead
        letter beside the reply."""
        request = entry.request
        bulk = request.priority is Priority.BULK
        terminal = None
        if request.reply_to is not None and not self._is_item(entry):
            terminal = self._terminal(entry, reason, text, None)
        letter = None
        if terminal is None or bulk or reason not in _PLATFORMS:
            letter = DeadLetter(
                source=request.source,
                id=request.id,
                tenant=request.tenant,
                model=request.model,
                reason=reason,
                text=text,
                attempts=request.attempt,
            )
        self._end(entry, self._waiting, terminal, letter)

    def refuse(self, entry: Entry, refuse: Refuse, now_us: int) -> None:
        """A refusal. A bulk request is never just refused: its end is a verdict. Who
        was sent before is told what became of that: its queue was not too long."""
        request, reason, text = entry.request, refuse.reason, refuse.text
        if reason in _TOO_LATE and entry.why:
            is_store = entry.last is Reason.STORE_UNAVAILABLE
            reason = entry.last if is_store else Reason.EXPIRED
            text = f"it was tried, but {entry.why}; for another try: {text}"
        if request.priority is Priority.BULK:
            self.fail(entry, reason, text)
            return
        terminal = None
        if request.reply_to is not None and not self._is_stale(entry, now_us):
            terminal = self._terminal(entry, reason, text, refuse.retry_after_us)
        self._end(entry, self._decided, terminal, None)

    def cancel(self, entry: Entry) -> None:
        """Its client's cancel lies in the log, which is evidence; whoever may ask for
        the answer later is told."""
        if self._is_kept(entry):
            text = "its client cancelled it"
            terminal = self._terminal(entry, Reason.CANCELLED, text, None)
            self._end(entry, self._decided, terminal, None)
        else:
            self._out.put(Cancelled(entry.request))
            self._ledger.settle(entry, None)

    def commit_sent(self, commit: int) -> None:
        """Every verdict decided so far rides on this commit."""
        if self._waiting:
            self._committing[commit] = self._waiting
            self._waiting = []

    def commit_ended(self, commit: int, *, accepted: bool) -> None:
        endings = self._committing.pop(commit, [])
        if accepted:
            self._decided += endings
        else:
            self._waiting += endings

    def flush(self, epoch: int, now_us: int) -> None:
        """Write what may be written. Requests that a late result has settled in the
        meantime drop out here."""
        endings = self._decided
        if self._again_at_us is not None and now_us >= self._again_at_us:
            endings = self._again + endings
            self._again, self._again_at_us = [], None
        self._decided = []
        endings = [e for e in endings if e.entry.state is EntryState.VERDICT]
        replies = [e._replace(letter=None) for e in endings if e.terminal]
        letters = [e._replace(terminal=None) for e in endings if e.letter]
        stale = [e for e in endings if not e.terminal and not e.letter]
        if replies:
            terminals = tuple(e.terminal for e in replies if e.terminal)
            self._out.put(WriteReplies(self._write(replies), epoch, terminals))
            for ending in replies:
                self._ledger.told(ending.entry)
        if letters:
            dead = tuple(e.letter for e in letters if e.letter)
            self._out.put(WriteDeadLetters(self._write(letters), dead))
        if stale:
            self._write_stale(stale)

    def write_ended(self, write: int, offset: int | None, now_us: int) -> bool:
        """An answer to one of our writes; False: it was not ours."""
        endings = self._written.pop(write, None)
        if endings is None:
            return False
        if offset is None:
            self._again += endings
            self._again_at_us = now_us + self._limits.again_us
            return True
        for ending in endings:
            entry = ending.entry
            entry.writes_left -= 1
            if entry.state is EntryState.VERDICT and not entry.writes_left:
                is_stale = not ending.terminal and not ending.letter
                self._ledger.settle(entry, offset if is_stale else None)
        return True

    def _end(
        self,
        entry: Entry,
        queue: list[_Ending],
        terminal: Terminal | None,
        letter: DeadLetter | None,
    ) -> None:
        entry.state = EntryState.VERDICT
        entry.writes_left = max(1, (terminal is not None) + (letter is not None))
        queue.append(_Ending(entry, terminal, letter))

    def _write(self, endings: list[_Ending]) -> int:
        number = self._out.number()
        self._written[number] = endings
        return number

    def _write_stale(self, endings: list[_Ending]) -> None:
        """One record for each partition, which a successor reads with the dones."""
        partitions: dict[tuple[str, int], list[_Ending]] = {}
        for ending in endings:
            # The first offset is enough: another offset of the same request is read
            # again by a successor, and is as stale then as it is now.
            source = ending.entry.request.source
            partitions.setdefault((source.topic, source.partition), []).append(ending)
        for (topic, partition), own in partitions.items():
            offsets = sorted(e.entry.request.source.offset for e in own)
            number = self._write(own)
            ranges = _ranges(offsets)
            self._out.put(WriteStale(number, self._lane, topic, partition, ranges))

    def _terminal(
        self, entry: Entry, reason: Reason, text: str, retry_after_us: int | None
    ) -> Terminal:
        request = entry.request
        assert request.reply_to is not None
        if entry.keyed is not None and not is_final(reason):
            entry.keyed = Keyed.FORGOTTEN
        return Terminal(
            id=request.id,
            tenant=request.tenant,
            model=request.model,
            version=request.version,
            reply_to=request.reply_to,
            attempt=request.attempt,
            reason=reason,
            text=text,
            retry_after_us=retry_after_us,
            client_id=request.client_id,
            source=request.source,
        )

    def _is_async(self, entry: Entry) -> bool:
        """Whether the reply goes to a topic of results, where it is kept for someone
        who asks later, instead of to an ingress that waits."""
        reply_to = entry.request.reply_to
        return reply_to is not None and self._topics.is_results_topic(reply_to.topic)

    def _is_kept(self, entry: Entry) -> bool:
        """Whether an ingress gives its answer to whoever asks for it, errors too."""
        reply_to = entry.request.reply_to
        return reply_to is not None and self._topics.is_kept_topic(reply_to.topic)

    def _is_item(self, entry: Entry) -> bool:
        """A job's item: its outcome is its result if there is one, else its dead
        letter, so an error among the results would be taken for a result (D9)."""
        is_bulk = entry.request.priority is Priority.BULK
        return is_bulk and self._is_async(entry) and not self._is_kept(entry)

    def _is_stale(self, entry: Entry, now_us: int) -> bool:
        deadline_us = entry.request.deadline_us
        if deadline_us is None or self._is_async(entry):
            return False
        return now_us - deadline_us > self._limits.stale_us


def _ranges(offsets: list[int]) -> tuple[tuple[int, int], ...]:
    """Ascending offsets as inclusive ranges."""
    ranges: list[tuple[int, int]] = []
    for offset in offsets:
        if ranges and offset == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], offset)
        else:
            ranges.append((offset, offset))
    return tuple(ranges)
