"""Joins what was asked with how it ended.

Records are fed in the order of each partition and of no two partitions together; they
are judged in the order of their append times, once all of an instant are there. The
brokers' clocks may differ, so evidence counts as later than it says, and a commit as
later still: whoever committed had seen the evidence, and whoever answered the request.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection
from heapq import heappop, heappush
from typing import assert_never

import msgspec

from headrace.audit.events import (
    Answered,
    Asked,
    Cancelled,
    Committed,
    DeadLettered,
    Ended,
    Event,
    Evidence,
    Ran,
    Resulted,
)
from headrace.audit.findings import Findings
from headrace.audit.late import LateAnswers
from headrace.audit.limits import AuditLimits
from headrace.audit.report import Counts, Kind, Report, Suspect
from headrace.domain import Reason, ReplyAddress, Source, is_final
from headrace.wire import is_keyed

__all__ = ["Audit"]

Partition = tuple[str, int]


class _Life:
    """One request from its record to its evidence."""

    __slots__ = (
        "answered_at",
        "asked",
        "committed_past",
        "digest",
        "error",
        "is_replied",
        "ran_us",
        "settled_us",
        "sources",
    )

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.sources = [asked.place]
        self.settled_us: int | None = None
        self.digest: bytes | None = None
        self.answered_at: Source | None = None
        """Where the first success lies."""

        self.error = ""
        """Of the first error reply or dead letter."""

        self.is_replied = False
        self.ran_us: int | None = None
        self.committed_past = False

    @property
    def may_be_asked_again(self) -> bool:
        """Whether its error ends those who waited, and not its idempotency key."""
        return is_keyed(self.asked.id) and self.error in _RETRIED

    @property
    def has_let_go(self) -> bool:
        return self.digest is None and self.may_be_asked_again


_RETRIED = frozenset(reason.value for reason in Reason if not is_final(reason))


class Audit:
    """Judges the requests appended from ``from_us`` to before ``to_us`` (None: all)."""

    def __init__(
        self,
        from_us: int,
        to_us: int | None = None,
        limits: AuditLimits = AuditLimits(),  # noqa: B008 - immutable
    ) -> None:
        self._from_us = from_us
        self._to_us = to_us
        self._limits = limits
        self._waiting: list[tuple[int, int, Source, Event]] = []
        self._latest: dict[Partition, int] = {}
        self._open: dict[Partition, dict[int, _Life]] = {}
        self._unsettled = 0
        self._at: dict[Source, _Life] = {}
        self._lives: dict[tuple[str, str], list[_Life]] = {}
        self._settled: deque[_Life] = deque()
        self._watermarks: dict[Partition, Committed] = {}
        self._cuts: list[tuple[str, int, int, bool]] = []
        self._counts = Counts()
        self._refusals = Counter[str]()
        self._dead_letters = Counter[str]()
        self._findings = Findings(limits.findings_max)
        self._is_truncated = False
        self._late = LateAnswers()

    @property
    def unsettled(self) -> int:
        """Requests of the range that were judged so far and have no evidence yet."""
        return self._unsettled

    @property
    def suspects(self) -> list[Suspect]:
        """Successes that differ in their bytes, in the order of the log."""
        return self._findings.suspects()

    def take(self, event: Event) -> None:
        """Take note of a record; it counts once ``read_to`` has passed it."""
        match event:
            case Asked():
                rank = 0
            case Committed():
                rank = 2
            case _:
                rank = 1
        place = event.place
        partition = (place.topic, place.partition)
        # A new leader's clock may lie behind; the order of a partition stands.
        instant_us = max(
            event.at_us + rank * self._limits.skew_us, self._latest.get(partition, 0)
        )
        self._latest[partition] = instant_us
        heappush(self._waiting, (instant_us, rank, place, event))

    def heard(self, at_us: int, ingress: int | None, instance: str = "") -> None:
        """As :meth:`headrace.audit.late.Lives.heard`."""
        self._late.lives.heard(at_us, ingress, instance)

    def cut(self, partition: Partition, begins_us: int, *, is_address: bool) -> None:
        """Retention has removed what this partition of evidence held before
        ``begins_us``. ``is_address``: only answers addressed to it lay there."""
        self._cuts.append((*partition, begins_us, is_address))

    def warn(self, text: str) -> None:
        """Say ``text`` in the report; it is no finding."""
        self._findings.warn(text)

    def read_to(self, at_us: int) -> None:
        """Every record appended before ``at_us`` was fed."""
        waiting = self._waiting
        while waiting and waiting[0][0] < at_us:
            instant_us, _, _, event = heappop(waiting)
            self._forget(instant_us)
            self._judge(event)

    def read_all(self) -> None:
        """Everything was fed."""
        self.read_to(max(self._latest.values(), default=0) + 1)

    def finish(self, read_to_us: int, excused: Collection[Suspect] = ()) -> Report:
        """The end; ``read_to_us`` is the log time up to which it is all
        there was. ``excused``: of the suspects, those that are the same after all."""
        self.read_all()
        for lives in self._lives.values():
            for life in lives:
                if life.settled_us is None:
                    self._close(life, read_to_us)
        self._counts.overtaken = self._late.judge(self._findings)
        counts = msgspec.structs.replace(
            self._counts,
            rounded=len(excused),
            refusals=dict(sorted(self._refusals.items())),
            dead_letters=dict(sorted(self._dead_letters.items())),
        )
        totals, findings, warnings = self._findings.closed(excused)
        return Report(
            from_us=self._from_us,
            to_us=read_to_us if self._to_us is None else self._to_us,
            read_to_us=read_to_us,
            counts=counts,
            totals=totals,
            findings=findings,
            warnings=warnings,
            is_truncated=self._is_truncated,
        )

    def _judge(self, event: Event) -> None:
        match event:
            case Asked():
                self._ask(event)
            case Committed():
                self._commit(event)
            case _:
                self._hear(event)

    def _hear(self, evidence: Evidence) -> None:
        match evidence:
            case Answered():
                self._answer(evidence)
            case Resulted(source=source, digest=digest, reason=reason):
                self._reply(self._at.get(source), evidence, digest, reason)
            case DeadLettered():
                self._bury(evidence)
            case Ended():
                self._counts.stale_ranges += len(evidence.ranges)
                for life in self._within(evidence):
                    self._counts.stale += self._settle(life, evidence.at_us)
            case Ran():
                self._run(evidence)
            case Cancelled():
                for life in self._lives.get((evidence.tenant, evidence.id), ()):
                    asked = life.asked
                    if asked.made_by_us and asked.address == evidence.address:
                        self._counts.cancelled += self._settle(life, evidence.at_us)
            case _:
                assert_never(evidence)

    def _ask(self, asked: Asked) -> None:
        if asked.at_us < self._from_us:
            return
        if self._to_us is not None and asked.at_us >= self._to_us:
            return
        key = (asked.tenant, asked.id)
        if asked.made_by_us and not asked.redriven:
            for life in reversed(self._lives.get(key, ())):
                if (
                    life.asked.made_by_us
                    and life.asked.address == asked.address
                    and not life.has_let_go
                ):
                    self._join(life, asked.place)
                    return
        if self._unsettled >= self._limits.unsettled_max:
            self._end_range(asked)
            return
        life = _Life(asked)
        self._lives.setdefault(key, []).append(life)
        self._at[asked.place] = life
        self._open.setdefault(asked.place[:2], {})[asked.place.offset] = life
        self._unsettled += 1
        self._counts.requests += 1
        self._counts.redriven += asked.redriven

    def _join(self, life: _Life, place: Source) -> None:
        self._counts.repeated += 1
        life.sources.append(place)
        self._at[place] = life
        if life.settled_us is None:
            self._open.setdefault(place[:2], {})[place.offset] = life

    def _end_range(self, asked: Asked) -> None:
        self._to_us = asked.at_us
        self.warn(
            f"{self._limits.unsettled_max} requests were without an end "
            f"(unsettled_max), so the range ends where the next one was asked: "
            f"{'/'.join(map(str, asked.place))}"
        )
        self._is_truncated = True

    def _answer(self, answered: Answered) -> None:
        address = ReplyAddress(answered.place.topic, answered.place.partition)
        for answer in answered.answers:
            life = self._addressed(answer.tenant, answer.id, address)
            self._reply(life, answered, answer.digest, answer.reason)

    def _addressed(
        self, tenant: str, request_id: str, address: ReplyAddress
    ) -> _Life | None:
        """Whom a reply by id means. Hand-made requests may share an id: the oldest
        that waits."""
        lives = [
            life
            for life in self._lives.get((tenant, request_id), ())
            if life.asked.address == address
        ]
        if not lives:
            return None
        waiting = [life for life in lives if life.settled_us is None]
        if waiting and not lives[-1].asked.made_by_us:
            return waiting[0]
        return lives[-1]

    def _reply(
        self,
        life: _Life | None,
        event: Answered | Resulted,
        digest: bytes | None,
        reason: str,
    ) -> None:
        if life is None:
            self._counts.unknown += 1
            return
        if life.is_replied:
            self._counts.duplicates += 1
        else:
            life.is_replied = True
            self._first_reply(life, event.at_us, digest, reason)
        if digest is None:
            if life.digest is not None and not life.error:
                self._findings.add(
                    Kind.LATE, life.asked, f"an error ({reason}) beside a success"
                )
            life.error = life.error or reason
        elif life.digest is None:
            if life.error and not life.may_be_asked_again:
                text = f"a success beside an error ({life.error})"
                self._findings.add(Kind.LATE, life.asked, text)
            life.digest = digest
            life.answered_at = event.place
        elif digest != life.digest and life.answered_at is not None:
            self._findings.suspect(life.asked, life.answered_at, event.place)
        self._settle(life, event.at_us)

    def _first_reply(
        self, life: _Life, at_us: int, digest: bytes | None, reason: str
    ) -> None:
        if digest is None:
            self._refusals[reason] += 1
        else:
            self._counts.successes += 1
        deadline_us = life.asked.deadline_us
        if deadline_us is not None and at_us > deadline_us + self._limits.grace_us:
            self._late.add(life.asked, deadline_us, at_us)

    def _bury(self, event: DeadLettered) -> None:
        life = self._at.get(event.source)
        if life is None:
            self._counts.unknown += 1
            return
        self._dead_letters[event.reason] += 1
        if life.digest is not None and not life.error:
            text = f"a dead letter ({event.reason}) beside a success"
            self._findings.add(Kind.LATE, life.asked, text)
        life.error = life.error or event.reason
        self._settle(life, event.at_us)

    def _within(self, ended: Ended) -> list[_Life]:
        """The unsettled requests in its ranges."""
        lives = self._open.get((ended.topic, ended.partition), {})
        found: list[_Life] = []
        for first, last in ended.ranges:
            if last - first < len(lives):
                among = range(first, last + 1)
                found += [lives[each] for each in among if each in lives]
            else:
                found += [each for o, each in lives.items() if first <= o <= last]
        return found

    def _run(self, ran: Ran) -> None:
        for source in ran.sources:
            life = self._at.get(source)
            if life is None or life.settled_us is not None:
                continue
            if life.asked.address is None or life.asked.is_address_gone:
                self._counts.silent += life.asked.address is None
                self._counts.answers_gone += life.asked.is_address_gone
                self._settle(life, ran.at_us)
            else:
                life.ran_us = ran.at_us

    def _commit(self, committed: Committed) -> None:
        partition = (committed.topic, committed.partition)
        before = self._watermarks.get(partition)
        self._counts.commits += 1
        if before is not None and committed.offset < before.offset:
            self._counts.commits_back += 1
            self.warn(
                f"{committed.topic} [{committed.partition}]: the committed offset went "
                f"back from {before.offset} ({before.metadata}) to {committed.offset} "
                f"({committed.metadata})"
            )
        self._watermarks[partition] = committed
        for offset, life in self._open.get(partition, {}).items():
            if offset >= committed.offset:
                break
            if not life.committed_past and not self._is_lost(life.asked):
                life.committed_past = True
                text = (
                    f"offset {committed.offset} was committed ({committed.metadata}) "
                    f"{(committed.at_us - life.asked.at_us) / 1000:.0f} ms after it"
                )
                self._findings.add(Kind.COMMITTED_PAST, life.asked, text)

    def _settle(self, life: _Life, at_us: int) -> bool:
        """Whether it was unsettled."""
        if life.settled_us is not None:
            return False
        life.settled_us = at_us
        self._unsettled -= 1
        for topic, partition, offset in life.sources:
            del self._open[topic, partition][offset]
        self._settled.append(life)
        return True

    def _forget(self, now_us: int) -> None:
        """Settled ids that are too old or too many."""
        settled = self._settled
        until_us = now_us - self._limits.remember_us
        while settled:
            if (settled[0].settled_us or 0) >= until_us:
                if len(settled) <= self._limits.remembered_max:
                    break
                self._counts.forgotten += 1
            life = settled.popleft()
            for source in life.sources:
                del self._at[source]
            key = (life.asked.tenant, life.asked.id)
            lives = self._lives[key]
            lives.remove(life)
            if not lives:
                del self._lives[key]

    def _close(self, life: _Life, read_to_us: int) -> None:
        """The log holds no evidence of its end."""
        asked = life.asked
        deadline_us = asked.deadline_us
        if asked.is_address_gone:
            self._counts.answers_gone += 1
        elif self._is_lost(asked):
            self._counts.unjudged += 1
        elif deadline_us is None or deadline_us + self._limits.grace_us > read_to_us:
            self._counts.pending += 1
        else:
            text = f"nothing came in {(read_to_us - asked.at_us) / 1000:.0f} ms"
            if life.ran_us is not None:
                ran_ms = (life.ran_us - asked.at_us) / 1000
                text += f", although a worker says that it answered in {ran_ms:.0f} ms"
            self._findings.add(Kind.UNANSWERED, life.asked, text)

    def _is_lost(self, asked: Asked) -> bool:
        """Whether its evidence may have been removed: old, or with its topic."""
        address = asked.address
        if asked.is_address_gone:
            return True
        for topic, partition, begins_us, is_address in self._cuts:
            if begins_us > asked.at_us and (
                not is_address
                or address == ReplyAddress(topic, partition)
                or address == ReplyAddress(topic, None)
            ):
                return True
        return False
