from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headrace.broker import KafkaAdmin
from headrace.lifecycle import BusSettings
from headrace.replay.leftovers import (
    KEPT_US,
    began_before,
    remove_leftovers,
    run_name,
)
from headrace.wire import Topics, results_topic
from headrace.wire.topology import document

AT = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
AT_US = int(AT.timestamp() * 1e6)


def test_topics_of_replays_are_told_by_when_they_began() -> None:
    topics = Topics("h")
    mine = topics.results("replay", run_name(AT, "00ff00"))
    others = [
        topics.results("replay", run_name(AT + timedelta(seconds=1), "00ff00")),
        topics.results("replay", "20301399T000000Z-00ff00"),
        topics.results("replay", "by-hand"),
        topics.results("acme", run_name(AT, "00ff00")),
        Topics("other").results("replay", run_name(AT, "00ff00")),
        run_name(AT, "00ff00"),
    ]
    assert began_before(topics, [mine, *others], AT_US + 1) == [mine]
    assert began_before(topics, [mine, *others], AT_US) == []


def test_answers_are_kept_as_long_as_their_topics_say() -> None:
    channel = document()["channels"]["results"]
    kept = channel["bindings"]["kafka"]["topicConfiguration"]["retention.ms"]
    assert kept * 1000 == KEPT_US


@pytest.mark.kafka
def test_an_empty_topic_of_an_old_replay_is_deleted(kafka: str, prefix: str) -> None:
    bus = BusSettings(bootstrap_servers=kafka, prefix=prefix.rstrip("."))
    connection, topics = bus.connection("test"), bus.topics
    old, young = (
        results_topic(topics, "replay", run_name(at, "00ff00"), bus)
        for at in (AT, AT + timedelta(days=1))
    )
    admin = KafkaAdmin(connection)
    admin.create_topics([old, young], 30)

    remove_leftovers(connection, topics, AT_US + KEPT_US + 1)

    there = admin.topics(15)
    assert old.name not in there
    assert young.name in there
