"""The contract of topic administration, for every log."""

import pytest

from headrace.broker import NewTopic, TopicPartition
from headrace.errors import SetupError
from tests.broker.bench import LOG_APPEND_TIME, PATIENCE_S, Bench, read, values, write

SIZE = "max.message.bytes"


def test_a_created_topic_serves_at_once(bench: Bench) -> None:
    topic = f"{bench.prefix}new"
    admin = bench.admin()
    assert admin.partitions(topic, PATIENCE_S) == 0

    admin.create_topics([NewTopic(topic, 3, LOG_APPEND_TIME)], PATIENCE_S)

    assert admin.partitions(topic, PATIENCE_S) == 3
    write(bench, topic, b"a", partition=2)
    reader = bench.reader()
    reader.assign({TopicPartition(topic, 2): 0})
    assert values(read(reader, 1)) == [b"a"]


def test_creating_again_changes_nothing_and_adds_what_is_missing(bench: Bench) -> None:
    one = NewTopic(f"{bench.prefix}one", 2, LOG_APPEND_TIME)
    two = NewTopic(f"{bench.prefix}two", 1, LOG_APPEND_TIME)
    admin = bench.admin()
    admin.create_topics([one], PATIENCE_S)
    write(bench, one.name, b"kept")

    admin.create_topics([one, two], PATIENCE_S)

    assert admin.partitions(one.name, PATIENCE_S) == 2
    assert admin.partitions(two.name, PATIENCE_S) == 1
    reader = bench.reader()
    reader.assign({TopicPartition(one.name, 0): 0})
    assert values(read(reader, 1)) == [b"kept"]


def test_partitions_are_added_and_never_taken_away(bench: Bench) -> None:
    topic = f"{bench.prefix}grows"
    admin = bench.admin()
    for asked, there in ((2, 2), (4, 4), (1, 4)):
        admin.create_topics([NewTopic(topic, asked, LOG_APPEND_TIME)], PATIENCE_S)
        assert admin.partitions(topic, PATIENCE_S) == there


def test_a_topic_with_another_clock_is_refused(bench: Bench) -> None:
    topic = f"{bench.prefix}clock"
    admin = bench.admin()
    sender_time = {"message.timestamp.type": "CreateTime"}
    admin.create_topics([NewTopic(topic, 1, sender_time)], PATIENCE_S)
    with pytest.raises(SetupError, match=rf"{topic}.*CreateTime"):
        admin.create_topics([NewTopic(topic, 1, LOG_APPEND_TIME)], PATIENCE_S)


def test_a_topic_that_takes_too_small_records_is_refused(bench: Bench) -> None:
    topic = f"{bench.prefix}small"
    admin = bench.admin()
    small, enough = ({**LOG_APPEND_TIME, SIZE: size} for size in ("1000", "2000"))
    admin.create_topics([NewTopic(topic, 1, small)], PATIENCE_S)

    admin.create_topics([NewTopic(topic, 1, small)], PATIENCE_S)
    sentence = rf"{topic} takes records of 1000 bytes, .* need 2000: .*{SIZE}=2000"
    with pytest.raises(SetupError, match=sentence):
        admin.create_topics([NewTopic(topic, 1, enough)], PATIENCE_S)


def test_topics_are_listed_with_their_partitions(bench: Bench) -> None:
    topic = f"{bench.prefix}listed"
    admin = bench.admin()
    assert topic not in admin.topics(PATIENCE_S)
    admin.create_topics([NewTopic(topic, 3, LOG_APPEND_TIME)], PATIENCE_S)
    assert admin.topics(PATIENCE_S)[topic] == 3
