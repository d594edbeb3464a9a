"""The findings by their definitions: everything in lists, nothing forgotten."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from headrace.audit import AuditLimits, Kind
from headrace.audit.events import (
    Answered,
    Asked,
    Cancelled,
    Committed,
    DeadLettered,
    Ended,
    Event,
    Ran,
    Resulted,
)
from headrace.domain import ReplyAddress, Source


class Sort(Enum):
    REPLY = "reply"
    LETTER = "letter"
    OTHER = "other"


class Proof(NamedTuple):
    """Evidence: its place in the order of the log, and what it says, None: an error."""

    now: int
    at_us: int
    sort: Sort
    digest: bytes | None = None


@dataclass
class Request:
    asked: Asked
    sources: list[tuple[int, Source]] = field(default_factory=list)
    proofs: list[Proof] = field(default_factory=list)


def ordered(events: Sequence[Event], limits: AuditLimits) -> list[Event]:
    """By time, evidence later than it says and commits later still; the order within
    a partition stands."""
    latest: dict[tuple[str, int], int] = defaultdict(int)
    keyed = []
    for event in sorted(events, key=lambda each: each.place):
        rank = 1
        if isinstance(event, Asked):
            rank = 0
        if isinstance(event, Committed):
            rank = 2
        partition = event.place[:2]
        at_us = max(latest[partition], event.at_us + rank * limits.skew_us)
        latest[partition] = at_us
        keyed.append(((at_us, rank, event.place), event))
    return [event for _, event in sorted(keyed, key=lambda pair: pair[0])]


def findings(
    events: Sequence[Event], limits: AuditLimits, read_to_us: int
) -> dict[Kind, set[Source]]:
    requests: list[Request] = []
    commits: list[tuple[int, Committed]] = []
    for now, event in enumerate(ordered(events, limits)):
        if isinstance(event, Asked):
            _ask(requests, event, now)
        elif isinstance(event, Committed):
            commits.append((now, event))
        elif isinstance(event, Answered):
            address = ReplyAddress(event.place.topic, event.place.partition)
            for answer in event.answers:
                request = _addressee(requests, answer.tenant, answer.id, address)
                if request is not None:
                    proof = Proof(now, event.at_us, Sort.REPLY, answer.digest)
                    request.proofs.append(proof)
        else:
            for request in [each for each in requests if _concerns(event, each)]:
                request.proofs.append(_proof(event, now))
    found: dict[Kind, set[Source]] = defaultdict(set)
    for request in requests:
        for kind in _wrong(request, commits, limits, read_to_us):
            found[kind].add(request.asked.place)
    return {kind: found[kind] for kind in Kind}


def _proof(event: Event, now: int) -> Proof:
    if isinstance(event, Resulted):
        return Proof(now, event.at_us, Sort.REPLY, event.digest)
    if isinstance(event, DeadLettered):
        return Proof(now, event.at_us, Sort.LETTER)
    return Proof(now, event.at_us, Sort.OTHER)


def _concerns(event: Event, request: Request) -> bool:
    sources = [source for _, source in request.sources]
    match event:
        case Resulted(source=source) | DeadLettered(source=source):
            return source in sources
        case Ran():
            silent = request.asked.address is None
            return silent and any(source in sources for source in event.sources)
        case Ended():
            return any(
                (topic, partition) == (event.topic, event.partition)
                and any(first <= offset <= last for first, last in event.ranges)
                for topic, partition, offset in sources
            )
        case Cancelled():
            asked = request.asked
            named = (asked.tenant, asked.id, asked.address)
            return asked.made_by_us and named == (
                event.tenant,
                event.id,
                event.address,
            )
        case _:
            return False


def _ask(requests: list[Request], asked: Asked, now: int) -> None:
    if asked.made_by_us and not asked.redriven:
        for request in reversed(requests):
            other = request.asked
            if other.made_by_us and (other.tenant, other.id, other.address) == (
                asked.tenant,
                asked.id,
                asked.address,
            ):
                request.sources.append((now, asked.place))
                return
    requests.append(Request(asked, [(now, asked.place)]))


def _addressee(
    requests: list[Request], tenant: str, request_id: str, address: ReplyAddress
) -> Request | None:
    named = [
        request
        for request in requests
        if (request.asked.tenant, request.asked.id) == (tenant, request_id)
        and request.asked.address == address
    ]
    if not named:
        return None
    if not named[-1].asked.made_by_us:
        for request in named:
            if not request.proofs:
                return request
    return named[-1]


def _wrong(
    request: Request,
    commits: list[tuple[int, Committed]],
    limits: AuditLimits,
    read_to_us: int,
) -> set[Kind]:
    wrong = set()
    deadline_us = request.asked.deadline_us
    due_us = None if deadline_us is None else deadline_us + limits.grace_us
    if not request.proofs and due_us is not None and due_us <= read_to_us:
        wrong.add(Kind.UNANSWERED)
    replies = [proof for proof in request.proofs if proof.sort is Sort.REPLY]
    if replies and due_us is not None and replies[0].at_us > due_us:
        wrong.add(Kind.LATE)
    successes = {proof.digest for proof in replies if proof.digest is not None}
    ends = [proof for proof in request.proofs if proof.sort is not Sort.OTHER]
    if successes and any(proof.digest is None for proof in ends):
        wrong.add(Kind.LATE)
    if len(successes) > 1:
        wrong.add(Kind.DIFFERING)
    for when, committed in commits:
        is_covered = any(
            read < when
            and (topic, partition) == (committed.topic, committed.partition)
            and offset < committed.offset
            for read, (topic, partition, offset) in request.sources
        )
        if is_covered and not any(proof.now < when for proof in request.proofs):
            wrong.add(Kind.COMMITTED_PAST)
    return wrong
