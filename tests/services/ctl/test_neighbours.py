"""A second platform on the topics of one that runs."""

from __future__ import annotations

import threading
import time

import pytest

from headrace.broker import KafkaAdmin, KafkaConnection, KafkaProducer, NewTopic, Record
from headrace.wire import Heartbeat, Role, ServiceState, Topics, encode_json
from services.ctl import neighbours
from services.ctl.errors import UsageError
from services.ctl.neighbours import new_heartbeats, refuse_beside_another


def a_heartbeat(instance: str, slot: int = 0) -> bytes:
    return encode_json(
        Heartbeat(
            role=Role.GPU_WORKER,
            slot=slot,
            instance=instance,
            state=ServiceState.READY,
            host="over-there",
            pid=4711,
        )
    )


def record(offset: int, value: bytes | None) -> Record:
    return Record("headrace.status", 0, offset, 0, b"gpu_worker/0", value, [])


def test_who_beats_is_told_from_who_has_beaten() -> None:
    before = [record(0, a_heartbeat("a" * 32)), record(1, a_heartbeat("b" * 32, 1))]
    later = [
        record(2, a_heartbeat("b" * 32, 1)),
        record(3, b"no json"),
        record(4, None),
        record(5, a_heartbeat("b" * 32, 1)),
    ]

    (beating,) = new_heartbeats(before, before + later)

    assert (beating.instance, beating.slot) == ("b" * 32, 1)
    assert new_heartbeats(before, before) == []


@pytest.mark.kafka
def test_a_platform_is_refused_beside_one_that_beats_and_not_after_one_that_has(
    kafka: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "_LISTEN_S", 2.0)
    topics = Topics(prefix.rstrip("."))
    connection = KafkaConnection(kafka, "test")
    said: list[str] = []
    refuse_beside_another(connection, topics, said.append)
    assert said == []

    KafkaAdmin(connection).create_topics([NewTopic(topics.status, 1, {})], 10)
    producer = KafkaProducer(connection)

    def beat() -> None:
        producer.produce(topics.status, 0, a_heartbeat("a" * 32), key=b"gpu_worker/0")
        producer.flush(5)

    beat()
    refuse_beside_another(connection, topics, said.append)
    assert len(said) == 1

    ended = threading.Event()

    def live() -> None:
        while not ended.is_set():
            beat()
            time.sleep(0.1)

    monkeypatch.setattr(neighbours, "_LISTEN_S", 30.0)
    living = threading.Thread(target=live)
    living.start()
    try:
        with pytest.raises(UsageError) as refused:
            refuse_beside_another(connection, topics, said.append)
    finally:
        ended.set()
        living.join()
    assert str(refused.value) == (
        f"Another platform of prefix {topics.prefix} runs on the Kafka at {kafka} "
        "(gpu-worker.0, process 4711 on over-there), and two would fence each other: "
        "stop it, or start this one with another prefix, such as "
        f"HEADRACE_BUS__PREFIX={topics.prefix}-2."
    )
