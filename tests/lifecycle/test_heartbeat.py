import threading
from queue import SimpleQueue

import pytest

from headrace.broker import NewTopic, Record
from headrace.clock import SystemClock
from headrace.delivery.logtime import LogClock
from headrace.errors import BusError
from headrace.lifecycle import Heartbeat, Pulse, StatusReader
from headrace.testing import ManualClock, MemoryBroker, Outage
from tests.broker.bench import Bench, KafkaBench, MemoryBench

PATIENCE_S = 40


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def bench(request: pytest.FixtureRequest, prefix: str) -> Bench:
    if request.param == "memory":
        return MemoryBench(prefix)
    return KafkaBench(request.getfixturevalue("kafka"), prefix)


def make_status(bench: Bench) -> str:
    topic = f"{bench.prefix}status"
    config = {"message.timestamp.type": "LogAppendTime"}
    bench.admin().create_topics([NewTopic(topic, 1, config)], PATIENCE_S)
    return topic


def fail(error: BusError) -> None:
    raise error


def test_heartbeats_are_read_back_and_teach_the_logs_clock(bench: Bench) -> None:
    topic = make_status(bench)
    pulse = Pulse(SystemClock())
    log_clock = LogClock()
    said: list[bytes] = []

    def payload() -> bytes:
        pulse.beat()
        said.append(b"%d" % len(said))
        return said[-1]

    heartbeat = Heartbeat(
        bench.producer(),
        topic,
        b"ingress/0",
        payload,
        pulse=pulse,
        clock=SystemClock(),
        log_time=log_clock,
    )
    batches: SimpleQueue[list[Record]] = SimpleQueue()
    status = StatusReader(bench.reader(), topic, batches.put, fail)
    status.start()
    heartbeat.start()
    heard: list[Record] = []
    while len(heard) < 3:
        heard += batches.get(timeout=PATIENCE_S)
    heartbeat.stop()
    status.stop()

    assert [(one.key, one.value) for one in heard] == [
        (b"ingress/0", b"%d" % number) for number in range(len(heard))
    ]
    assert log_clock.is_set
    first_us = log_clock.to_mono(heard[0].timestamp_us)
    assert abs(SystemClock().now_us() - first_us) < PATIENCE_S * 1_000_000


class Ticking:
    """A broker, and a heartbeat whose thread a test drives by its payload."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = MemoryBroker(self.clock)
        self.broker.admin().create_topics([NewTopic("status", 1, {})], 1)
        self.pulse = Pulse(self.clock)
        self.asked = threading.Semaphore(0)
        self.value: bytes | None = b"alive"
        self.heartbeat = Heartbeat(
            self.broker.producer(),
            "status",
            b"key",
            self.payload,
            pulse=self.pulse,
            clock=self.clock,
            log_time=LogClock(),
        )

    def payload(self) -> bytes | None:
        self.asked.release()
        return self.value

    def beats(self) -> int:
        return len(self.broker.records("status"))


def test_a_loop_that_does_not_turn_is_not_spoken_for() -> None:
    ticking = Ticking()
    ticking.heartbeat.start()
    assert ticking.asked.acquire(timeout=PATIENCE_S)

    for _ in range(5):
        ticking.clock.advance(250_000)
    assert not ticking.asked.acquire(timeout=0.3)

    ticking.pulse.beat()
    ticking.clock.advance(250_000)
    assert ticking.asked.acquire(timeout=PATIENCE_S)
    ticking.heartbeat.stop()


def test_who_has_nothing_to_say_is_silent() -> None:
    ticking = Ticking()
    ticking.value = None
    ticking.heartbeat.start()
    assert ticking.asked.acquire(timeout=PATIENCE_S)
    ticking.heartbeat.stop()
    assert ticking.beats() == 0


def test_the_last_state_is_said_at_the_end() -> None:
    ticking = Ticking()
    ticking.heartbeat.start()
    assert ticking.asked.acquire(timeout=PATIENCE_S)
    ticking.value = b"draining"
    ticking.heartbeat.stop()
    assert [one.value for one in ticking.broker.records("status")] == [
        b"alive",
        b"draining",
    ]


def test_a_reader_of_status_starts_a_little_way_back() -> None:
    broker = MemoryBroker(ManualClock())
    broker.admin().create_topics([NewTopic("status", 1, {})], 1)
    producer = broker.producer()
    for number in range(5000):
        producer.produce("status", 0, b"%d" % number)
        producer.poll(0)
    batches: SimpleQueue[list[Record]] = SimpleQueue()
    status = StatusReader(broker.reader(), "status", batches.put, fail)
    status.start()
    first = batches.get(timeout=PATIENCE_S)[0]
    status.stop()
    assert first.value == b"3000"


def test_a_reader_of_status_waits_for_a_log_that_does_not_answer_yet() -> None:
    broker = MemoryBroker(ManualClock())
    broker.admin().create_topics([NewTopic("status", 1, {})], 1)
    broker.outage = Outage.DEAF
    batches: SimpleQueue[list[Record]] = SimpleQueue()
    errors: SimpleQueue[BusError] = SimpleQueue()
    status = StatusReader(broker.reader(), "status", batches.put, errors.put)
    status.start()
    assert errors.get(timeout=PATIENCE_S).code == "_TIMED_OUT"
    broker.outage = None
    broker.producer().produce("status", 0, b"heard")
    assert [one.value for one in batches.get(timeout=PATIENCE_S)] == [b"heard"]
    status.stop()
