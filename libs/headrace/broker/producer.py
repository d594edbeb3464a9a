"""Writing to Apache Kafka."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from enum import StrEnum
from threading import Lock
from typing import Any, Final, NamedTuple

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

FLYING_MAX: Final = 5
"""While five records of a partition are on their way an idempotent client sends no
other one, and polls without a pause while another waits (librdkafka 2.16)."""


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
    there twice, one after the other, and the first one of a process is not held up for
    the half second after which the client asks for its producer's number. ``spares``:
    an idempotent client gets no more records of a partition than it sends at once, so
    that it does not fill a core while it waits for acks; what is kept back has
    ``timeout_ms`` from then on, and no more than :data:`FLYING_MAX` records of a
    partition are written in the time that an ack takes.
    """

    linger_ms: float = 0
    timeout_ms: int = 2000
    compression: Compression = Compression.NONE
    queue_records_max: int = 50_000
    queue_bytes_max: int = 64 * 1024 * 1024
    failures_only: bool = False
    idempotent: bool = True
    spares: bool = False

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


class _New(NamedTuple):
    """A record on its way to the client."""

    topic: str
    partition: int
    value: bytes | None
    key: bytes | None
    headers: Headers
    on_delivery: Callable[[Delivery], None] | None

    @property
    def size(self) -> int:
        return len(self.value or b"")


class _Line:
    """A partition's records: those without an ack, and those kept back meanwhile."""

    __slots__ = ("flying", "waiting")

    def __init__(self) -> None:
        self.flying = 0
        self.waiting: deque[_New] = deque()


class KafkaProducer:
    """A producer (:class:`headrace.broker.Producer`), acks from all.

    ``produce`` and ``poll`` may be called from different threads.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        settings: ProducerSettings = ProducerSettings(),  # noqa: B008 - immutable
    ) -> None:
        self._settings = settings
        self._lock = Lock()
        self._lines: dict[tuple[str, int], _Line] = defaultdict(_Line)
        self._waiting = self._waiting_bytes = 0
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
        new = _New(topic, partition, value, key, headers, on_delivery)
        if not self._settings.spares or partition < 0:
            self._send(new, on_delivery)
            return
        with self._lock:
            line = self._lines[topic, partition]
            if line.waiting or line.flying >= FLYING_MAX:
                self._keep(line, new)
            else:
                self._fly(line, new)

    def poll(self, timeout_s: float) -> int:
        return self._client.poll(timeout_s)

    def flush(self, timeout_s: float) -> int:
        return self._client.flush(timeout_s) + self._waiting

    @property
    def is_holding(self) -> bool:
        """As :attr:`headrace.broker.Producer.is_holding`."""
        return self._waiting > 0

    def _keep(self, line: _Line, new: _New) -> None:
        settings = self._settings
        if (
            self._waiting >= settings.queue_records_max
            or self._waiting_bytes + new.size > settings.queue_bytes_max
        ):
            raise BusFull(
                f"the queue of records to {new.topic} is full", code="_QUEUE_FULL"
            )
        line.waiting.append(new)
        self._waiting += 1
        self._waiting_bytes += new.size

    def _fly(self, line: _Line, new: _New) -> None:
        def end(delivery: Delivery) -> None:
            if new.on_delivery is not None:
                new.on_delivery(delivery)
            with self._lock:
                line.flying -= 1
                refused = self._let_go(line) if line.waiting else ()
            for each, error in refused:
                if each.on_delivery is not None:
                    each.on_delivery(Delivery(each.topic, each.partition, -1, 0, error))

        line.flying += 1
        try:
            self._send(new, end)
        except BusError:
            line.flying -= 1
            raise

    def _let_go(self, line: _Line) -> list[tuple[_New, BusError]]:
        """Give the client what it can send; what it refused."""
        refused: list[tuple[_New, BusError]] = []
        while line.waiting and line.flying < FLYING_MAX:
            new = line.waiting.popleft()
            self._waiting -= 1
            self._waiting_bytes -= new.size
            try:
                self._fly(line, new)
            except BusError as error:
                refused.append((new, error))
        return refused

    def _send(self, new: _New, on_delivery: Callable[[Delivery], None] | None) -> None:
        headers = new.headers
        try:
            self._client.produce(
                new.topic,
                new.value,
                new.key,
                new.partition,
                None if on_delivery is None else report_to(on_delivery),
                headers=headers if isinstance(headers, list) else list(headers),
            )
        except BufferError as error:
            raise BusFull(
                f"the queue of records to {new.topic} is full", code="_QUEUE_FULL"
            ) from error
        except KafkaException as error:
            raise bus_error(
                error_of(error), f"produce to {new.topic} [{new.partition}]"
            ) from error


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
