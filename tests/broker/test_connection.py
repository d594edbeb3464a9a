import logging

import pytest
from confluent_kafka import Message

from headrace.broker import (
    Delivery,
    KafkaConnection,
    KafkaProducer,
    KafkaReader,
    ProducerSettings,
    TopicPartition,
)
from headrace.broker.producer import report_to
from headrace.embedded.ports import free_port
from headrace.errors import BusTimeout


def test_a_broker_that_is_away_does_not_flood_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nowhere = KafkaConnection("127.0.0.1:9", "test")
    reader, producer = KafkaReader(nowhere), KafkaProducer(nowhere)
    reader.assign({TopicPartition("none", 0): 0})
    producer.produce("none", 0, b"")
    # Each client tries several times within this second.
    for _ in range(5):
        reader.read(1, 0.1)
        producer.poll(0.1)
    reader.close()
    lines = [one for one in caplog.records if one.args and one.args[0] == "FAIL"]
    assert len(lines) <= 1


def test_that_a_producer_asks_again_for_its_number_is_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = logging.getLogger("headrace.broker.librdkafka")

    log.warning("%s [%s] %s", "GETPID", "p-1", "Failed to acquire PID: retrying")
    log.warning("%s [%s] %s", "GETPID", "p-1", "Not authorized")

    assert [record.getMessage() for record in caplog.records] == [
        "GETPID [p-1] Not authorized"
    ]


def test_a_record_that_never_had_a_partition_fails_like_any_other() -> None:
    """Its key was to choose one, and the log was away from the start."""
    connection = KafkaConnection(f"127.0.0.1:{free_port('127.0.0.1')}", "test")
    producer = KafkaProducer(connection, ProducerSettings(timeout_ms=100))
    ended: list[Delivery] = []
    producer.produce("t", -1, b"", key=b"k", on_delivery=ended.append)
    producer.flush(10)

    (delivery,) = ended
    assert delivery.partition == -1
    assert isinstance(delivery.error, BusTimeout)


def test_a_record_that_was_acked_at_no_known_place_is_in_doubt() -> None:
    """So the client reports one whose request timed out at the broker when the next one
    of its partition is acked: without an offset, and at its own time, not the log's."""
    ended: list[Delivery] = []
    report = report_to(ended.append)

    report(None, Message("t", 3, -1001, timestamp=(1, 1_234)))
    report(None, Message("t", 3, 7, timestamp=(2, 1_234)))

    assert ended[1] == Delivery("t", 3, 7, 1_234_000, None)
    (topic, partition, offset, at_us, error), _ = ended
    assert (topic, partition, offset, at_us) == ("t", 3, -1, 0)
    assert isinstance(error, BusTimeout)
    assert str(error) == "produce to t [3]: acked at an unknown offset"
