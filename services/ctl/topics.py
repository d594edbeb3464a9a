"""``headrace topics``: what waits in the queue, and how it left."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headrace.broker import (
    Depth,
    KafkaConnection,
    Record,
    TopicPartition,
    group_depth,
    tail,
)
from headrace.clock import wall_us
from headrace.domain import QueueLoad
from headrace.errors import UndecodableRecord
from headrace.wire import Heartbeat, Topics, decode_json
from services.ctl.cluster import reached
from services.ctl.released import Released, released, scraped

__all__ = ["QueueRow", "queues", "topics"]

_HEARD_WITHIN_US = 3_000_000
_MEASURED = ("batches", "rows", "fill", "wait p50", "p99", "slack p1", "overrun")
_ABOUT_RELEASED = (
    "Batches since their batch formers began, by the priority of their head. Waits and "
    "slack, in ms, are of each request, by its own; overrun is the run time over the "
    "predicted one."
)


class QueueRow(msgspec.Struct, frozen=True):
    """One model's queue in one priority of a lane."""

    model: str
    lane: int
    priority: str
    waiting: int
    """Records in the log that the lane's former has not finished."""

    committed: int | None
    end: int
    held: int | None
    """Requests that its former says it has queued; None: no former was heard."""

    oldest_ms: float | None
    released: Released | None = None
    """What left of this model in this priority, in all lanes together."""


def topics(
    *,
    bootstrap: str | None = None,
    pool: str | None = None,
    data: Path | None = None,
    output: Literal["table", "json"] = "table",
) -> int:
    """Show each model's queue, per lane and priority, and how its batches left.

    Parameters
    ----------
    bootstrap
        Address of the Kafka [default: KAFKA_BOOTSTRAP_SERVERS, or the one that runs
        here].
    pool
        The pool of workers [default: HEADRACE_BUS__POOL, or default].
    data
        The folder given to `up`.
    output
        table, or json.
    """
    connection, names = reached(bootstrap, data, pool=pool)
    beginning = names.requests("")
    depths = group_depth(
        connection, names.lane_group, lambda topic: topic.startswith(beginning)
    )
    heard = asyncio.run(_heard(connection, names.status))
    samples, silent = scraped(_formers(heard))
    rows = queues(names, depths, heard, released(samples))
    for sentence in silent:
        print(sentence, file=sys.stderr)
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(rows)).decode())
    elif rows:
        _show(rows)
    else:
        print("No model has a queue yet.")
    return 0


def queues(
    names: Topics,
    depths: Mapping[TopicPartition, Depth],
    status: Iterable[Record],
    left: Mapping[tuple[str, str], Released],
) -> list[QueueRow]:
    """The log's depths beside what formers said last, and what they sent, by model and
    priority."""
    loads = _loads(status)
    rows = []
    for place, depth in depths.items():
        lane, priority = names.lane_and_priority(place.partition)
        model = names.model_of(place.topic)
        held = loads.get(lane)
        mine = [q for q in held or () if (q.model, q.priority) == (model, priority)]
        rows.append(
            QueueRow(
                model=model,
                lane=lane,
                priority=priority.name.lower(),
                waiting=depth.waiting,
                committed=depth.committed,
                end=depth.end,
                held=None if held is None else sum(q.requests for q in mine),
                oldest_ms=max((q.oldest_us / 1000 for q in mine), default=None),
                released=left.get((model, priority.name.lower())),
            )
        )
    return rows


def _loads(status: Iterable[Record]) -> dict[int, list[QueueLoad]]:
    """By lane, as the owner with the highest epoch said last."""
    newest: dict[int, tuple[int, list[QueueLoad]]] = {}
    for heartbeat in _heartbeats(status):
        for load in heartbeat.lanes:
            known = newest.get(load.lane)
            if known is None or load.epoch >= known[0]:
                newest[load.lane] = (load.epoch, load.load.queues)
    return {lane: found for lane, (_, found) in newest.items()}


def _formers(status: Iterable[Record]) -> list[str]:
    """Where those that own a lane say how they are."""
    newest = {beat.slot: beat for beat in _heartbeats(status) if beat.lanes}
    return [beat.admin for beat in newest.values() if beat.admin]


def _heartbeats(status: Iterable[Record]) -> Iterator[Heartbeat]:
    for record in status:
        with suppress(UndecodableRecord):
            yield decode_json(Heartbeat, record)


async def _heard(connection: KafkaConnection, topic: str) -> list[Record]:
    since_us = wall_us() - _HEARD_WITHIN_US
    return [record async for record in tail(connection, topic, since_us=since_us)]


def _show(rows: list[QueueRow]) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    # What is too long for the terminal is the name, and a name may be folded.
    table.add_column("model", overflow="fold", min_width=10)
    table.add_column("lane", no_wrap=True)
    table.add_column("priority", no_wrap=True)
    for heading in ("waiting", "committed", "end", "held", "oldest ms"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            escape(row.model),
            str(row.lane),
            row.priority,
            str(row.waiting),
            "" if row.committed is None else str(row.committed),
            str(row.end),
            "" if row.held is None else str(row.held),
            "" if row.oldest_ms is None else f"{row.oldest_ms:.0f}",
        )
    Console().print(table)
    _show_released({(row.model, row.priority): row.released for row in rows})


def _show_released(rows: Mapping[tuple[str, str], Released | None]) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("model", overflow="fold", min_width=10)
    table.add_column("priority", no_wrap=True)
    for heading in (
        "batches",
        "rows",
        "fill",
        "wait p50",
        "p99",
        "slack p1",
        "overrun",
    ):
        table.add_column(heading, justify="right")
    words = []
    for (model, priority), row in rows.items():
        if row is None:
            continue
        table.add_row(
            escape(model),
            priority,
            str(row.batches),
            _number(row.rows, ".1f"),
            _number(row.fill, ".0%"),
            _number(row.wait_p50_ms, ".1f"),
            _number(row.wait_p99_ms, ".1f"),
            _number(row.slack_p1_ms, ".1f"),
            _number(row.overrun, ".2f"),
        )
        for what, counts in (("left", row.left), ("refused", row.refused)):
            if counts:
                told = ", ".join(f"{name} {count:,}" for name, count in counts.items())
                words.append(f"{model} {priority} {what}: {told}")
    if table.row_count:
        console = Console()
        console.print(_ABOUT_RELEASED)
        console.print(table)
        for line in words:
            console.print(escape(line))


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
