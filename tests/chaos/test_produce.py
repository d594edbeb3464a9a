"""Rule A3: where a record lies whose produce timed out."""

from __future__ import annotations

import itertools
import time

import pytest

from headrace.broker import Delivery, Producer, TopicPartition
from headrace.errors import BusTimeout
from tests.broker.bench import PATIENCE_S, KafkaBench, make_topic, read, values
from tests.chaos.proxy import Direction
from tests.chaos.stand import Stand

pytestmark = pytest.mark.kafka

TIMEOUT_MS = 500
LANDS_WITHIN_S = 0.3
"""Bytes that a proxy held back reach the broker long before."""


@pytest.mark.parametrize(
    ("direction", "is_cut"),
    [
        (Direction.TO_BROKER, False),
        (Direction.TO_BROKER, True),
        (Direction.FROM_BROKER, False),
    ],
)
def test_a_record_that_timed_out_lies_before_the_next_that_is_acked_or_nowhere(
    stand: Stand, direction: Direction, *, is_cut: bool
) -> None:
    """The platform beside it stands still meanwhile, too."""
    bench = KafkaBench(stand.platform.document.bootstrap_servers, "far.")
    proxy = stand.proxy
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
