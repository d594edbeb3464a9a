"""Finding one thing in the log, and everything that concerns it."""

from __future__ import annotations

import re
from typing import Protocol

import msgspec

from headrace.broker import (
    History,
    InOrder,
    KafkaAdmin,
    KafkaConnection,
    records_at,
    records_since,
)
from headrace.domain import Source
from headrace.errors import UndecodableRecord
from headrace.wire import Record, TopicKind, Topics, is_keyed
from headrace.wire import headers as names
from services.ctl.cluster import check_partition
from services.ctl.errors import UsageError
from services.ctl.instants import shown
from services.ctl.remains import remains
from services.ctl.request_trail import FollowRequest, Found, RequestTrail, found_in

__all__ = [
    "AN_ID",
    "HOUR_US",
    "TIME_ORDERED",
    "Followed",
    "asked_first",
    "follow_all",
    "request_trail",
    "timeliness",
    "unknown",
]

AN_ID = re.compile(r"[0-9a-f]{32}")
_PLACE = re.compile(r"(.+)/(\d{1,9})/(\d{1,18})")
TIME_ORDERED = "7"
"""The version of an id that begins with the time at which it was made."""

HOUR_US = 3_600_000_000
_SKEW_US = 5_000_000
_KEPT_US = 660_000_000
"""The answer to a key may be that of a request so much older."""

_LINGER_US = 3_000_000
"""Read on for so long after an end: another may follow it."""

_NO_DATE_US = 253_402_300_800_000_000
"""The year 10,000: no calendar of ours shows it, and no id was made then."""

_BEHIND_US = 1_000_000
"""No ingress that is well is behind the log by more."""

_ITS_INGRESS = (
    "in that ingress's log (request.failed with this id, unless too many failed at "
    "once) and, by number, in its /metrics (headrace_requests_total)"
)
_AHEAD_MAX = 500
_LOOK_UP_S = 10.0


class Followed(Protocol):
    @property
    def kinds(self) -> frozenset[TopicKind]: ...
    @property
    def ended_us(self) -> int | None: ...
    def may_concern(self, record: Record) -> bool: ...
    def take(self, record: Record) -> None: ...


def asked_first(topics: Topics, record: Record) -> int:
    """Of one instant, a request stands before what it brought about."""
    return int(topics.kind_of(record.topic) is not TopicKind.REQUESTS)


def follow_all(
    connection: KafkaConnection, topics: Topics, followed: Followed, since_us: int
) -> None:
    """In the order of append times, until some time after its end or the end of the
    log. Raises BusError."""
    history = History(
        connection,
        lambda one: topics.kind_of(one.topic) in followed.kinds,
        since_us,
        ahead_max=_AHEAD_MAX,
    )
    ordered = InOrder(lambda record: asked_first(topics, record))
    try:
        while (reached_us := history.read_to_us) is not None:
            ended_us = followed.ended_us
            if ended_us is not None and reached_us > ended_us + _LINGER_US:
                return
            for record in history.read():
                if followed.may_concern(record):
                    ordered.put(record)
            _take(followed, ordered, reached_us)
        _take(followed, ordered, None)
    finally:
        history.close()


def _take(followed: Followed, ordered: InOrder, reached_us: int | None) -> None:
    for record in ordered.until(reached_us):
        try:
            followed.take(record)
        except UndecodableRecord:
            continue


def request_trail(
    connection: KafkaConnection,
    topics: Topics,
    name: str,
    from_us: int | None,
    now_us: int,
) -> RequestTrail | None:
    """Of the one request with that name, looked for since ``from_us`` (None: since
    when its id says, or an hour ago); None: there is none.

    Raises UsageError when several requests have that name, BusError.
    """
    made_us = _made_us(name)
    if from_us is not None:
        since_us = from_us
    else:
        since_us = now_us - HOUR_US if made_us is None else made_us - _SKEW_US
    request = _request(connection, topics, name, since_us)
    if request is None:
        return None
    followed = FollowRequest(topics, request)
    back_us = _KEPT_US if is_keyed(request.id) else _SKEW_US
    asked_us = request.record.timestamp_us
    if request.is_cut:
        asked_us = min(asked_us, _made_us(request.id) or since_us)
    follow_all(connection, topics, followed, asked_us - back_us)
    trail = followed.trail()
    return msgspec.structs.replace(trail, timeliness=timeliness(topics, trail))


def unknown(name: str, from_us: int | None) -> str:
    """What :func:`request_trail` having found nothing since ``from_us`` means."""
    made_us = _made_us(name)
    is_placed = _PLACE.fullmatch(name) is not None
    told = [f"The log knows nothing of {name}."]
    if is_placed:
        told.append("It holds no such record, or no longer.")
    elif made_us is None:
        told.append(
            "If it is older than what was searched, look further back (--from). Once "
            "retention has removed a request's record, only results and dead letters "
            "say how its client called it: take its headrace-request-id."
        )
    elif from_us is not None and from_us > made_us:
        told.append(f"Its id was made at {shown(made_us)}: begin there (--from).")
    else:
        told.append(
            f"It was searched for from {shown(made_us)} on, when its id was made: "
            "looking further back is no use."
        )
    if not is_placed:
        told.append(
            "What an ingress refuses, as when it is overloaded, leaves no record: the "
            f"reason is in the answer (headrace-reason), {_ITS_INGRESS}."
        )
    return " ".join(told)


def timeliness(topics: Topics, trail: RequestTrail) -> str:
    """When the log had an answer that an ingress waited for, beside the deadline;
    empty: nothing is to be said of it. What the client was told the log never knows."""
    had_us = [
        each.at_us
        for each in trail.answers
        if not each.reason
        and topics.kind_of(each.place.split("/")[0]) is TopicKind.REPLIES
    ]
    if trail.deadline_us is None or not had_us:
        return ""
    left_us = trail.deadline_us - min(had_us)
    if left_us > _BEHIND_US:
        return ""
    when = f"{abs(left_us) / 1000:.0f} ms {'before' if left_us > 0 else 'after'}"
    told = "Its ingress has told the client 504 expired"
    if left_us > 0:
        told += " if it was behind by more than that"
    return (
        f"The log had the answer {when} its deadline. {told}: that is {_ITS_INGRESS}."
    )


def _made_us(name: str) -> int | None:
    """When an id that begins with its time was made."""
    if AN_ID.fullmatch(name) and name[12] == TIME_ORDERED:
        made_us = int(name[:12], 16) * 1000
        return made_us if made_us < _NO_DATE_US else None
    return None


def _request(
    connection: KafkaConnection, topics: Topics, name: str, since_us: int
) -> Found | None:
    placed = _PLACE.fullmatch(name)
    if placed is not None:
        place = (placed[1], int(placed[2]), int(placed[3]))
        if topics.kind_of(place[0]) is not TopicKind.REQUESTS:
            raise UsageError(f"{place[0]} is no topic of requests.")
        count = KafkaAdmin(connection).partitions(place[0], _LOOK_UP_S)
        check_partition(place[0], place[1], count)
        record = records_at(connection, [place]).get(place)
        if record is None:
            return None
        request_id = dict(record.headers).get(names.CE_ID) or b""
        return found_in(record, request_id.decode(errors="replace"))
    found: dict[tuple[str, str] | Source, Found] = {}
    for record in records_since(
        connection,
        lambda one: topics.kind_of(one.topic) is TopicKind.REQUESTS,
        since_us,
    ):
        request = found_in(record, name)
        if request is not None and not request.is_put_back:
            found.setdefault(request.identity, request)
    if not found:
        for request in remains(connection, topics, name, since_us):
            found.setdefault((request.tenant, request.id), request)
    if len(found) > 1:
        newest = sorted(found.values(), key=lambda each: each.record.timestamp_us)
        listed = ", ".join(
            f"{each.id} ({'/'.join(map(str, each.source))})" for each in newest[-5:]
        )
        raise UsageError(
            f"{name} names {len(found)} requests, the last of them {listed}."
        )
    return next(iter(found.values()), None)
