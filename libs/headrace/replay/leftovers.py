"""Topics of answers whose replay was killed before it could delete its own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from headrace.broker import (
    KafkaAdmin,
    KafkaConnection,
    KafkaReader,
    TopicPartition,
    spans_since,
)
from headrace.replay.reading import REPLAY_TENANT
from headrace.wire import Topics

__all__ = ["SIGN_EVERY_US", "began_before", "remove_leftovers", "run_name"]

SIGN_EVERY_US: Final = 60_000_000
"""A replay writes into its topic that it lives."""

SILENT_US: Final = 900_000_000
"""Nothing was written there for so long: whoever began it is gone. One that was frozen
meanwhile loses its topic, and the answers that it had not read."""

_RUN: Final = re.compile(r"(\d{8}T\d{6}Z)-[0-9a-f]{6}")
_FORM: Final = "%Y%m%dT%H%M%SZ"
_LOOK_UP_S: Final = 15.0


def run_name(at: datetime, token: str) -> str:
    """Of a replay that begins ``at``; ``token``: six hex digits that tell it apart."""
    return f"{at:{_FORM}}-{token}"


def began_before(topics: Topics, names: Iterable[str], until_us: int) -> list[str]:
    """Those of the topics that hold answers to a replay that began before."""
    beginning = topics.results(REPLAY_TENANT, "")
    found = []
    for name in names:
        run = _RUN.fullmatch(name.removeprefix(beginning))
        if run is None or not name.startswith(beginning):
            continue
        try:
            began = datetime.strptime(run[1], _FORM).replace(tzinfo=UTC)
        except ValueError:
            continue
        if began.timestamp() * 1e6 < until_us:
            found.append(name)
    return found


def remove_leftovers(connection: KafkaConnection, topics: Topics, now_us: int) -> None:
    """Delete the topics of replays that were killed or stopped: nothing was written
    there for a while. Raises :class:`headrace.errors.BusError`."""
    admin = KafkaAdmin(connection)
    there = admin.topics(_LOOK_UP_S)
    old = began_before(topics, there, now_us - SILENT_US)
    if not old:
        return
    reader = KafkaReader(connection)
    try:
        partitions = [
            TopicPartition(name, number)
            for name in old
            for number in range(there[name])
        ]
        lively = spans_since(reader, partitions, now_us - SILENT_US, _LOOK_UP_S)
    finally:
        reader.close()
    for name in set(old) - {one.topic for one in lively}:
        admin.delete_topic(name, _LOOK_UP_S)
