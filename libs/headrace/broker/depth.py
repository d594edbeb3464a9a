"""How far a consumer group is behind, for people and tools."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaException,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka import admin as client

from headrace.broker.connection import KafkaConnection, bus_error, error_of
from headrace.broker.interface import TopicPartition

__all__ = ["Depth", "group_depth"]


_NOT_YET: Final = frozenset({"COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"})
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
        starts = admin.list_offsets(
            dict.fromkeys(partitions, _EARLIEST), request_timeout=timeout_s
        )
        ends = admin.list_offsets(
            dict.fromkeys(partitions, _LATEST), request_timeout=timeout_s
        )
        asked = ConsumerGroupTopicPartitions(group, partitions)
        places = _committed(admin, asked, time.monotonic() + timeout_s)
        offset_of = {(one.topic, one.partition): one.offset for one in places}
        return {
            TopicPartition(one.topic, one.partition): Depth(
                starts[one].result().offset,
                ends[one].result().offset,
                _known(offset_of.get((one.topic, one.partition))),
            )
            for one in partitions
        }
    except KafkaException as error:
        raise bus_error(error_of(error), f"look up group {group}") from error


def _committed(
    admin: client.AdminClient, asked: ConsumerGroupTopicPartitions, deadline: float
) -> list[KafkaTopicPartition]:
    while True:
        left_s = max(deadline - time.monotonic(), 0.1)
        answers = admin.list_consumer_group_offsets([asked], request_timeout=left_s)
        try:
            found: ConsumerGroupTopicPartitions = answers[asked.group_id].result()
        except KafkaException as error:
            # A coordinator that was just elected; every other client waits for it.
            if error_of(error).name() not in _NOT_YET or time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_AGAIN_S)
        else:
            return found.topic_partitions or []


def _known(offset: int | None) -> int | None:
    return None if offset is None or offset < 0 else offset
