"""The contract of a producer, for every log."""

import pytest

from headrace.broker import Delivery, TopicPartition
from headrace.errors import BusError, BusFull
from tests.broker.bench import (
    PATIENCE_S,
    RECORD_BYTES_MAX,
    Bench,
    make_topic,
    read,
    values,
    write,
)


def test_a_record_comes_back_as_it_was_written(bench: Bench) -> None:
    topic = make_topic(bench)
    headers = [("b", b"1"), ("a", None), ("b", b"\xff\x00"), ("c", b"")]
    reports: list[Delivery] = []
    producer = bench.producer()
    producer.produce(
        topic, 0, b"value", key=b"key", headers=headers, on_delivery=reports.append
    )
    assert producer.flush(PATIENCE_S) == 0

    reader = bench.reader()
    reader.assign({TopicPartition(topic, 0): 0})
    (record,) = read(reader, 1)

    assert (record.topic, record.partition, record.offset) == (topic, 0, 0)
    assert (record.key, record.value, record.headers) == (b"key", b"value", headers)
    assert reports == [Delivery(topic, 0, 0, record.timestamp_us, None)]


def test_the_append_time_is_the_brokers_and_never_goes_back(bench: Bench) -> None:
    topic = make_topic(bench)
    reports: list[Delivery] = []
    producer = bench.producer()
    for _ in range(2):
        producer.produce(topic, 0, b"", on_delivery=reports.append)
        assert producer.flush(PATIENCE_S) == 0
        bench.wait(0.05)

    first, second = reports
    assert second.timestamp_us - first.timestamp_us >= 50_000
    assert first.timestamp_us % 1000 == 0


def test_a_missing_value_and_key_stay_missing(bench: Bench) -> None:
    topic = make_topic(bench)
    producer = bench.producer()
    producer.produce(topic, 0, None)
    producer.produce(topic, 0, b"", key=b"")
    assert producer.flush(PATIENCE_S) == 0

    reader = bench.reader()
    reader.assign({TopicPartition(topic, 0): 0})
    missing, empty = read(reader, 2)

    assert (missing.key, missing.value, missing.headers) == (None, None, [])
    assert (empty.key, empty.value) == (b"", b"")


def test_records_of_a_partition_keep_their_order(bench: Bench) -> None:
    topic = make_topic(bench)
    sent = [b"%d" % number for number in range(500)]
    write(bench, topic, *sent)

    reader = bench.reader()
    reader.assign({TopicPartition(topic, 0): 0})
    records = read(reader, 500)

    assert values(records) == sent
    assert [one.offset for one in records] == list(range(500))


def test_a_record_above_the_limit_is_refused_at_once(bench: Bench) -> None:
    topic = make_topic(bench)
    reports: list[Delivery] = []
    producer = bench.producer()
    with pytest.raises(BusError) as refused:
        producer.produce(topic, 0, bytes(RECORD_BYTES_MAX + 1))
    assert refused.value.code == "MSG_SIZE_TOO_LARGE"

    room_for_framing = 1024
    producer.produce(
        topic,
        0,
        bytes(RECORD_BYTES_MAX - room_for_framing),
        on_delivery=reports.append,
    )
    assert producer.flush(PATIENCE_S) == 0
    assert [one.error for one in reports] == [None]


def test_a_full_queue_refuses_until_reports_are_taken(bench: Bench) -> None:
    topic = make_topic(bench)
    producer = bench.producer(queue_records_max=3)
    for _ in range(3):
        producer.produce(topic, 0, b"")
    with pytest.raises(BusFull):
        producer.produce(topic, 0, b"")

    assert producer.flush(PATIENCE_S) == 0
    producer.produce(topic, 0, b"")
    assert producer.flush(PATIENCE_S) == 0


def test_a_partition_that_does_not_exist_is_refused(bench: Bench) -> None:
    topic = make_topic(bench)
    producer = bench.producer()
    producer.produce(topic, 0, b"")
    assert producer.flush(PATIENCE_S) == 0

    with pytest.raises(BusError) as refused:
        producer.produce(topic, 1, b"")
    assert refused.value.code == "_UNKNOWN_PARTITION"


def test_a_topic_that_does_not_exist_is_reported_in_time(bench: Bench) -> None:
    reports: list[Delivery] = []
    producer = bench.producer(timeout_ms=500)
    producer.produce(f"{bench.prefix}none", 0, b"", on_delivery=reports.append)
    bench.wait(0.6)
    producer.flush(PATIENCE_S)

    (report,) = reports
    assert isinstance(report.error, BusError)
    assert report.offset == -1


def test_a_key_has_one_partition(bench: Bench) -> None:
    topic = make_topic(bench, partitions=8)
    reports: dict[bytes, set[int]] = {}
    producer = bench.producer()
    for number in range(40):
        key = b"%d" % (number % 10)
        producer.produce(
            topic,
            -1,
            b"",
            key=key,
            on_delivery=lambda one, key=key: reports.setdefault(key, set()).add(
                one.partition
            ),
        )
    assert producer.flush(PATIENCE_S) == 0
    assert [len(places) for places in reports.values()] == [1] * 10
    assert len(set().union(*reports.values())) > 2
