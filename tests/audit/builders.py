"""Records of a small cluster, in milliseconds; what is not named is ordinary."""

from __future__ import annotations

from headrace.audit import AuditLimits
from headrace.audit.events import (
    Answer,
    Answered,
    Asked,
    Committed,
    DeadLettered,
    Ran,
    Resulted,
)
from headrace.domain import ReplyAddress, Source

LIMITS = AuditLimits(grace_us=250_000, skew_us=50_000)
REQUESTS = "h.requests.m"
ADDRESS = ReplyAddress("h.replies.c", 0)
JOB = ReplyAddress("h.results.t.j", None)
KEPT = ReplyAddress("h.results.t.keyed", None)
KEYED = f"{0:012x}8{1:019x}"
MS = 1_000


def asked(
    offset: int,
    at_ms: int,
    *,
    id_: str | None = None,
    partition: int = 0,
    deadline_ms: int | None = 1000,
    address: ReplyAddress | None = ADDRESS,
    made_by_us: bool = True,
    redriven: bool = False,
    is_address_gone: bool = False,
) -> Asked:
    """``deadline_ms`` after it was asked."""
    return Asked(
        place=Source(REQUESTS, partition, offset),
        at_us=at_ms * MS,
        id=f"r{offset}" if id_ is None else id_,
        tenant="t",
        model="m",
        address=address,
        deadline_us=None if deadline_ms is None else (at_ms + deadline_ms) * MS,
        made_by_us=made_by_us,
        redriven=redriven,
        is_address_gone=is_address_gone,
        is_keyed=address == KEPT,
    )


def answered(
    offset: int,
    at_ms: int,
    *ids: str,
    digest: bytes | None = b"same",
    partition: int = 0,
    tenant: str = "t",
) -> Answered:
    reason = "" if digest else "expired"
    answers = tuple(Answer(each, tenant, digest, reason) for each in ids)
    place = Source(ADDRESS.topic, partition, offset)
    return Answered(place, at_ms * MS, answers)


def resulted(
    offset: int, at_ms: int, source: Source, digest: bytes | None = b"same"
) -> Resulted:
    place = Source(JOB.topic, 0, offset)
    return Resulted(place, at_ms * MS, source, digest, "" if digest else "poison")


def kept(
    offset: int,
    at_ms: int,
    source: Source,
    reason: str = "",
    digest: bytes | None = b"same",
) -> Resulted:
    """An answer to a key, or an error with that reason."""
    place = Source(KEPT.topic, 0, offset)
    return Resulted(place, at_ms * MS, source, None if reason else digest, reason)


def ran(offset: int, at_ms: int, *sources: Source) -> Ran:
    return Ran(Source("h.completions.p", 0, offset), at_ms * MS, sources)


def buried(offset: int, at_ms: int, source: Source) -> DeadLettered:
    return DeadLettered(Source("h.deadletters.m", 0, offset), at_ms * MS, source, "x")


def committed(
    number: int, at_ms: int, offset: int, partition: int = 0, epoch: int = 1
) -> Committed:
    return Committed(
        place=Source("commits", 0, number),
        at_us=at_ms * MS,
        topic=REQUESTS,
        partition=partition,
        offset=offset,
        metadata=f"1;e={epoch};c=0;n=0",
    )
