"""``headrace explain``: why a batch, or a request, went as it went."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from headrace.broker import KafkaConnection, records_at, records_since
from headrace.clock import wall_us
from headrace.domain import Padding
from headrace.errors import UndecodableRecord
from headrace.wire import Announcement, Topics, decode_json
from services.ctl.batch_trail import BatchTrail, FollowBatch, MemberTrail, SentTrail
from services.ctl.cluster import reached
from services.ctl.following import (
    AN_ID,
    HOUR_US,
    TIME_ORDERED,
    follow_all,
    request_trail,
    unknown,
)
from services.ctl.instants import instant_us, shown
from services.ctl.options import checked_id
from services.ctl.request_trail import RequestTrail
from services.ctl.wording import counted

__all__ = ["explain", "explained"]

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

    Exit status 1: the log knows nothing of it, as of what an ingress refused.

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
    checked_id(name)
    now_us = wall_us()
    from_us = None if from_ is None else instant_us(from_, now_us, option="--from")
    found = explained(*reached(bootstrap, data), name, from_us, now_us)
    if found is None:
        print(unknown(name, from_us))
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
    # A request's id begins with its time and says so; a batch's does not.
    if AN_ID.fullmatch(name) and name[12] != TIME_ORDERED:
        since_us = now_us - HOUR_US if from_us is None else from_us
        trail = _batch(connection, topics, name, since_us)
        if trail is not None:
            return trail
    return request_trail(connection, topics, name, from_us, now_us)


def _batch(
    connection: KafkaConnection, topics: Topics, name: str, since_us: int
) -> BatchTrail | None:
    follow = FollowBatch(topics, name)
    follow_all(connection, topics, follow, since_us)
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
        (
            "to",
            f"worker slot {sent.slot}, incarnation {sent.incarnation}"
            + (", by a link past the log" if sent.is_linked else ""),
        ),
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
        after = f"{step.after_us / 1000:+.0f} ms"
        _print(f"{shown(step.at_us)}  {after:>9}  {step.what}")
        _print(f"    {step.place}")
    if trail.timeliness:
        _print(trail.timeliness)


def _print(text: str) -> None:
    """Left to the terminal to wrap, which copies it whole."""
    Console().print(Text(text), soft_wrap=True)
