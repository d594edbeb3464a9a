"""``headrace explain``: why a batch, or a request, went as it went."""

from __future__ import annotations

import re
import time
from heapq import heappop, heappush
from pathlib import Path
from typing import Annotated, Literal, Protocol

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from headrace.broker import (
    History,
    KafkaConnection,
    records_at,
    records_since,
)
from headrace.domain import Padding, Source
from headrace.errors import UndecodableRecord
from headrace.wire import Announcement, Record, TopicKind, Topics, decode_json
from headrace.wire import headers as names
from services.ctl.batch_trail import BatchTrail, FollowBatch, MemberTrail, SentTrail
from services.ctl.cluster import reached
from services.ctl.errors import UsageError
from services.ctl.instants import instant_us, shown
from services.ctl.request_trail import FollowRequest, Found, RequestTrail, found_in
from services.ctl.wording import counted

__all__ = ["explain", "explained"]

_HEX = re.compile(r"[0-9a-f]{32}")
_PLACE = re.compile(r"(.+)/(\d{1,9})/(\d{1,18})")
_TIME_ORDERED = "7"
"""The version of an id that begins with the time at which it was made."""

_SKEW_US = 5_000_000
_LINGER_US = 3_000_000
"""Read on for so long after an end: another may follow it."""

_AHEAD_MAX = 500
_MEMBERS_SHOWN = 40
_NAME_WIDTH = 13


def explain(
    name: str,
    /,
    *,
    from_: Annotated[
        str | None, Parameter(name="--from", allow_leading_hyphen=True)
    ] = None,
    bootstrap: str | None = None,
    data: Path | None = None,
    output: Literal["table", "json"] = "table",
) -> int:
    """Tell the story of a batch or of a request, from the log.

    Exit status 1: the log knows nothing of it.

    Parameters
    ----------
    name
        A batch's id, or a request's: headrace-request-id, the body's own id, the id of
        its trace, or topic/partition/offset.
    from_
        Where to begin looking: -30m, -2h, -1d, or a date and time in UTC [default:
        what the id tells, or -1h].
    bootstrap
        Address of the Kafka [default: KAFKA_BOOTSTRAP_SERVERS, or the one that runs
        here].
    data
        The folder given to `up`.
    output
        table, or json.
    """
    now_us = time.time_ns() // 1000
    from_us = None if from_ is None else instant_us(from_, now_us, option="--from")
    found = explained(*reached(bootstrap, data), name, from_us, now_us)
    if found is None:
        print(f"The log knows nothing of {name}: look further back with --from.")
        return 1
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    elif isinstance(found, BatchTrail):
        _show_batch(found)
    else:
        _show_request(found)
    return 0


def explained(
    connection: KafkaConnection,
    topics: Topics,
    name: str,
    from_us: int | None,
    now_us: int,
) -> BatchTrail | RequestTrail | None:
    """Looks for a batch where ``name`` can be one's, then for a request.

    Raises UsageError when several requests have that name, BusError.
    """
    since_us = now_us - 3_600_000_000 if from_us is None else from_us
    is_id = _HEX.fullmatch(name) is not None
    is_time_ordered = is_id and name[12] == _TIME_ORDERED
    if is_id and not is_time_ordered:
        trail = _batch(connection, topics, name, since_us)
        if trail is not None:
            return trail
    if is_time_ordered and from_us is None:
        since_us = int(name[:12], 16) * 1000 - _SKEW_US
    request = _request(connection, topics, name, since_us)
    if request is None:
        return None
    follow = FollowRequest(topics, request)
    _read(connection, topics, follow, request.record.timestamp_us - _SKEW_US)
    return follow.trail()


class _Follow(Protocol):
    @property
    def kinds(self) -> frozenset[TopicKind]: ...
    @property
    def ended_us(self) -> int | None: ...
    def may_concern(self, record: Record) -> bool: ...
    def take(self, record: Record) -> None: ...


def _read(
    connection: KafkaConnection, topics: Topics, follow: _Follow, since_us: int
) -> None:
    """In the order of append times, until some time after its end or the end of the
    log."""
    history = History(
        connection,
        lambda one: topics.kind_of(one.topic) in follow.kinds,
        since_us,
        ahead_max=_AHEAD_MAX,
    )
    waiting: list[tuple[int, bool, str, int, int, Record]] = []
    try:
        while (reached_us := history.read_to_us) is not None:
            ended_us = follow.ended_us
            if ended_us is not None and reached_us > ended_us + _LINGER_US:
                return
            for record in history.read():
                if follow.may_concern(record):
                    # Of one instant, the request before what it brought about.
                    is_later = topics.kind_of(record.topic) is not TopicKind.REQUESTS
                    order = record.timestamp_us, is_later, record.topic
                    place = record.partition, record.offset
                    heappush(waiting, (*order, *place, record))
            _take_until(follow, waiting, reached_us)
        _take_until(follow, waiting, None)
    finally:
        history.close()


def _take_until(
    follow: _Follow,
    waiting: list[tuple[int, bool, str, int, int, Record]],
    reached_us: int | None,
) -> None:
    while waiting and (reached_us is None or waiting[0][0] < reached_us):
        try:
            follow.take(heappop(waiting)[-1])
        except UndecodableRecord:
            continue


def _batch(
    connection: KafkaConnection, topics: Topics, name: str, since_us: int
) -> BatchTrail | None:
    follow = FollowBatch(topics, name)
    _read(connection, topics, follow, since_us)
    if not follow.is_found:
        return None
    asked = records_at(connection, follow.sources)
    asked_us = {
        source: asked[source].timestamp_us
        for source in follow.sources
        if source in asked
    }
    return follow.trail(asked_us, _padding(connection, topics, *follow.version))


def _padding(
    connection: KafkaConnection, topics: Topics, model: str, version: str
) -> Padding | None:
    found = None
    announcements = records_since(
        connection, lambda one: one.topic == topics.control_models
    )
    for record in announcements:
        try:
            announced = decode_json(Announcement, record)
        except UndecodableRecord:
            continue
        if (announced.model, announced.version) == (model, version):
            found = announced.padding or found
    return found


def _request(
    connection: KafkaConnection, topics: Topics, name: str, since_us: int
) -> Found | None:
    placed = _PLACE.fullmatch(name)
    if placed is not None:
        place = (placed[1], int(placed[2]), int(placed[3]))
        if topics.kind_of(place[0]) is not TopicKind.REQUESTS:
            raise UsageError(f"{place[0]} is no topic of requests.")
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
    if len(found) > 1:
        newest = sorted(found.values(), key=lambda each: each.record.timestamp_us)
        listed = ", ".join(
            f"{each.id} ({'/'.join(map(str, each.source))})" for each in newest[-5:]
        )
        raise UsageError(
            f"{name} names {len(found)} requests, the last of them {listed}."
        )
    return next(iter(found.values()), None)


def _show_batch(trail: BatchTrail) -> None:
    lines = [("batch", trail.batch)]
    lines.append(("model", f"{trail.model} version {trail.version}"))
    sent, ran = trail.sent, trail.ran
    if sent is None:
        lines.append(("made", "its record is no longer in the log"))
    else:
        lines += _sent_lines(sent, trail)
    if ran is not None:
        lines += [
            ("measured run", f"{ran.run_us / 1000:.2f} ms"),
            ("waited there", f"{ran.waited_us / 1000:.2f} ms"),
            ("input", f"{ran.input_us / 1000:.2f} ms"),
            ("output", f"{ran.output_us / 1000:.2f} ms"),
            ("done", shown(ran.at_us)),
        ]
    elif trail.refused:
        lines.append(("refused", trail.refused))
    else:
        lines.append(("measured run", "no worker has said that it is done"))
    if trail.replied_us is not None:
        lines.append(("replied", shown(trail.replied_us)))
    for name, value in lines:
        _print(f"{name:<{_NAME_WIDTH}} {value}")
    for each in trail.members[:_MEMBERS_SHOWN]:
        _print(f"  {each.id}  {_of_member(each)}")
    left = len(trail.members) - _MEMBERS_SHOWN
    if left > 0:
        _print(f"and {left} more (--output json lists all)")


def _sent_lines(sent: SentTrail, trail: BatchTrail) -> list[tuple[str, str]]:
    rows = (
        f"{trail.rows} of {counted(len(trail.members), 'request')}, padded to "
        f"{sent.padded_rows}; {sent.padding_waste:.1%} of the work is padding"
    )
    return [
        ("sent", shown(sent.at_us)),
        ("by", f"former {sent.former}, lane {sent.lane}, epoch {sent.epoch}"),
        ("to", f"worker slot {sent.slot}, incarnation {sent.incarnation}"),
        ("released", sent.release_reason),
        ("rows", rows),
        ("predicted run", f"{sent.predicted_us / 1000:.2f} ms"),
    ]


def _of_member(each: MemberTrail) -> str:
    """What the log has of it."""
    told = [each.tenant]
    if each.rows is not None:
        length = f" of length {each.length}" if each.length else ""
        told.append(f"{counted(each.rows, 'row')}{length}")
    if each.attempt is not None:
        told.append(f"attempt {each.attempt}")
    if each.queued_us is not None:
        told.append(f"queued {each.queued_us / 1000:.0f} ms")
    # Some of both are the same word.
    told.append(" ".join(dict.fromkeys((each.status, each.reason))).strip())
    return ", ".join(filter(None, told))


def _show_request(trail: RequestTrail) -> None:
    """In lines, not columns: an id or a place that is folded cannot be copied."""
    _print(
        f"Request {trail.id} of tenant {trail.tenant} to {trail.model}, "
        f"{trail.priority}"
        + (f", body id {trail.client_id!r}" if trail.client_id else "")
        + (f", deadline {shown(trail.deadline_us)}" if trail.deadline_us else "")
    )
    for step in trail.steps:
        after = f"+{step.after_us / 1000:.0f} ms"
        _print(f"{shown(step.at_us)}  {after:>9}  {step.what}")
        _print(f"    {step.place}")


def _print(text: str) -> None:
    """Left to the terminal to wrap, which copies it whole."""
    Console().print(Text(text), soft_wrap=True)
