"""A producer that keeps back what its client would only wait with."""

from __future__ import annotations

import pytest

from headrace.broker import (
    Delivery,
    KafkaConnection,
    KafkaProducer,
    ProducerSettings,
    TopicPartition,
)
from headrace.broker.producer import FLYING_MAX
from headrace.embedded.ports import free_port
from headrace.errors import BusFull, BusTimeout
from tests.broker.bench import PATIENCE_S, KafkaBench, make_topic, read, values


@pytest.mark.kafka
def test_all_arrive_once_in_their_order(kafka: str, prefix: str) -> None:
    bench = KafkaBench(kafka, prefix)
    topic = make_topic(bench)
    producer = KafkaProducer(
        bench.connection, ProducerSettings(timeout_ms=5000, spares=True)
    )
    acked: list[Delivery] = []
    sent = [b"%d" % number for number in range(10 * FLYING_MAX)]
    held = []
    for value in sent:
        producer.produce(topic, 0, value, on_delivery=acked.append)
        held.append(producer.is_holding)
    # Nobody polled meanwhile, so nothing was heard of any ack.
    assert held == [False] * FLYING_MAX + [True] * 9 * FLYING_MAX
    assert producer.flush(PATIENCE_S) == 0
    assert not producer.is_holding

    reader = bench.reader()
    reader.assign({TopicPartition(topic, 0): 0})
    assert values(read(reader, len(sent))) == sent
    assert [each.offset for each in acked] == list(range(len(sent)))
    bench.close()


def test_no_more_is_kept_back_than_the_queue_may_hold() -> None:
    producer = _nowhere(queue_records_max=FLYING_MAX + 1)
    for _ in range(2 * FLYING_MAX + 1):
        producer.produce("t", 0, b"x")
    with pytest.raises(BusFull):
        producer.produce("t", 0, b"x")
    producer.produce("t", 1, b"x")


def test_what_was_kept_back_fails_as_what_was_not() -> None:
    """For want of a log, or since the client refuses it when its turn comes."""
    producer = _nowhere(timeout_ms=100)
    ended: list[Delivery] = []
    for size in (1,) * FLYING_MAX + (20 * 1024 * 1024, 1):
        producer.produce("t", 0, bytes(size), on_delivery=ended.append)
    assert producer.is_holding
    assert producer.flush(PATIENCE_S) == 0

    codes = [each.error.code for each in ended if each.error]
    late = ["_MSG_TIMED_OUT"] * (FLYING_MAX + 1)
    assert sorted(codes) == ["MSG_SIZE_TOO_LARGE", *late]
    assert sum(isinstance(each.error, BusTimeout) for each in ended) == len(late)


def _nowhere(
    *, timeout_ms: int = 30_000, queue_records_max: int = 1000
) -> KafkaProducer:
    where = f"127.0.0.1:{free_port('127.0.0.1')}"
    settings = ProducerSettings(
        timeout_ms=timeout_ms, queue_records_max=queue_records_max, spares=True
    )
    return KafkaProducer(KafkaConnection(where, "test"), settings)
