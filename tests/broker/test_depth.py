from __future__ import annotations

import pytest

from headrace.broker import (
    Depth,
    KafkaAdmin,
    KafkaConnection,
    NewTopic,
    TopicPartition,
    group_depth,
)
from tests.writing import writer_to


@pytest.mark.kafka
def test_a_group_without_commits_has_everything_before_it(
    kafka: str, prefix: str
) -> None:
    connection = KafkaConnection(kafka, "test")
    topic = f"{prefix}requests.m"
    KafkaAdmin(connection).create_topics([NewTopic(topic, 2, {})], 10.0)
    producer = writer_to(kafka)
    for _ in range(3):
        producer.produce(topic, 1, b"x")
    assert producer.flush(10.0) == 0

    depths = group_depth(connection, f"{prefix}lanes", lambda name: name == topic)

    assert depths == {
        TopicPartition(topic, 0): Depth(0, 0, None),
        TopicPartition(topic, 1): Depth(0, 3, None),
    }
    assert [depth.waiting for depth in depths.values()] == [0, 3]


def test_what_retention_removed_does_not_wait() -> None:
    assert Depth(start=10, end=12, committed=4).waiting == 2
    assert Depth(start=10, end=12, committed=12).waiting == 0
