"""``headrace topics``: what waits in the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
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

__all__ = ["QueueRow", "queues", "topics"]

_HEARD_WITHIN_US = 3_000_000


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


def topics(
    *,
    bootstrap: str | None = None,
    pool: str | None = None,
    data: Path | None = None,
    output: Literal["table", "json"] = "table",
) -> int:
    """Show the depth of each model's queue, per lane and priority.

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
    rows = queues(names, depths, heard)
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
) -> list[QueueRow]:
    """The log's depths beside what formers said last."""
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
            )
        )
    return rows


def _loads(status: Iterable[Record]) -> dict[int, list[QueueLoad]]:
    """By lane, as the owner with the highest epoch said last."""
    newest: dict[int, tuple[int, list[QueueLoad]]] = {}
    for record in status:
        try:
            heartbeat = decode_json(Heartbeat, record)
        except UndecodableRecord:
            continue
        for load in heartbeat.lanes:
            known = newest.get(load.lane)
            if known is None or load.epoch >= known[0]:
                newest[load.lane] = (load.epoch, load.load.queues)
    return {lane: found for lane, (_, found) in newest.items()}


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
