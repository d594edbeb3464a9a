"""A record and a topic as plain values; what an adapter to the log takes and gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

__all__ = ["Headers", "NewTopic", "Outgoing", "Record"]

Headers = Sequence[tuple[str, bytes | None]]


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record as read. ``timestamp_us`` is the broker's append time."""

    topic: str
    partition: int
    offset: int
    timestamp_us: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class NewTopic(NamedTuple):
    name: str
    partitions: int
    config: Mapping[str, str]


class Outgoing(NamedTuple):
    """A record to be written, without its place."""

    key: bytes | None
    headers: Headers
    value: bytes | None
