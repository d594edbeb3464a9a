"""Recorded requests out of a real log, as it is and as retention leaves it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.broker import TopicPartition
from headrace.domain import Priority
from headrace.errors import SetupError
from headrace.replay import (
    RECORDED_FACTS,
    At,
    Bound,
    Condition,
    Recorded,
    Recording,
    Selection,
)
from tests.audit.cluster import MODEL, Cluster

pytestmark = pytest.mark.kafka


@pytest.fixture
def cluster(kafka: str, prefix: str) -> Iterator[Cluster]:
    cluster = Cluster(kafka, prefix)
    yield cluster
    cluster.close()


def read(
    cluster: Cluster, since: Bound = 0, until: Bound | None = None, *where: str
) -> tuple[dict[str, str | None], Recording]:
    """How each request ended, in the order of their ends."""
    conditions = tuple(Condition.parse(each, RECORDED_FACTS) for each in where)
    selection = Selection(MODEL, since, until, conditions)
    recording = Recording(cluster.connection, cluster.topics, selection)
    found: list[Recorded] = list(recording)
    recording.close()
    assert len({each.source for each in found}) == len(found)
    return {each.id: each.ending and each.ending.status for each in found}, recording


def test_answers_results_and_dead_letters_are_joined(cluster: Cluster) -> None:
    item = cluster.ask("item", priority=Priority.BULK, reply_to=cluster.job)
    cluster.ask("elsewhere", model="other")
    first = cluster.ask("first")
    buried = cluster.ask("buried")
    cluster.ask("silent")
    cluster.ask("again", source="headrace/replay/r1")
    cluster.answer("first", "elsewhere")
    cluster.result("item", item)
    cluster.bury("buried", buried, whole=True)
    last = cluster.ask("last")
    cluster.answer("last")

    found, recording = read(cluster)

    ends = {"first": "ok", "item": "ok", "buried": "poison", "last": "ok"}
    assert found == {**ends, "silent": None}
    assert recording.counts.replays == 1
    assert recording.warnings == []
    assert read(cluster, 0, None, "status=poison")[0] == {"buried": "poison"}
    placed, _ = read(
        cluster, At(first.partition, buried.offset), At(last.partition, last.offset)
    )
    assert placed == {"buried": "poison", "silent": None}
    with pytest.raises(SetupError, match="does not exist"):
        read(cluster, At(first.partition, last.offset + 1))


def test_what_retention_has_cut_is_told(cluster: Cluster) -> None:
    first = cluster.ask("first")
    began_us = cluster.last_us
    second = cluster.ask("second")
    cluster.answer("second")
    bulk = cluster.ask("item", priority=Priority.BULK, reply_to=cluster.job)
    topic = cluster.topics.requests(MODEL)
    cluster.cut(TopicPartition(topic, first.partition), second.offset)
    cluster.cut(TopicPartition(topic, bulk.partition), bulk.offset + 1)

    found, recording = read(cluster, began_us)

    assert found == {"second": "ok"}
    emptied, cut = recording.warnings
    assert emptied.startswith(f"retention has removed all 1 records of {topic} [3]")
    assert cut.startswith(f"retention has cut the range: {topic} is whole only since")

    found, recording = read(cluster, At(first.partition, first.offset))

    assert found == {"second": "ok"}
    place = f"{topic}/{first.partition}"
    assert recording.warnings[0] == (
        f"retention has removed {place}/0 up to {place}/0: 1 records of the range"
    )
