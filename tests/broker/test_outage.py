"""A real broker that freezes, and one that restarts, under all clients at once."""

import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.broker import (
    CommitRefused,
    Committed,
    Delivery,
    Leader,
    Producer,
    TopicPartition,
)
from headrace.embedded import EmbeddedKafka, KafkaSettings
from headrace.errors import BusError, BusTimeout
from tests.broker.bench import (
    PATIENCE_S,
    KafkaBench,
    Lanes,
    make_topic,
    read,
    serve,
    values,
)
from tests.freezing import freeze

pytestmark = pytest.mark.kafka


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[EmbeddedKafka]:
    broker = EmbeddedKafka(KafkaSettings(folder=tmp_path / "kafka"))
    yield broker
    broker.stop()


def test_a_frozen_broker_costs_time_outs_and_nothing_else(
    own_kafka: EmbeddedKafka,
) -> None:
    running = own_kafka.start()
    bench, lanes = KafkaBench(running.bootstrap_servers, "frozen."), Lanes()
    topic = make_topic(bench)
    make_topic(bench, "lanes", 2)
    one = TopicPartition(topic, 0)
    producer, reader = bench.producer(timeout_ms=1000), bench.reader()
    leader = bench.leader("former-0", lanes)
    serve([leader], lambda: lanes.owned == {0, 1})
    before = first_acked(producer, topic, "before")
    reader.assign({one: reader.log_range(one, PATIENCE_S).end - 1})
    assert values(read(reader, 1)) == [before]

    freeze(running.pid)
    reports: list[Delivery] = []
    producer.produce(topic, 0, b"during", on_delivery=reports.append)
    asked_at = time.monotonic()
    answer = leader.commit_now({one: Committed(1, "")}, 0.5)
    waited_s = time.monotonic() - asked_at
    assert answer is CommitRefused.UNAVAILABLE
    assert 0.5 <= waited_s < PATIENCE_S / 2
    assert reader.read(10, 0.1) == []
    with pytest.raises(BusTimeout):
        reader.log_range(one, 0.5)
    producer.flush(PATIENCE_S)
    assert isinstance(reports[0].error, BusTimeout)
    os.kill(running.pid, signal.SIGCONT)

    after = first_acked(producer, topic, "after")
    # A3: what timed out lies before the next acked record, or nowhere.
    found = []
    while after not in found:
        (record,) = read(reader, 1)
        found.append(record.value)
    assert found[-1] == after
    assert len(found) == len(set(found))
    assert reader.read(10, 0.1) == []
    serve([leader], lambda: leader.commit_now({one: Committed(2, "")}, 1) is None)
    assert leader.committed([one], PATIENCE_S) == {one: Committed(2, "")}
    bench.close()


def first_acked(producer: Producer, topic: str, name: str) -> bytes:
    """The first of ``name 0``, ``name 1``... that the log acknowledged: a busy machine
    may be too slow for the others, which is no fault."""
    for number in itertools.count():
        value = f"{name} {number}".encode()
        reports: list[Delivery] = []
        producer.produce(topic, 0, value, on_delivery=reports.append)
        producer.flush(PATIENCE_S)
        (report,) = reports
        if report.error is None:
            return value
        assert isinstance(report.error, BusTimeout)
    raise AssertionError


def test_clients_find_a_restarted_broker_again(own_kafka: EmbeddedKafka) -> None:
    running = own_kafka.start()
    bench, lanes = KafkaBench(running.bootstrap_servers, "restarted."), Lanes()
    topic = make_topic(bench)
    make_topic(bench, "lanes", 2)
    one = TopicPartition(topic, 0)
    producer, reader = bench.producer(timeout_ms=60_000), bench.reader()
    leader = bench.leader("former-0", lanes)
    serve([leader], lambda: lanes.owned == {0, 1})
    assert leader.commit_now({one: Committed(1, "kept")}, PATIENCE_S) is None
    reader.assign({one: 0})

    own_kafka.stop()
    producer.produce(topic, 0, b"patient")
    assert reader.read(10, 0.1) == []
    own_kafka.start()

    assert producer.flush(60) == 0
    assert values(read(reader, 1)) == [b"patient"]
    assert leader.committed([one], PATIENCE_S) == {one: Committed(1, "kept")}
    lead_again(bench, leader, lanes, one)
    bench.close()


def lead_again(
    bench: KafkaBench, leader: Leader, lanes: Lanes, one: TopicPartition
) -> None:
    """A restarted broker may take the member's own rejoin for a second member of its
    name; then the process ends, and its successor has the lanes."""

    def leads() -> bool:
        return lanes.owned == {0, 1} and (
            leader.commit_now({one: Committed(2, "")}, 1) is None
        )

    try:
        serve([leader], leads)
    except BusError as error:
        if error.code != "_FATAL":
            raise
        lanes.owned.clear()
        leader = bench.leader("former-0", lanes)
        serve([leader], leads)
