import logging

import pytest

from headrace.broker import KafkaConnection, KafkaProducer, KafkaReader, TopicPartition


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
