"""Whether another platform works on the topics that ``up`` is about to work on.

Two with one prefix have the same slots, so that each fences the other's processes,
over and over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from headrace.broker import KafkaConnection, Record, tail
from headrace.clock import wall_us
from headrace.errors import UndecodableRecord
from headrace.wire import Heartbeat, Topics, decode_json
from services.ctl.errors import UsageError

__all__ = ["new_heartbeats", "refuse_beside_another"]

_LOOK_BACK_US = 10_000_000
"""Heartbeats that are older, by our clock, are nobody's; clocks may differ a little."""

_LISTEN_S = 3.0
"""A process that beats no more for so long is taken for dead."""

_LOOK_AGAIN_S = 0.25
_NAMED = 3


def refuse_beside_another(
    connection: KafkaConnection, topics: Topics, say: Callable[[str], None]
) -> None:
    """Where processes were heard of late, listen whether one still beats.

    Raises UsageError, naming those that do, and BusError.
    """
    since_us = wall_us() - _LOOK_BACK_US
    before = asyncio.run(_heard(connection, topics.status, since_us))
    if not before:
        return
    say(
        f"processes of prefix {topics.prefix} were heard there just now: listening "
        f"for {_LISTEN_S:g} s whether they still run"
    )
    deadline = time.monotonic() + _LISTEN_S
    while time.monotonic() < deadline:
        time.sleep(_LOOK_AGAIN_S)
        now = asyncio.run(_heard(connection, topics.status, since_us))
        beating = new_heartbeats(before, now)
        if beating:
            raise UsageError(_refusal(beating, topics.prefix, connection))


def new_heartbeats(before: Sequence[Record], now: Sequence[Record]) -> list[Heartbeat]:
    """The last one of each process that ``now`` has and ``before`` has not."""
    known = {(record.partition, record.offset) for record in before}
    found: dict[str, Heartbeat] = {}
    for record in now:
        if record.value is None or (record.partition, record.offset) in known:
            continue
        try:
            heartbeat = decode_json(Heartbeat, record)
        except UndecodableRecord:
            continue
        found[heartbeat.instance] = heartbeat
    return list(found.values())


async def _heard(
    connection: KafkaConnection, topic: str, since_us: int
) -> list[Record]:
    return [record async for record in tail(connection, topic, since_us=since_us)]


def _refusal(
    beating: Sequence[Heartbeat], prefix: str, connection: KafkaConnection
) -> str:
    named = [
        f"{each.role.replace('_', '-')}.{each.slot}, process {each.pid} on {each.host}"
        for each in beating[:_NAMED]
    ]
    return (
        f"Another platform of prefix {prefix} runs on the Kafka at "
        f"{connection.bootstrap_servers} ({'; '.join(named)}), and two would fence "
        f"each other: stop it, or start this one with another prefix, such as "
        f"HEADRACE_BUS__PREFIX={prefix}-2."
    )
