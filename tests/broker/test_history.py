"""Reading back what lies in the log."""

from __future__ import annotations

import pytest

from headrace.broker import (
    History,
    KafkaConnection,
    Record,
    TopicPartition,
    records_at,
)
from headrace.errors import BusError
from tests.broker.bench import KafkaBench, make_topic, values, write

pytestmark = pytest.mark.kafka


@pytest.fixture
def bench(kafka: str, prefix: str) -> KafkaBench:
    return KafkaBench(kafka, prefix)


def history_of(bench: KafkaBench, since_us: int = 0) -> History:
    return History(
        bench.connection, lambda one: one.topic.startswith(bench.prefix), since_us
    )


def all_of(history: History) -> list[Record]:
    records = []
    while (front_us := history.read_to_us) is not None:
        some = history.read(records_max=50)
        assert all(each.timestamp_us >= front_us for each in some)
        records += some
    history.close()
    return records


def test_every_partition_is_read_to_its_present_end(bench: KafkaBench) -> None:
    one, two = make_topic(bench, "one", partitions=2), make_topic(bench, "two")
    write(bench, one, b"a", b"b")
    write(bench, one, b"x", partition=1)
    write(bench, two, b"y")
    history = history_of(bench)
    write(bench, one, b"later")

    records = all_of(history)

    assert history.records == 4
    assert sorted(values(records)) == [b"a", b"b", b"x", b"y"]
    assert [
        each.value for each in records if (each.topic, each.partition) == (one, 0)
    ] == [b"a", b"b"]


def test_reading_begins_at_an_instant(bench: KafkaBench) -> None:
    topic = make_topic(bench)
    write(bench, topic, b"old")
    bench.wait(0.05)
    write(bench, topic, b"new")
    since_us = all_of(history_of(bench))[-1].timestamp_us

    assert values(all_of(history_of(bench, since_us))) == [b"new"]
    assert all_of(history_of(bench, since_us + 60_000_000)) == []


def test_no_partition_runs_far_ahead_of_another(bench: KafkaBench) -> None:
    fast, slow = make_topic(bench, "fast"), make_topic(bench, "slow")
    write(bench, slow, b"first")
    for _ in range(4):
        write(bench, fast, *[b"%d" % each for each in range(200)])
        write(bench, slow, b"next")
    history = History(
        bench.connection,
        lambda one: one.topic.startswith(bench.prefix),
        0,
        ahead_max=100,
    )

    seen_us: dict[str, int] = {}
    ahead = most_ahead = 0
    fast_us: list[int] = []
    while history.read_to_us is not None:
        for record in history.read(records_max=20):
            seen_us[record.topic] = record.timestamp_us
            if record.topic == fast:
                fast_us.append(record.timestamp_us)
        front_us = min(seen_us.get(slow, 0), seen_us.get(fast, 0))
        ahead = sum(each > front_us for each in fast_us)
        if history.read_to_us is not None:
            most_ahead = max(most_ahead, ahead)
    history.close()

    assert len(fast_us) == 800
    assert most_ahead <= 100 + 20


def test_what_is_not_there_has_nothing_to_read(bench: KafkaBench) -> None:
    assert all_of(history_of(bench)) == []
    make_topic(bench, "empty")
    history = history_of(bench)
    assert history.records == 0
    assert all_of(history) == []


def test_a_partition_that_was_cut_says_so(bench: KafkaBench) -> None:
    topic = make_topic(bench, "cut", partitions=2)
    write(bench, topic, b"a", b"b", b"c")
    write(bench, topic, b"x", partition=1)
    bench.cut(TopicPartition(topic, 0), 2)

    history = history_of(bench)
    cut, whole = (history.extents[TopicPartition(topic, each)] for each in (0, 1))

    assert cut.is_cut
    assert (cut.start, cut.first, cut.end) == (2, 2, 3)
    assert not whole.is_cut
    assert sorted(values(all_of(history))) == [b"c", b"x"]


def test_single_records_are_read_where_they_lie(bench: KafkaBench) -> None:
    topic = make_topic(bench, "t")
    write(bench, topic, b"a", b"b", b"c")
    bench.cut(TopicPartition(topic, 0), 1)
    places = [(topic, 0, offset) for offset in (0, 2, 1, 7)]

    found = records_at(bench.connection, places)

    assert {place[2]: record.value for place, record in found.items()} == {
        1: b"b",
        2: b"c",
    }


def test_a_cluster_that_is_away_is_an_error() -> None:
    nowhere = KafkaConnection("127.0.0.1:9", "test")
    with pytest.raises(BusError, match="look up the log"):
        History(nowhere, lambda _: True, 0, timeout_s=0.2)
