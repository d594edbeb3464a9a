"""How far a consumer group is behind, for people and tools."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaException,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka import admin as client

from headrace.broker.connection import KafkaConnection, bus_error, error_of
from headrace.broker.interface import TopicPartition

__all__ = ["Depth", "group_depth"]

T = TypeVar("T")

_NOT_YET: Final = frozenset(
    {
        "COORDINATOR_LOAD_IN_PROGRESS",
        "NOT_COORDINATOR",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
    }
)
"""Of a coordinator that was just elected, or a topic that was just made: all other
clients wait for these."""
_LOOK_AGAIN_S: Final = 0.1
_EARLIEST: client.OffsetSpec = client.OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # no stub
_LATEST: client.OffsetSpec = client.OffsetSpec.latest()  # type: ignore[no-untyped-call]  # no stub


class Depth(NamedTuple):
    """One partition's log and the group's place in it. ``committed`` None: the group
    has none, so that everything from ``start`` on is still to be read."""

    start: int
    end: int
    committed: int | None

    @property
    def waiting(self) -> int:
        """Records that the group has not finished and that are still in the log."""
        return self.end - max(self.start, self.committed or 0)


def group_depth(
    connection: KafkaConnection,
    group: str,
    is_wanted: Callable[[str], bool],
    timeout_s: float = 10.0,
) -> dict[TopicPartition, Depth]:
    """Every partition of the topics that ``is_wanted`` names, in order.

    Raises BusError.
    """
    admin = client.AdminClient(connection.config())
    try:
        topics = admin.list_topics(timeout=timeout_s).topics
        partitions = [
            KafkaTopicPartition(name, number)
            for name in sorted(topics)
            if is_wanted(name)
            for number in sorted(topics[name].partitions)
        ]
        if not partitions:
            return {}
        deadline = time.monotonic() + timeout_s

        def offsets(spec: client.OffsetSpec, left_s: float) -> list[int]:
            asked = dict.fromkeys(partitions, spec)
            answers = admin.list_offsets(asked, request_timeout=left_s)
            return [answers[one].result().offset for one in partitions]

        def committed(left_s: float) -> list[KafkaTopicPartition]:
            asked = ConsumerGroupTopicPartitions(group, partitions)
            answers = admin.list_consumer_group_offsets([asked], request_timeout=left_s)
            found: ConsumerGroupTopicPartitions = answers[group].result()
            return found.topic_partitions or []

        starts = _once_it_can(partial(offsets, _EARLIEST), deadline)
        ends = _once_it_can(partial(offsets, _LATEST), deadline)
        places = _once_it_can(committed, deadline)
        offset_of = {(one.topic, one.partition): one.offset for one in places}
        return {
            TopicPartition(one.topic, one.partition): Depth(
                start, end, _known(offset_of.get((one.topic, one.partition)))
            )
            for one, start, end in zip(partitions, starts, ends, strict=True)
        }
    except KafkaException as error:
        raise bus_error(error_of(error), f"look up group {group}") from error


def _once_it_can(ask: Callable[[float], T], deadline: float) -> T:
    """What ``ask`` finds, given so many seconds."""
    while True:
        try:
            return ask(max(deadline - time.monotonic(), 0.1))
        except KafkaException as error:
            if error_of(error).name() not in _NOT_YET or time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_AGAIN_S)


def _known(offset: int | None) -> int | None:
    return None if offset is None or offset < 0 else offset
