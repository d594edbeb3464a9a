"""Single records, read back with a reader of the caller's, for every log."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headrace.broker import (
    KafkaConnection,
    KafkaReader,
    TopicPartition,
    read_kept,
    read_places,
)
from headrace.clock import SystemClock
from headrace.errors import BusError
from tests.broker.bench import Bench, MemoryBench, make_topic, read, values, write

US_MAX = 10_000_000


def test_records_are_read_back_by_offset_near_and_far(bench: Bench) -> None:
    topic = make_topic(bench, partitions=2)
    write(bench, topic, *(b"%d" % number for number in range(60)))
    write(bench, topic, b"x", b"y", partition=1)
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    reader = bench.reader()
    wanted = {one: [55, 0, 3, 3, 20, 23], two: [1]}

    found = [
        (record.partition, record.offset, record.value)
        for record in read_places(
            reader, wanted, us_max=US_MAX, clock=SystemClock(), near=3
        )
    ]

    assert sorted(found) == [
        *((0, offset, b"%d" % offset) for offset in (0, 3, 20, 23, 55)),
        (1, 1, b"y"),
    ]
    # The reader has nothing left of it, and may read on elsewhere.
    reader.assign({two: 0})
    assert values(read(reader, 2)) == [b"x", b"y"]


def test_what_was_found_behind_a_span_is_not_read_again(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = MemoryBench(prefix)
    topic = make_topic(bench)
    write(bench, topic, *(b"%d" % number for number in range(60)))
    one = TopicPartition(topic, 0)
    reader = bench.reader()
    assign = reader.assign
    began: list[Mapping[TopicPartition, int]] = []

    def watched(positions: Mapping[TopicPartition, int]) -> None:
        began.append(positions)
        assign(positions)

    monkeypatch.setattr(reader, "assign", watched)
    found = read_places(
        reader, {one: [55, 0, 20]}, us_max=US_MAX, clock=SystemClock(), near=3
    )

    assert values(list(found)) == [b"0", b"20", b"55"]
    assert began == [{one: 0}]


def test_what_the_log_does_not_have_is_left_out(bench: Bench) -> None:
    topic = make_topic(bench)
    write(bench, topic, b"a", b"b", b"c")
    partition = TopicPartition(topic, 0)
    bench.cut(partition, 1)

    records = read_kept(
        bench.reader(), {partition: [0, 2, 1, 7]}, us_max=US_MAX, clock=SystemClock()
    )

    assert sorted(values(list(records))) == [b"b", b"c"]


def test_nothing_wanted_is_nothing_found(bench: Bench) -> None:
    assert [*read_kept(bench.reader(), {}, us_max=US_MAX, clock=SystemClock())] == []


@pytest.mark.kafka
def test_a_log_that_does_not_answer_is_an_error_not_a_loss() -> None:
    reader = KafkaReader(KafkaConnection("127.0.0.1:1", "test"))
    place = {TopicPartition("t", 0): [0]}

    with pytest.raises(BusError):
        list(read_kept(reader, place, us_max=500_000, clock=SystemClock()))
    reader.close()
