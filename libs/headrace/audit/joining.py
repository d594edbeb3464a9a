"""Joins what was asked with how it ended.

Records are fed in the order of each partition and of no two partitions together; they
are judged in the order of their append times, once all of an instant are there. The
brokers' clocks may differ, so evidence counts as later than it says, and a commit as
later still: whoever committed had seen the evidence, and whoever answered the request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from heapq import heappop, heappush
from typing import assert_never

import msgspec

from headrace.audit.events import (
    Answered,
    Asked,
    Cancelled,
    Claimed,
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
from headrace.audit.lives import Life, invites_retry
from headrace.audit.register import Register
from headrace.audit.report import Counts, Kind, Report, Suspect
from headrace.domain import ReplyAddress, Source

__all__ = ["Audit"]

Partition = tuple[str, int]


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
        self._register = Register(limits)
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
        """Identities of the range that were judged so far, and have no evidence yet of
        one of their records."""
        return self._register.unsettled

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
            self._register.forget(instant_us)
            self._judge(event)

    def read_all(self) -> None:
        """Everything was fed."""
        self.read_to(max(self._latest.values(), default=0) + 1)

    def finish(self, read_to_us: int, excused: Collection[Suspect] = ()) -> Report:
        """The end; ``read_to_us`` is the log time up to which it is all
        there was. ``excused``: of the suspects, those that are the same after all."""
        self.read_all()
        for life in self._register.unsettled_lives():
            self._close(life, read_to_us)
        self._counts.overtaken = self._late.judge(self._findings)
        counts = msgspec.structs.replace(
            self._counts,
            rounded=len(excused),
            forgotten=self._register.forgotten,
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
                self._reply(self._register.at(source), evidence, digest, reason)
            case Claimed():
                self._counts.unknown += 1
                self._compare(evidence)
            case DeadLettered():
                self._bury(evidence)
            case Ended():
                self._end_stale(evidence)
            case Ran():
                self._run(evidence)
            case Cancelled():
                self._cancel(evidence)
            case _:
                assert_never(evidence)

    def _ask(self, asked: Asked) -> None:
        if asked.at_us < self._from_us:
            return
        if self._to_us is not None and asked.at_us >= self._to_us:
            return
        if asked.made_by_us and not asked.redriven:
            for life in reversed(self._register.of_id(asked.id)):
                if life.is_of(asked.tenant, asked.address):
                    self._join(life, asked)
                    return
        if self._register.unsettled >= self._limits.unsettled_max:
            self._end_range(asked)
            return
        self._register.enter(asked)
        self._counts.requests += 1
        self._counts.redriven += asked.redriven

    def _join(self, life: Life, asked: Asked) -> None:
        if life.is_over or life.open:
            self._counts.repeated += 1
        elif self._register.unsettled >= self._limits.unsettled_max:
            self._end_range(asked)
            return
        else:
            life.heads.add(asked.place)
            self._counts.requests += 1
        self._register.add(life, asked)

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
    ) -> Life | None:
        """Whom a reply by id means. Hand-made requests may share an id: the oldest
        that waits."""
        lives = [
            life
            for life in self._register.of_id(request_id)
            if (life.asked.tenant, life.asked.address) == (tenant, address)
        ]
        if not lives:
            return None
        waiting = [life for life in lives if life.open]
        if waiting and not lives[-1].asked.made_by_us:
            return waiting[0]
        return lives[-1]

    def _reply(
        self,
        life: Life | None,
        event: Answered | Resulted,
        digest: bytes | None,
        reason: str,
    ) -> None:
        if life is None:
            self._counts.unknown += 1
            return
        asked = life.asked
        if life.is_keyed and isinstance(event, Resulted):
            asked = life.records[event.source]
        head = asked.place
        if head in life.replied:
            self._counts.duplicates += 1
        else:
            life.replied.add(head)
            self._first_reply(asked, event.at_us, digest, reason)
        if digest is None:
            self._err(life, head, reason, "an error")
        elif life.digest is None:
            if life.error:
                text = f"a success beside an error ({life.error})"
                self._findings.add(Kind.LATE, asked, text)
            life.digest = digest
            life.answers, life.answered_at = head, event.place
            if life.claim is not None:
                self._compare(life.claim)
        elif digest != life.digest and life.answered_at is not None:
            self._findings.suspect(life.asked, life.answered_at, event.place)
        life.is_over |= digest is not None or not invites_retry(reason)
        self._end(life, head, event.at_us)

    def _compare(self, claim: Claimed) -> None:
        """It is held against what its id was answered, before or after it."""
        lives = [
            life
            for life in self._register.of_id(claim.id)
            if life.asked.address == ReplyAddress(claim.place.topic, None)
        ]
        answered = [life for life in lives if life.digest is not None]
        if any(life.digest == claim.digest for life in answered):
            return
        if answered:
            life = answered[-1]
            assert life.answered_at is not None
            self._findings.suspect(life.asked, life.answered_at, claim.place)
        elif lives:
            lives[-1].claim = claim

    def _err(self, life: Life, head: Source, reason: str, what: str) -> None:
        """Beside a success there is none, unless it invited others to retry."""
        invites = life.is_keyed and invites_retry(reason)
        if life.digest is not None and not life.error:
            if not invites or head == life.answers:
                text = f"{what} ({reason}) beside a success"
                self._findings.add(Kind.LATE, life.head_of(head), text)
                life.error = reason
        elif not invites:
            life.error = life.error or reason

    def _first_reply(
        self, asked: Asked, at_us: int, digest: bytes | None, reason: str
    ) -> None:
        if digest is None:
            self._refusals[reason] += 1
        else:
            self._counts.successes += 1
        deadline_us = asked.deadline_us
        if deadline_us is not None and at_us > deadline_us + self._limits.grace_us:
            self._late.add(asked, deadline_us, at_us)

    def _bury(self, event: DeadLettered) -> None:
        life, head, reason = self._register.at(event.source), event.source, event.reason
        if life is None:
            self._counts.unknown += 1
            return
        self._dead_letters[reason] += 1
        self._err(life, head, reason, "a dead letter")
        life.is_over |= not invites_retry(reason)
        self._end(life, head, event.at_us)

    def _end_stale(self, event: Ended) -> None:
        self._counts.stale_ranges += len(event.ranges)
        for life, head in self._register.within(event):
            if head in life.open:
                self._counts.stale += 1
                self._end(life, head, event.at_us)

    def _cancel(self, event: Cancelled) -> None:
        for life in self._register.of_id(event.id):
            ended = [each for each in life.open if each not in life.ran]
            if ended and life.is_of(event.tenant, event.address):
                self._counts.cancelled += 1
                self._register.settle(life, ended, event.at_us)

    def _run(self, ran: Ran) -> None:
        for source in ran.sources:
            life = self._register.at(source)
            if life is None:
                continue
            if life.is_keyed and not life.is_over:
                is_unnamed = source not in life.named
                life.ran.add(source)
                life.named.add(source)
                if is_unnamed and source not in life.open:
                    self._register.reopen(life, source)
            if source not in life.open:
                continue
            if life.asked.address is None or life.asked.is_address_gone:
                self._counts.silent += life.asked.address is None
                self._counts.answers_gone += life.asked.is_address_gone
                self._end(life, source, ran.at_us)
            else:
                life.ran_us = ran.at_us

    def _name(self, life: Life, head: Source) -> None:
        """An end says that the record is a head: what ended with another until now
        counts as a request of its own."""
        life.named.add(head)
        if head not in life.heads:
            life.heads.add(head)
            self._counts.requests += 1
            self._counts.repeated -= 1

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
        for life, place in self._register.below(partition, committed.offset):
            asked = life.head_of(place)
            if not life.committed_past and not self._is_lost(asked):
                life.committed_past = True
                text = (
                    f"offset {committed.offset} was committed ({committed.metadata}) "
                    f"{(committed.at_us - asked.at_us) / 1000:.0f} ms after it"
                )
                self._findings.add(Kind.COMMITTED_PAST, asked, text)

    def _end(self, life: Life, head: Source, at_us: int) -> None:
        """What ends with ``head`` does; who seemed to be a head there was none."""
        ended = life.ends_with(head)
        if life.is_keyed:
            self._name(life, head)
            joined = life.heads.intersection(ended) - life.named
            life.heads -= joined
            self._counts.requests -= len(joined)
            self._counts.repeated += len(joined)
        self._register.settle(life, ended, at_us)

    def _close(self, life: Life, read_to_us: int) -> None:
        """The log holds no evidence of its end."""
        asked, deadline_us = life.waits_longest()
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
            self._findings.add(Kind.UNANSWERED, asked, text)

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
