"""``headrace show``: one request's whole life, as it stands in the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.clock import wall_us
from services.ctl.cluster import reached
from services.ctl.following import request_trail, unknown
from services.ctl.instants import instant_us, shown
from services.ctl.options import checked_id
from services.ctl.payload import TensorSummary
from services.ctl.request_trail import RequestTrail, Stage

__all__ = ["show", "told"]


def show(
    request: str,
    /,
    *,
    from_: Annotated[
        str | None, Parameter(name="--from", allow_leading_hyphen=True)
    ] = None,
    bootstrap: str | None = None,
    data: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Show what a request asked, where it was, for how long, and what it was answered.

    Exit status 1: the log knows nothing of it, as of what an ingress refused.

    Parameters
    ----------
    request
        Its id (headrace-request-id), the body's own id, the id of its trace, or
        topic/partition/offset.
    from_
        Where to begin looking: -30m, -2h, -1d, or a date and time in UTC [default:
        what the id tells, or -1h].
    bootstrap
        Address of the Kafka [default: KAFKA_BOOTSTRAP_SERVERS, or the one that runs
        here].
    data
        The folder given to `up`.
    as_json
        Print one JSON document.
    """
    checked_id(request)
    now_us = wall_us()
    from_us = None if from_ is None else instant_us(from_, now_us, option="--from")
    trail = request_trail(*reached(bootstrap, data), request, from_us, now_us)
    if trail is None:
        print(unknown(request, from_us))
        return 1
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(trail)).decode())
        return 0
    console = Console(highlight=False)
    for line in told(trail):
        # Left to the terminal to wrap: what is folded cannot be copied.
        console.print(Text(line), soft_wrap=True)
    if trail.stages:
        console.print(_table(trail.stages))
    return 0


def told(trail: RequestTrail) -> Iterator[str]:
    """Everything but the stages, in lines."""
    how = f", {trail.priority}" if trail.priority else ""
    yield f"Request {trail.id} of tenant {trail.tenant} to {trail.model}{how}"
    for name, value in trail.headers.items():
        yield f"  {name}: {'' if value is None else value}"
    if trail.cut:
        yield f"  its record in {trail.cut} is no longer in the log"
    if trail.payload is None:
        if not trail.cut:
            yield "  no value"
    elif trail.payload.begins:
        yield f"  {trail.payload.size_bytes} bytes {trail.payload.begins}"
    else:
        yield from _tensors("input", trail.payload.inputs)
    for step in trail.steps:
        after = f"{step.after_us / 1000:+.0f} ms"
        yield f"{shown(step.at_us)}  {after:>9}  {step.what}"
        yield f"    {step.place}"
    for answer in trail.answers:
        if answer.reason:
            yield f"Answer: {answer.reason}: {answer.text}"
        else:
            yield f"Answer of version {answer.version}"
        yield from _tensors("output", answer.outputs)
    yield from filter(None, (trail.shared, trail.timeliness))


def _tensors(what: str, tensors: Sequence[TensorSummary]) -> Iterator[str]:
    for each in tensors:
        shape = ", ".join(map(str, each.shape))
        yield f"  {what} {each.name} {each.datatype} [{shape}]: {each.first}"


def _table(stages: Sequence[Stage]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("where its time went")
    table.add_column("ms", justify="right")
    table.add_column("measured by")
    for each in stages:
        table.add_row(each.name, f"{each.us / 1000:.2f}", each.by)
    return table
