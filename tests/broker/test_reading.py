"""The contract of a reader, for every log."""

import time

import pytest

from headrace.broker import LogRange, TopicPartition
from headrace.errors import BusError, OffsetOutOfRange
from headrace.wire.headers import UNREADABLE_HEADERS
from tests.broker.bench import (
    PATIENCE_S,
    Bench,
    KafkaBench,
    make_topic,
    read,
    values,
    write,
)
from tests.broker.foreign import write_unreadable


def test_nothing_to_read_is_an_empty_list(bench: Bench) -> None:
    reader = bench.reader()
    assert reader.read(10, 0.05) == []
    reader.assign({TopicPartition(make_topic(bench), 0): 0})
    assert reader.read(10, 0.05) == []


def test_one_record_is_returned_without_waiting_for_more(bench: Bench) -> None:
    topic = make_topic(bench)
    write(bench, topic, b"only")
    reader = bench.reader()
    reader.assign({TopicPartition(topic, 0): 0})
    # A reader that waited for a thousand would take the test's whole time limit.
    assert values(reader.read(1000, 1000)) == [b"only"]


def test_a_read_takes_no_more_than_asked_and_loses_nothing(bench: Bench) -> None:
    topic = make_topic(bench)
    write(bench, topic, b"a", b"b", b"c", b"d", b"e")
    reader = bench.reader()
    reader.assign({TopicPartition(topic, 0): 0})

    batches = [values(reader.read(2, PATIENCE_S)) for _ in range(3)]

    assert max(map(len, batches)) <= 2
    left = 5 - sum(map(len, batches))
    rest = values(read(reader, left))
    assert [*batches[0], *batches[1], *batches[2], *rest] == [
        *(b"a", b"b", b"c", b"d", b"e")
    ]


def test_reading_starts_at_the_given_offset(bench: Bench) -> None:
    topic = make_topic(bench, partitions=2)
    write(bench, topic, b"a", b"b", b"c")
    write(bench, topic, b"x", b"y", partition=1)
    reader = bench.reader()
    reader.assign({TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 1})
    assert sorted(values(read(reader, 2))) == [b"c", b"y"]


def test_assigning_again_moves_the_position_back(bench: Bench) -> None:
    topic = make_topic(bench)
    write(bench, topic, b"a", b"b", b"c")
    reader = bench.reader()
    reader.assign({TopicPartition(topic, 0): 0})
    # One at a time, so that the rest lies read ahead when the position moves.
    assert values(reader.read(1, PATIENCE_S)) == [b"a"]

    reader.assign({TopicPartition(topic, 0): 0})

    assert values(read(reader, 3)) == [b"a", b"b", b"c"]


def test_assigning_a_partition_leaves_the_others_where_they_are(bench: Bench) -> None:
    topic = make_topic(bench, partitions=2)
    write(bench, topic, b"a", b"b")
    reader = bench.reader()
    reader.assign({TopicPartition(topic, 0): 0})
    assert values(reader.read(1, PATIENCE_S)) == [b"a"]

    write(bench, topic, b"x", partition=1)
    reader.assign({TopicPartition(topic, 1): 0})

    assert sorted(values(read(reader, 2))) == [b"b", b"x"]


def test_an_unassigned_partition_is_not_read(bench: Bench) -> None:
    topic = make_topic(bench, partitions=2)
    write(bench, topic, b"a", b"b")
    reader = bench.reader()
    reader.assign({TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0})
    assert values(reader.read(1, PATIENCE_S)) == [b"a"]

    reader.unassign([TopicPartition(topic, 0)])
    write(bench, topic, b"x", partition=1)

    assert values(read(reader, 1)) == [b"x"]
    assert reader.read(10, 0.2) == []


def test_a_paused_partition_goes_on_where_it_stood(bench: Bench) -> None:
    topic = make_topic(bench)
    write(bench, topic, b"a", b"b", b"c")
    reader = bench.reader()
    reader.assign({TopicPartition(topic, 0): 0})
    assert values(reader.read(1, PATIENCE_S)) == [b"a"]

    reader.pause([TopicPartition(topic, 0)])
    assert reader.read(10, 0.3) == []
    reader.resume([TopicPartition(topic, 0)])

    assert values(read(reader, 2)) == [b"b", b"c"]


def test_an_assignment_ends_a_pause(bench: Bench) -> None:
    topic = make_topic(bench)
    write(bench, topic, b"a")
    reader = bench.reader()
    reader.assign({TopicPartition(topic, 0): 0})
    reader.pause([TopicPartition(topic, 0)])
    reader.assign({TopicPartition(topic, 0): 0})
    assert values(read(reader, 1)) == [b"a"]


def test_a_position_at_the_end_waits_for_what_comes(bench: Bench) -> None:
    topic = make_topic(bench)
    write(bench, topic, b"old")
    reader = bench.reader()
    reader.assign({TopicPartition(topic, 0): 1})
    assert reader.read(10, 0.1) == []
    write(bench, topic, b"new")
    assert values(read(reader, 1)) == [b"new"]


@pytest.mark.parametrize("position", [0, 99], ids=["before", "behind"])
def test_a_position_outside_the_log_is_told_once_and_then_silent(
    bench: Bench, position: int
) -> None:
    topic = make_topic(bench)
    write(bench, topic, b"a", b"b", b"c")
    bench.cut(TopicPartition(topic, 0), 2)
    reader = bench.reader()
    reader.assign({TopicPartition(topic, 0): position})

    with pytest.raises(OffsetOutOfRange) as told:
        reader.read(10, PATIENCE_S)
    assert (told.value.topic, told.value.partition) == (topic, 0)
    assert reader.read(10, 0.3) == []

    reader.assign({TopicPartition(topic, 0): 2})
    assert values(read(reader, 1)) == [b"c"]


def test_a_position_outside_the_log_stops_no_other_partition(bench: Bench) -> None:
    topic = make_topic(bench, partitions=2)
    write(bench, topic, b"a", b"b")
    reader = bench.reader()
    reader.assign({TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 7})
    seen, told, again = [], 0, 3
    give_up_at = time.monotonic() + PATIENCE_S
    while again and time.monotonic() < give_up_at:
        # Once all has come, a few more reads: neither comes twice.
        again -= told > 0 and len(seen) > 1
        try:
            seen += reader.read(10, 0.2)
        except OffsetOutOfRange:
            told += 1
    assert (values(seen), told) == ([b"a", b"b"], 1)


def test_a_log_range_follows_appends_and_cuts(bench: Bench) -> None:
    topic = make_topic(bench, partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    reader = bench.reader()
    assert reader.log_range(first, PATIENCE_S) == LogRange(0, 0)

    write(bench, topic, b"a", b"b", b"c")
    bench.cut(first, 2)

    assert reader.log_range(first, PATIENCE_S) == LogRange(2, 3)
    assert reader.log_ranges([first, second], PATIENCE_S) == {
        first: LogRange(2, 3),
        second: LogRange(0, 0),
    }
    bench.cut(first, 3)
    assert reader.log_range(first, PATIENCE_S) == LogRange(3, 3)


def test_offsets_since_an_instant_are_those_of_the_first_record_after_it(
    bench: Bench,
) -> None:
    topic = make_topic(bench, partitions=2)
    full, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    write(bench, topic, b"a", b"b")
    reader = bench.reader()
    reader.assign({full: 0})
    first, last = read(reader, 2)

    def since(us: int) -> dict[TopicPartition, int]:
        return reader.offsets_since([full, empty], us, PATIENCE_S)

    assert since(0) == {full: 0, empty: 0}
    assert since(first.timestamp_us)[full] == 0
    assert since(last.timestamp_us + 1_000) == {full: 2, empty: 0}


def test_the_log_range_of_no_topic_is_an_error(bench: Bench) -> None:
    with pytest.raises(BusError):
        bench.reader().log_range(TopicPartition(f"{bench.prefix}none", 0), 2.0)


def test_what_is_not_assigned_is_passed_over(bench: Bench) -> None:
    topic = make_topic(bench, partitions=2)
    write(bench, topic, b"a")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    reader = bench.reader()
    reader.pause([second])
    reader.resume([second])
    reader.unassign([second])
    reader.assign({first: 0})
    reader.unassign([second])
    reader.pause([second])
    assert values(read(reader, 1)) == [b"a"]


@pytest.mark.kafka
def test_headers_that_cannot_be_read_stop_no_reader(kafka: str, prefix: str) -> None:
    bench = KafkaBench(kafka, prefix)
    topic = make_topic(bench)
    # So many that the interpreter has specialised the code that reads them.
    before = [b"%d" % each for each in range(200)]
    write(bench, topic, *before)
    write_unreadable(kafka, topic, b"foreign", {"ce_id": "one"})
    write(bench, topic, b"after")
    reader = bench.reader()
    reader.assign({TopicPartition(topic, 0): 0})

    records = read(reader, 202)

    assert values(records) == [*before, b"foreign", b"after"]
    assert [one.headers for one in records[199:]] == [[], list(UNREADABLE_HEADERS), []]
    bench.close()
