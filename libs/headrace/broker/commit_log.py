"""The commits of a group as they were made, from the broker's own topic.

A group's present offset says nothing of the offsets before it; the topic that the
coordinator keeps has each of them until it is compacted, with its metadata and time.
The format is Kafka's OffsetCommitKey (0, 1) and OffsetCommitValue (0 to 4).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from headrace.broker.interface import Record
from headrace.errors import UndecodableRecord

__all__ = ["COMMITS_TOPIC", "GroupCommit", "commits_partition", "decode_commit"]

COMMITS_TOPIC = "__consumer_offsets"

_KEY_VERSIONS = (0, 1)
_FLEXIBLE_FROM = 4
_VERSION_MAX = 4
_LEADER_EPOCH_FROM = 3


class GroupCommit(NamedTuple):
    group: str
    topic: str
    partition: int
    offset: int
    metadata: str


def commits_partition(group: str, partitions: int) -> int:
    """Where the coordinator keeps ``group``: the absolute value of Java's hash of its
    name, which for the one int without an absolute value is 0."""
    code = 0
    for (unit,) in struct.iter_unpack(">H", group.encode("utf-16-be")):
        code = (31 * code + unit) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >> 31 else code
    return 0 if signed == -(1 << 31) else abs(signed) % partitions


def decode_commit(record: Record) -> GroupCommit | None:
    """None for the topic's other records, and for a commit that was removed.

    Raises :class:`headrace.errors.UndecodableRecord`.
    """
    if record.key is None or record.value is None:
        return None
    try:
        (version,) = struct.unpack_from(">h", record.key)
        if version not in _KEY_VERSIONS:
            return None
        group, at = _string(record.key, 2)
        topic, at = _string(record.key, at)
        (partition,) = struct.unpack_from(">i", record.key, at)
        version, offset = struct.unpack_from(">hq", record.value)
        if version > _VERSION_MAX:
            raise UndecodableRecord(
                f"a commit of version {version}, expected 0 to {_VERSION_MAX}"
            )
        at = 10 if version < _LEADER_EPOCH_FROM else 14
        read = _string if version < _FLEXIBLE_FROM else _compact_string
        metadata, _ = read(record.value, at)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise UndecodableRecord(f"not a commit: {error}") from error
    # confluent-kafka sends the zero that ends a C string along with it.
    return GroupCommit(group, topic, partition, offset, metadata.rstrip("\0"))


def _string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    return _text(data, at + 2, length)


def _compact_string(data: bytes, at: int) -> tuple[str, int]:
    """Its length plus one stands in front, seven bits a byte, lowest first."""
    length = shift = 0
    while True:
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return _text(data, at, length - 1)


def _text(data: bytes, at: int, length: int) -> tuple[str, int]:
    end = at + length
    if length < 0 or end > len(data):
        raise IndexError(f"a string of {length} bytes at {at} of {len(data)}")
    return data[at:end].decode(), end
