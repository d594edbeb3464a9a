"""Rule A3: where a record lies whose produce timed out."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.broker import Delivery, Producer, TopicPartition
from headrace.embedded import EmbeddedKafka, KafkaSettings
from headrace.errors import BusTimeout
from tests.broker.bench import PATIENCE_S, KafkaBench, make_topic, read, values
from tests.chaos.proxy import Direction, Proxy

pytestmark = pytest.mark.kafka

TIMEOUT_MS = 1_000
LANDS_WITHIN_S = 0.5
"""Bytes that a proxy held back reach the broker long before."""


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaBench, Proxy]]:
    """A broker behind a proxy."""
    proxy = Proxy()
    folder: Path = tmp_path_factory.mktemp("far") / "kafka"
    settings = KafkaSettings(folder=folder, advertised_port=proxy.port)
    with EmbeddedKafka(settings) as running:
        proxy.lead_to(int(running.bootstrap_servers.rpartition(":")[2]))
        yield KafkaBench(f"127.0.0.1:{proxy.port}", "far."), proxy
    proxy.close()


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("direction", Direction)
def test_a_record_that_timed_out_lies_before_the_next_that_is_acked_or_nowhere(
    far: tuple[KafkaBench, Proxy], direction: Direction, *, is_cut: bool
) -> None:
    bench, proxy = far
    topic = make_topic(bench, f"a3-{direction.name.lower()}-{is_cut}")
    reader, producer = bench.reader(), bench.producer(timeout_ms=TIMEOUT_MS)
    acked(producer, topic, "before")

    proxy.stall(direction)
    assert not sent(producer, topic, b"doubtful")
    if is_cut:
        proxy.cut()
    proxy.flow()
    after = acked(producer, topic, "after")
    time.sleep(LANDS_WITHIN_S)
    end = acked(bench.producer(), topic, "end")

    there = TopicPartition(topic, 0)
    reader.assign({there: 0})
    found = values(read(reader, reader.log_range(there, PATIENCE_S).end))
    assert found[-2:] == [after, end]
    assert len(found) == len(set(found))
    if direction is Direction.FROM_BROKER:
        # The broker had it: only the acknowledgement was on its way.
        assert b"doubtful" in found


def acked(producer: Producer, topic: str, name: str) -> bytes:
    """The first of ``name 0``, ``name 1``... that the log acknowledged."""
    values = (f"{name} {number}".encode() for number in itertools.count())
    return next(value for value in values if sent(producer, topic, value))


def sent(producer: Producer, topic: str, value: bytes) -> bool:
    """Whether it was acked; any other end than a time-out is an error."""
    ends: list[Delivery] = []
    producer.produce(topic, 0, value, on_delivery=ends.append)
    deadline = time.monotonic() + PATIENCE_S
    while not ends:
        assert time.monotonic() < deadline
        producer.poll(0.1)
    error = ends[0].error
    assert error is None or isinstance(error, BusTimeout)
    return error is None
