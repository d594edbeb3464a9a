"""Making topics, and checking those that are there."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka import admin as client

from headrace.broker.connection import KafkaConnection, bus_error, error_of
from headrace.broker.interface import NewTopic
from headrace.errors import BusTimeout, SetupError

__all__ = ["KafkaAdmin", "check_config"]

_TIMESTAMP_TYPE: Final = "message.timestamp.type"
_RECORD_BYTES: Final = "max.message.bytes"
_BROKERS_DEFAULT: Final = -1
_LOOK_AGAIN_S: Final = 0.02


class KafkaAdmin:
    """Topics of a cluster (:class:`headrace.broker.Admin`)."""

    def __init__(self, connection: KafkaConnection) -> None:
        # Kept for the life of the object: futures of a client that was collected
        # end with _DESTROY.
        self._client = client.AdminClient(connection.config())

    def create_topics(self, topics: Sequence[NewTopic], timeout_s: float) -> None:
        """As :meth:`headrace.broker.Admin.create_topics`."""
        deadline = time.monotonic() + timeout_s
        there = self._partitions(timeout_s)
        missing = [one for one in topics if one.name not in there]
        self._create(missing, deadline)
        known = [one for one in topics if one.name in there]
        self._check_configs(known, deadline)
        self._grow([one for one in known if there[one.name] < one.partitions], deadline)
        self._await_leaders({one.name: one.partitions for one in topics}, deadline)

    def delete_topic(self, topic: str, timeout_s: float) -> None:
        """Nothing where it does not exist."""
        futures = self._client.delete_topics([topic], request_timeout=timeout_s)
        _settle(futures, "delete topic", ignored="UNKNOWN_TOPIC_OR_PART")

    def partitions(self, topic: str, timeout_s: float) -> int:
        return self._partitions(timeout_s, topic).get(topic, 0)

    def topics(self, timeout_s: float) -> dict[str, int]:
        return self._partitions(timeout_s)

    def _create(self, topics: Sequence[NewTopic], deadline: float) -> None:
        if not topics:
            return
        futures = self._client.create_topics(
            [
                client.NewTopic(
                    one.name,
                    one.partitions,
                    _BROKERS_DEFAULT,
                    config=dict(one.config),
                )
                for one in topics
            ],
            request_timeout=_left(deadline),
        )
        _settle(futures, "create topic", ignored="TOPIC_ALREADY_EXISTS")

    def _grow(self, topics: Sequence[NewTopic], deadline: float) -> None:
        if not topics:
            return
        futures = self._client.create_partitions(
            [client.NewPartitions(one.name, one.partitions) for one in topics],
            request_timeout=_left(deadline),
        )
        # Another process may have added them meanwhile; the wait for leaders tells.
        _settle(futures, "add partitions to", ignored="INVALID_PARTITIONS")

    def _check_configs(self, topics: Sequence[NewTopic], deadline: float) -> None:
        """A topic that was there may be older than our settings, or made by others."""
        wanted = {one.name: one.config for one in topics if one.config}
        if not wanted:
            return
        futures = self._client.describe_configs(
            [client.ConfigResource(client.ResourceType.TOPIC, name) for name in wanted],
            request_timeout=_left(deadline),
        )
        for resource, future in futures.items():
            try:
                found = {name: one.value for name, one in future.result().items()}
            except KafkaException as error:
                doing = f"describe topic {resource.name}"
                raise bus_error(error_of(error), doing) from error
            check_config(resource.name, wanted[resource.name], found)

    def _await_leaders(self, wanted: Mapping[str, int], deadline: float) -> None:
        # A new topic is known to the controller before the brokers serve it.
        while True:
            there = self._partitions(_left(deadline))
            late = [
                name for name, count in wanted.items() if there.get(name, 0) < count
            ]
            if not late:
                return
            if time.monotonic() > deadline:
                raise BusTimeout(
                    f"topics without leaders: {', '.join(late)}", code="_TIMED_OUT"
                )
            time.sleep(_LOOK_AGAIN_S)

    def _partitions(self, timeout_s: float, topic: str | None = None) -> dict[str, int]:
        """Partitions that have a leader, per topic that exists."""
        try:
            metadata = self._client.list_topics(topic, timeout=timeout_s)
        except KafkaException as error:
            raise bus_error(error_of(error), "list topics") from error
        return {
            name: sum(one.leader >= 0 for one in found.partitions.values())
            for name, found in metadata.topics.items()
            if found.error is None
        }


def check_config(
    topic: str, wanted: Mapping[str, str], found: Mapping[str, str]
) -> None:
    """Raises :class:`headrace.errors.SetupError` for a topic on which no request could
    be kept to its deadline, or that takes smaller records than we may write."""
    clock = wanted.get(_TIMESTAMP_TYPE, found.get(_TIMESTAMP_TYPE))
    if found.get(_TIMESTAMP_TYPE) != clock:
        raise SetupError(
            f"topic {topic} has {_TIMESTAMP_TYPE}={found.get(_TIMESTAMP_TYPE)}, but "
            f"deadlines need {clock}: {_altered(topic, f'{_TIMESTAMP_TYPE}={clock}')}, "
            "or choose another prefix."
        )
    needed = int(wanted.get(_RECORD_BYTES, 0))
    if _RECORD_BYTES in found and int(found[_RECORD_BYTES]) < needed:
        raise SetupError(
            f"topic {topic} takes records of {found[_RECORD_BYTES]} bytes, but the "
            f"payload and batch limits need {needed}: "
            f"{_altered(topic, f'{_RECORD_BYTES}={needed}')}, or lower "
            "HEADRACE_BUS__PAYLOAD_BYTES_MAX and HEADRACE_BUS__BATCH_BYTES_MAX."
        )


def _altered(topic: str, config: str) -> str:
    return f"set it with kafka-configs.sh --alter --topic {topic} --add-config {config}"


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.1)


def _settle(futures: Mapping[str, Future[None]], doing: str, *, ignored: str) -> None:
    for topic, future in futures.items():
        try:
            future.result()
        except KafkaException as error:
            if error_of(error).name() != ignored:
                raise bus_error(error_of(error), f"{doing} {topic}") from error
