"""The commits of a group, as the coordinator keeps them."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from headrace.broker import (
    COMMITS_TOPIC,
    GroupCommit,
    History,
    KafkaAdmin,
    Record,
    commits_partition,
    decode_commit,
)
from headrace.errors import UndecodableRecord
from tests.broker.bench import KafkaBench, make_topic

KEY = b"\x00\x01\x00\x05group\x00\x05topic\x00\x00\x00\x02"
LONG = "m" * 200


def a_record(key: bytes | None, value: bytes | None) -> Record:
    return Record(COMMITS_TOPIC, 0, 0, 0, key, value, [])


@pytest.mark.kafka
def test_commits_are_read_as_they_were_made(kafka: str, prefix: str) -> None:
    bench = KafkaBench(kafka, prefix)
    topic = make_topic(bench, partitions=3)
    group = f"{prefix}lanes"
    committer = Consumer({"bootstrap.servers": kafka, "group.id": group})
    made = [(2, 5, "1;e=7;c=3;n=0"), (0, 1, ""), (2, 4, LONG), (2, 9, "é")]
    for partition, offset, metadata in made:
        place = Place(topic, partition, offset, metadata=metadata)
        committer.commit(offsets=[place], asynchronous=False)
    committer.close()
    count = KafkaAdmin(bench.connection).partitions(COMMITS_TOPIC, 10)
    number = commits_partition(group, count)

    history = History(bench.connection, lambda one: one == (COMMITS_TOPIC, number), 0)
    commits = []
    while history.read_to_us is not None:
        commits += [decode_commit(record) for record in history.read()]
    history.close()

    assert [each for each in commits if each and each.group == group] == [
        GroupCommit(group, topic, *one) for one in made
    ]


@pytest.mark.parametrize(
    ("group", "partition"),
    # Where a broker with 50 of them wrote the commits of these groups.
    [
        ("headrace.lanes.default", 43),
        ("gruppe-ü", 22),
        ("𝄞", 44),
        ("polygenelubricants", 0),
        ("negative?", 4),
    ],
)
def test_a_group_has_the_partition_that_its_broker_gives_it(
    group: str, partition: int
) -> None:
    assert commits_partition(group, 50) == partition


@pytest.mark.parametrize(
    "value",
    [
        b"\x00\x00" + b"\x00" * 7 + b"\x09" + b"\x00\x02ab" + b"\x00" * 8,
        b"\x00\x01" + b"\x00" * 7 + b"\x09" + b"\x00\x02ab" + b"\x00" * 16,
        b"\x00\x03" + b"\x00" * 7 + b"\x09" + b"\xff" * 4 + b"\x00\x02ab" + b"\x00" * 8,
        b"\x00\x04" + b"\x00" * 7 + b"\x09" + b"\xff" * 4 + b"\x03ab" + b"\x00" * 9,
    ],
)
def test_every_version_is_read(value: bytes) -> None:
    assert decode_commit(a_record(KEY, value)) == GroupCommit(
        "group", "topic", 2, 9, "ab"
    )


def test_other_records_of_the_topic_are_passed_over() -> None:
    assert decode_commit(a_record(b"\x00\x02\x00\x05group", b"\x00\x03")) is None
    assert decode_commit(a_record(KEY, None)) is None
    assert decode_commit(a_record(None, b"")) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (KEY, b"\x00\x05" + b"\x00" * 40),
        (KEY, b"\x00\x03"),
        (KEY, b"\x00\x04" + b"\x00" * 12 + b"\xff"),
        (KEY, b"\x00\x03" + b"\x00" * 12 + b"\x00\x09ab"),
        (KEY[:-2], b"\x00\x03" + b"\x00" * 40),
        (b"\x00", b""),
    ],
)
def test_what_is_no_commit_is_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(UndecodableRecord):
        decode_commit(a_record(key, value))
