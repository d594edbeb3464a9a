import sys

import pytest

from headrace.broker import KafkaConnection, tail
from headrace.errors import BusError
from headrace.wire.headers import UNREADABLE_HEADERS
from tests.broker.bench import KafkaBench, make_topic, write
from tests.broker.foreign import write_unreadable

pytestmark = pytest.mark.kafka


async def collect(bench: KafkaBench, topic: str, since_us: int | None = None) -> list:
    records = tail(bench.connection, topic, since_us=since_us)
    return [(one.partition, one.value) async for one in records]


@pytest.fixture
def bench(kafka: str, prefix: str) -> KafkaBench:
    return KafkaBench(kafka, prefix)


async def test_a_topic_is_read_to_its_present_end(bench: KafkaBench) -> None:
    topic = make_topic(bench, partitions=2)
    write(bench, topic, b"a", b"b")
    write(bench, topic, b"x", partition=1)
    assert sorted(await collect(bench, topic)) == [(0, b"a"), (0, b"b"), (1, b"x")]


async def test_a_topic_is_read_since_an_append_time(bench: KafkaBench) -> None:
    topic = make_topic(bench)
    write(bench, topic, b"old")
    bench.wait(0.05)
    write(bench, topic, b"new")
    records = [one async for one in tail(bench.connection, topic)]
    since_us = records[1].timestamp_us

    assert await collect(bench, topic, since_us) == [(0, b"new")]
    assert await collect(bench, topic, since_us + 1_000_000) == []


async def test_what_does_not_exist_is_empty(bench: KafkaBench) -> None:
    assert await collect(bench, f"{bench.prefix}none") == []
    assert await collect(bench, make_topic(bench)) == []


async def test_a_followed_topic_gives_what_comes_later(bench: KafkaBench) -> None:
    topic = make_topic(bench)
    write(bench, topic, b"a")
    records = tail(bench.connection, topic, follow=True)
    assert (await anext(records)).value == b"a"
    write(bench, topic, b"b")
    assert (await anext(records)).value == b"b"
    await records.aclose()


async def test_a_cluster_that_is_away_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules[tail.__module__], "_LOOK_UP_S", 0.5)
    nowhere = KafkaConnection("127.0.0.1:9", "test")
    with pytest.raises(BusError, match="look up the log"):
        await anext(tail(nowhere, "nothing"))


async def test_a_header_name_that_is_not_utf8_hides_no_record(
    kafka: str, bench: KafkaBench
) -> None:
    topic = make_topic(bench)
    write(bench, topic, b"a")
    write_unreadable(kafka, topic, b"foreign")
    write(bench, topic, b"b")

    records = [one async for one in tail(bench.connection, topic)]

    assert [one.value for one in records] == [b"a", b"foreign", b"b"]
    assert records[1].headers == list(UNREADABLE_HEADERS)
