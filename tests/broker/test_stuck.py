"""A reader to which nothing comes although something is there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import cast

import pytest

from headrace.broker import (
    KafkaReader,
    LogRange,
    Reader,
    ReaderThread,
    Record,
    TopicPartition,
)
from headrace.broker.reader import at
from headrace.broker.stuck import UNANSWERED, StuckWatch, Verdict
from headrace.broker.threads import ReaderStuck
from headrace.errors import BusError
from tests.broker.bench import PATIENCE_S, KafkaBench, make_topic, read, values, write
from tests.broker.test_threads import taken


@pytest.fixture
def real(kafka: str, prefix: str) -> Iterator[KafkaBench]:
    made = KafkaBench(kafka, prefix)
    yield made
    made.close()


Positions = dict[TopicPartition, int]
Ranges = dict[TopicPartition, LogRange]
ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
LOG = {ONE: LogRange(5, 10), OTHER: LogRange(0, 0)}


@pytest.mark.parametrize(
    "looks",
    [
        [({ONE: 10, OTHER: 0}, LOG)] * 5,  # nothing is there
        [({ONE: 7}, LOG), ({ONE: 8}, LOG), ({ONE: 9}, LOG)],  # it goes on
        [({ONE: 7}, LOG), ({ONE: 7}, None)] * 4,  # the log does not answer
        [({ONE: 4}, LOG)] * 5,  # retention passed it: an event tells
        [({ONE: 11}, LOG)] * 5,  # the log was cut: an event tells
        [({}, LOG)] * 5,
        [({ONE: 7}, LOG)],
    ],
)
def test_what_is_no_fault_of_the_reader_is_fine(
    looks: list[tuple[Positions, Ranges | None]],
) -> None:
    watch = StuckWatch()

    assert {watch.look(*each) for each in looks} == {Verdict.FINE}


def test_what_lies_unread_at_two_looks_asks_for_a_new_client_then_process() -> None:
    watch = StuckWatch()

    verdicts = [watch.look({ONE: 7, OTHER: 0}, LOG) for _ in range(4)]

    assert verdicts == [Verdict.FINE, Verdict.RESTART, Verdict.FINE, Verdict.GIVE_UP]


def test_a_client_without_answers_is_made_anew_and_no_process_is_given_up() -> None:
    watch = StuckWatch()

    verdicts = [watch.look({ONE: 7}, None) for _ in range(3 * UNANSWERED)]

    once = [Verdict.FINE] * (UNANSWERED - 1) + [Verdict.RESTART]
    assert verdicts == 3 * once


def test_a_record_after_the_restart_ends_the_suspicion() -> None:
    watch = StuckWatch()
    for _ in range(2):
        watch.look({ONE: 7}, LOG)

    watch.delivered()

    verdicts = [watch.look({ONE: 8}, LOG) for _ in range(2)]
    assert verdicts == [Verdict.FINE, Verdict.RESTART]


def test_a_client_that_the_log_answers_no_more_is_made_anew() -> None:
    one = TopicPartition("t", 0)
    made_anew = threading.Event()

    class Refused:
        """Reads nothing, and is refused what it asks."""

        def read(self, records_max: int, timeout_s: float) -> list[Record]:
            del records_max, timeout_s
            return []

        def positions(self) -> Positions:
            return {one: 7}

        def log_ranges(self, *_: object) -> Ranges:
            raise BusError("refused", code="UNKNOWN_LEADER_EPOCH")

        def restart(self) -> None:
            made_anew.set()

        def close(self) -> None: ...

    thread = ReaderThread("test", cast(Reader, Refused()), print, print, look_s=0.01)
    thread.start()

    assert made_anew.wait(PATIENCE_S)
    thread.stop()


def test_a_reader_of_nothing_is_left_alone() -> None:
    looks = threading.Semaphore(0)

    class Idle:
        def read(self, records_max: int, timeout_s: float) -> list[Record]:
            del records_max, timeout_s
            return []

        def positions(self) -> Positions:
            looks.release()
            return {}

        def restart(self) -> None:
            raise AssertionError("it lacks nothing")

        def close(self) -> None: ...

    failed: list[threading.ExceptHookArgs] = []
    hook, threading.excepthook = threading.excepthook, failed.append
    thread = ReaderThread("test", cast(Reader, Idle()), print, print, look_s=0.01)
    thread.start()
    for _ in range(2 * UNANSWERED):
        assert looks.acquire(timeout=PATIENCE_S)
    thread.stop()
    threading.excepthook = hook

    assert failed == []


@pytest.mark.kafka
def test_a_client_that_gets_nothing_is_made_anew_where_it_was(
    real: KafkaBench,
) -> None:
    topic = make_topic(real, partitions=2)
    write(real, topic, b"a")
    reader = KafkaReader(real.connection)
    one, paused = TopicPartition(topic, 0), TopicPartition(topic, 1)
    batches: SimpleQueue[list[Record]] = SimpleQueue()
    errors: SimpleQueue[BusError] = SimpleQueue()
    # Two looks at the new client, too, must find it with something.
    thread = ReaderThread("test", reader, batches.put, errors.put, look_s=1.0)
    thread.do(lambda reader: reader.assign({one: 0, paused: 0}))
    thread.do(lambda reader: reader.pause([paused]))
    thread.start()
    assert taken(batches, 1) == [b"a"]

    # Behind the reader's back, as if the client had lost its way.
    client = reader._client  # noqa: SLF001 - nobody else can lead it astray
    thread.do(lambda _reader: client.pause([at(one)]))
    write(real, topic, b"b")
    write(real, topic, b"held", partition=1)

    assert taken(batches, 1) == [b"b"]
    assert batches.empty()
    thread.do(lambda reader: reader.resume([paused]))
    assert taken(batches, 1) == [b"held"]
    assert errors.empty()
    thread.stop()


class _Deaf(KafkaReader):
    """No client of its gets anything."""

    def read(self, records_max: int, timeout_s: float) -> list[Record]:
        del records_max
        threading.Event().wait(timeout_s)
        return []


@pytest.mark.kafka
def test_a_reader_that_a_new_client_does_not_help_ends_its_thread(
    real: KafkaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(real)
    write(real, topic, b"a")
    ended: SimpleQueue[threading.ExceptHookArgs] = SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", ended.put)
    reader = _Deaf(real.connection)
    reader.assign({TopicPartition(topic, 0): 0})
    thread = ReaderThread("deaf", reader, print, print, look_s=0.1)
    thread.start()

    why = ended.get(timeout=PATIENCE_S)

    assert why.exc_type is ReaderStuck
    assert "reader deaf" in str(why.exc_value)


@pytest.mark.kafka
def test_a_reader_keeps_its_positions_over_a_restart(
    real: KafkaBench,
) -> None:
    topic = make_topic(real)
    write(real, topic, b"a", b"b", b"c")
    reader = KafkaReader(real.connection)
    one = TopicPartition(topic, 0)
    reader.assign({one: 1})
    assert reader.positions() == {one: 1}
    reader.restart()
    assert values(read(reader, 2)) == [b"b", b"c"]
    assert reader.positions() == {one: 3}

    reader.restart()
    write(real, topic, b"d")

    assert values(read(reader, 1)) == [b"d"]
    reader.close()
