"""Writing to Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from headrace.broker.connection import (
    FRAMING_BYTES,
    KafkaConnection,
    bus_error,
    error_of,
)
from headrace.broker.interface import Delivery, Headers
from headrace.errors import BusError, BusFull, BusTimeout

__all__ = ["Compression", "KafkaProducer", "ProducerSettings", "report_to"]


class Compression(StrEnum):
    """Worth its time for token ids and JSON; float tensors do not shrink."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"


class ProducerSettings(NamedTuple):
    """One producer's trade between delay and the number of Kafka requests.

    ``linger_ms``: how long a record waits for company. ``timeout_ms``: after that
    long without an ack a record's outcome is unknown (``BusTimeout``).
    ``queue_records_max`` and ``queue_bytes_max``: what waits for acks at most;
    beyond, ``produce`` raises ``BusFull``. ``failures_only``: ``on_delivery`` is not
    called for records that were acked. ``idempotent``: without it a record may lie
    there twice, one after the other; the first one of a process is not held up for the
    half second after which the client asks for its producer's number; and the client
    does not fill a core while it waits, as an idempotent one does (librdkafka 2.16)
    with five records of a partition in flight and another behind them.
    """

    linger_ms: float = 0
    timeout_ms: int = 2000
    compression: Compression = Compression.NONE
    queue_records_max: int = 50_000
    queue_bytes_max: int = 64 * 1024 * 1024
    failures_only: bool = False
    idempotent: bool = True

    def config(self) -> dict[str, Any]:
        order: dict[str, Any] = {"enable.idempotence": True}
        if not self.idempotent:
            order = {"enable.idempotence": False, "max.in.flight": 1}
        return order | {
            "linger.ms": self.linger_ms,
            "message.timeout.ms": self.timeout_ms,
            "request.timeout.ms": max(self.timeout_ms * 3 // 4, 500),
            "compression.type": self.compression.value,
            "queue.buffering.max.messages": self.queue_records_max,
            "queue.buffering.max.kbytes": self.queue_bytes_max // 1024,
            "delivery.report.only.error": self.failures_only,
        }


class KafkaProducer:
    """A producer (:class:`headrace.broker.Producer`), acks from all.

    ``produce`` and ``poll`` may be called from different threads.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        settings: ProducerSettings = ProducerSettings(),  # noqa: B008 - immutable
    ) -> None:
        self._client = confluent_kafka.Producer(
            connection.config()
            | settings.config()
            | {
                "acks": "all",
                # As every Java client does, so that a key has one place for all.
                "partitioner": "murmur2_random",
                "message.max.bytes": connection.batch_bytes_max + FRAMING_BYTES,
            }
        )

    def produce(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> None:
        """As :meth:`headrace.broker.Producer.produce`."""
        try:
            self._client.produce(
                topic,
                value,
                key,
                partition,
                None if on_delivery is None else report_to(on_delivery),
                headers=headers if isinstance(headers, list) else list(headers),
            )
        except BufferError as error:
            raise BusFull(
                f"the queue of records to {topic} is full", code="_QUEUE_FULL"
            ) from error
        except KafkaException as error:
            raise bus_error(
                error_of(error), f"produce to {topic} [{partition}]"
            ) from error

    def poll(self, timeout_s: float) -> int:
        return self._client.poll(timeout_s)

    def flush(self, timeout_s: float) -> int:
        return self._client.flush(timeout_s)


def report_to(
    on_delivery: Callable[[Delivery], None],
) -> Callable[[KafkaError | None, confluent_kafka.Message], None]:
    """What the client is to call with a record's end.

    An idempotent client also acks a record whose own request failed when a later one of
    the partition is acked: the log has it then, but nobody says where. For whoever asks
    for a place that is a time-out (``BusTimeout``), as is any end that is not known.
    """

    def report(error: KafkaError | None, record: confluent_kafka.Message) -> None:
        topic, partition, offset = record.topic(), record.partition(), record.offset()
        assert topic is not None
        if partition is None:
            # It failed before its key could choose one: the log was away.
            partition = -1
        failure: BusError | None = None
        if error is not None:
            failure = bus_error(error, f"produce to {topic} [{partition}]")
        elif offset is None:
            text = f"produce to {topic} [{partition}]: acked at an unknown offset"
            failure = BusTimeout(text, code="_NO_OFFSET")
        if failure is not None or offset is None:
            on_delivery(Delivery(topic, partition, -1, 0, failure))
            return
        at_us = record.timestamp()[1] * 1000
        on_delivery(Delivery(topic, partition, offset, at_us, None))

    return report
