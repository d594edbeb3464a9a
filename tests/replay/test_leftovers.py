from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headrace.broker import KafkaAdmin, KafkaProducer
from headrace.lifecycle import BusSettings
from headrace.replay.leftovers import began_before, remove_leftovers, run_name
from headrace.replay.running import SIGN
from headrace.wire import Topics, results_topic

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


@pytest.mark.kafka
def test_the_topic_of_a_replay_that_fell_silent_is_deleted(
    kafka: str, prefix: str
) -> None:
    bus = BusSettings(bootstrap_servers=kafka, prefix=prefix.rstrip("."))
    connection, topics = bus.connection("test"), bus.topics
    now = datetime.now(UTC)
    began = {
        "silent": now - timedelta(minutes=16),
        "lively": now - timedelta(days=2),
        "young": now - timedelta(minutes=14),
    }
    made = {
        name: results_topic(topics, "replay", run_name(at, "00ff00"), bus)
        for name, at in began.items()
    }
    admin = KafkaAdmin(connection)
    admin.create_topics([*made.values()], 30)
    producer = KafkaProducer(connection)
    producer.produce(made["lively"].name, 0, b"", key=SIGN)
    producer.flush(15)

    remove_leftovers(connection, topics, int(now.timestamp() * 1e6))

    there = admin.topics(15)
    assert [name for name in made if made[name].name in there] == ["lively", "young"]
