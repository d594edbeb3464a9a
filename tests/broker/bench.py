"""What the contract suite needs of a log: the product's verbs, and a hand on it."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from headrace.broker import (
    Admin,
    KafkaAdmin,
    KafkaConnection,
    KafkaLeader,
    KafkaProducer,
    KafkaReader,
    Leader,
    LeaderSettings,
    NewTopic,
    Producer,
    ProducerSettings,
    Reader,
    Record,
    TopicPartition,
)
from headrace.testing import ManualClock, MemoryBroker
from tests.writing import writer_to

BATCH_BYTES_MAX = 2 * 1024 * 1024
RECORD_BYTES_MAX = BATCH_BYTES_MAX + 1024 * 1024
PATIENCE_S = 40.0
SESSION_MS = 3_000


class Lanes:
    """A listener that writes down what it hears, with what it owns."""

    def __init__(self) -> None:
        self.owned: set[int] = set()
        self.heard: list[tuple[str, set[int]]] = []
        self.leaving: Callable[[], None] | None = None

    def on_assign(self, lanes: Sequence[int]) -> None:
        self.heard.append(("assign", set(lanes)))
        self.owned |= set(lanes)

    def on_revoke(self, lanes: Sequence[int]) -> None:
        self.heard.append(("revoke", set(lanes)))
        if self.leaving:
            self.leaving()
        self.owned -= set(lanes)

    def on_lost(self, lanes: Sequence[int]) -> None:
        self.heard.append(("lost", set(lanes)))
        self.owned -= set(lanes)


class Bench(Protocol):
    prefix: str

    def producer(
        self, *, timeout_ms: int = 5000, queue_records_max: int = 1000
    ) -> Producer: ...

    def writer(self) -> Producer:
        """For what a test finds there."""
        ...

    def reader(self) -> Reader: ...

    def admin(self) -> Admin: ...

    def leader(
        self, instance_id: str, listener: Lanes, *, session_ms: int = SESSION_MS
    ) -> Leader: ...

    def cut(self, partition: TopicPartition, before: int) -> None: ...

    def wait(self, seconds: float) -> None: ...

    def close(self) -> None: ...


class MemoryBench:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.clock = ManualClock()
        self.broker = MemoryBroker(self.clock, record_bytes_max=RECORD_BYTES_MAX)

    def producer(
        self, *, timeout_ms: int = 5000, queue_records_max: int = 1000
    ) -> Producer:
        return self.broker.producer(
            timeout_us=timeout_ms * 1000, queue_records_max=queue_records_max
        )

    def writer(self) -> Producer:
        return self.broker.producer(timeout_us=5_000_000, queue_records_max=1000)

    def reader(self) -> Reader:
        return self.broker.reader()

    def admin(self) -> Admin:
        return self.broker.admin()

    def leader(
        self, instance_id: str, listener: Lanes, *, session_ms: int = SESSION_MS
    ) -> Leader:
        del session_ms
        return self.broker.leader(
            group=f"{self.prefix}group",
            instance_id=instance_id,
            topic=f"{self.prefix}lanes",
            listener=listener,
        )

    def cut(self, partition: TopicPartition, before: int) -> None:
        self.broker.delete_records(partition, before)

    def wait(self, seconds: float) -> None:
        self.clock.advance(int(seconds * 1e6))

    def close(self) -> None:
        pass


class KafkaBench:
    def __init__(self, bootstrap_servers: str, prefix: str) -> None:
        self.prefix = prefix
        self.connection = KafkaConnection(bootstrap_servers, "test", BATCH_BYTES_MAX)
        self._open: list[Reader | Leader] = []

    def producer(
        self, *, timeout_ms: int = 5000, queue_records_max: int = 1000
    ) -> Producer:
        settings = ProducerSettings(
            timeout_ms=timeout_ms, queue_records_max=queue_records_max
        )
        return KafkaProducer(self.connection, settings)

    def writer(self) -> Producer:
        return writer_to(self.connection.bootstrap_servers)

    def reader(self) -> Reader:
        reader = KafkaReader(self.connection)
        self._open.append(reader)
        return reader

    def admin(self) -> Admin:
        return KafkaAdmin(self.connection)

    def leader(
        self, instance_id: str, listener: Lanes, *, session_ms: int = SESSION_MS
    ) -> Leader:
        leader = KafkaLeader(
            self.connection,
            group=f"{self.prefix}group",
            instance_id=instance_id,
            topic=f"{self.prefix}lanes",
            listener=listener,
            settings=LeaderSettings(session_ms),
        )
        self._open.append(leader)
        return leader

    def cut(self, partition: TopicPartition, before: int) -> None:
        client = AdminClient({"bootstrap.servers": self.connection.bootstrap_servers})
        cuts = client.delete_records([ClientPartition(*partition, before)])
        for future in cuts.values():
            future.result(PATIENCE_S)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        for one in self._open:
            one.close()


LOG_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


def make_topic(bench: Bench, name: str = "records", partitions: int = 1) -> str:
    topic = f"{bench.prefix}{name}"
    config = {**LOG_APPEND_TIME, "max.message.bytes": str(RECORD_BYTES_MAX)}
    bench.admin().create_topics([NewTopic(topic, partitions, config)], PATIENCE_S)
    return topic


def write(bench: Bench, topic: str, *values: bytes, partition: int = 0) -> None:
    producer = bench.writer()
    for value in values:
        producer.produce(topic, partition, value)
    assert producer.flush(PATIENCE_S) == 0


def read(reader: Reader, count: int) -> list[Record]:
    """The next ``count`` records, however many reads they take."""
    records: list[Record] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(records) < count and time.monotonic() < deadline:
        records += reader.read(count - len(records), 0.05)
    return records


def values(records: Sequence[Record]) -> list[bytes | None]:
    return [one.value for one in records]


def serve(leaders: Sequence[Leader], until: Callable[[], bool]) -> None:
    """Poll the leaders until it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not until():
        assert time.monotonic() < deadline, "it never came to be"
        for leader in leaders:
            leader.poll(0.01)
