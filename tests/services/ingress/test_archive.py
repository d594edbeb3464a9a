"""Looks at single records: together, once, and no more of them than may wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence

import pytest

from headrace.broker import LogRange, Reader, Record, TopicPartition
from headrace.domain import Source
from headrace.errors import BusError
from headrace.testing import ManualClock, MemoryBroker, Outage
from headrace.wire import NewTopic
from services.ingress import archive as archive_module
from services.ingress.archive import Archive, Gone

HERE = TopicPartition("results.t", 0)
RECORDS = 200


class Slow:
    """A reader whose first answer waits for ``go``; its questions are counted."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.go = threading.Event()
        self.looks = 0
        self.assigned: list[Mapping[TopicPartition, int]] = []

    def log_ranges(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, LogRange]:
        self.looks += 1
        assert self.go.wait(10)
        return self._reader.log_ranges(partitions, timeout_s)

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self.assigned.append(positions)
        self._reader.assign(positions)

    def __getattr__(self, name: str) -> object:
        return getattr(self._reader, name)


class Scene:
    def __init__(self) -> None:
        self.broker = MemoryBroker(ManualClock())
        admin = self.broker.admin()
        admin.create_topics([NewTopic(HERE.topic, 2, {})], 1)
        producer = self.broker.producer()
        for number in range(RECORDS):
            producer.produce(HERE.topic, 0, b"%d" % number)
        producer.produce(HERE.topic, 1, b"other")
        producer.flush(1)
        self.reader = Slow(self.broker.reader())
        self.archive = Archive(self.reader, admin, self.broker.clock)  # type: ignore[arg-type] # the rest is the reader's


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.reader.go.set()
    made.archive.close()


def place(offset: int, partition: int = 0) -> Source:
    return Source(HERE.topic, partition, offset)


def started(look: Coroutine[None, None, Record | Gone]) -> asyncio.Task[Record | Gone]:
    return asyncio.get_running_loop().create_task(look)


def value(found: Record | Gone) -> bytes | None:
    assert isinstance(found, Record)
    return found.value


async def test_a_crowd_waits_for_two_looks(scene: Scene) -> None:
    looks = [started(scene.archive.look(place(3)))]
    await asyncio.sleep(0)
    looks += [
        started(scene.archive.look(place(number % 100))) for number in range(1000)
    ]
    await asyncio.sleep(0)
    scene.reader.go.set()

    found = await asyncio.gather(*looks)

    wanted = [3, *(number % 100 for number in range(1000))]
    assert [value(each) for each in found] == [b"%d" % number for number in wanted]
    assert scene.reader.looks == 2


async def test_what_was_read_of_late_is_not_read_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.reader.go.set()
    await scene.archive.look(place(7))
    assert value(await scene.archive.look(place(7))) == b"7"
    assert scene.reader.looks == 1
    # Room for one value: the one before it is forgotten.
    monkeypatch.setattr(archive_module, "RECENT_BYTES_MAX", 1)
    await scene.archive.look(place(8))
    await scene.archive.look(place(8))
    await scene.archive.look(place(7))
    assert scene.reader.looks == 3


async def test_near_places_are_read_over_and_far_ones_are_skipped_to(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that the read of the near ones does not bring the far one along.
    monkeypatch.setattr("headrace.broker.spans.RECORDS_MAX", 50)
    scene.reader.go.set()
    found = scene.archive.at([place(0), place(20), place(150)])
    assert {each: value(record) for each, record in found.items()} == {
        place(0): b"0",
        place(20): b"20",
        place(150): b"150",
    }
    assert scene.reader.assigned == [{HERE: 0}, {HERE: 150}]


async def test_places_of_several_partitions_are_read_together(scene: Scene) -> None:
    scene.reader.go.set()
    found = scene.archive.at([place(20), place(0, 1)])
    assert {each: value(record) for each, record in found.items()} == {
        place(20): b"20",
        place(0, 1): b"other",
    }
    assert scene.reader.assigned == [{HERE: 20, HERE._replace(partition=1): 0}]


async def test_what_is_not_there_hides_nothing_that_is(scene: Scene) -> None:
    scene.reader.go.set()
    scene.broker.delete_records(HERE, 10)
    looks = [
        scene.archive.look(each)
        for each in (place(9), place(RECORDS), Source("no.such", 0, 0), place(11))
    ]
    *gone, there = await asyncio.gather(*looks)
    assert gone == [Gone.FORGOTTEN, Gone.NEVER_WAS, Gone.NEVER_WAS]
    assert value(there) == b"11"


async def test_a_client_without_a_broker_does_not_say_that_nothing_ever_was(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it then says of a partition that exists is what it says of others, too."""
    scene.reader.go.set()

    def lost(*_: object) -> None:
        raise BusError("Local: Unknown partition", code="_UNKNOWN_PARTITION")

    with monkeypatch.context() as patch:
        patch.setattr(scene.reader, "log_ranges", lost)
        with pytest.raises(BusError, match="Unknown partition"):
            await scene.archive.look(place(1))
        assert await scene.archive.look(Source("no.such", 0, 0)) is Gone.NEVER_WAS
        assert await scene.archive.look(place(0, 2)) is Gone.NEVER_WAS
    assert value(await scene.archive.look(place(1))) == b"1"


async def test_who_leaves_does_not_end_the_look_of_others(scene: Scene) -> None:
    leaving, staying = (started(scene.archive.look(place(5))) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    scene.reader.go.set()
    assert value(await staying) == b"5"


async def test_no_more_looks_wait_than_may(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_module, "LOOKS_MAX", 2)
    looks = [started(scene.archive.look(place(n))) for n in range(4)]
    await asyncio.sleep(0)
    scene.reader.go.set()
    found = await asyncio.gather(*looks, return_exceptions=True)
    # One is under way and two wait.
    assert [isinstance(each, BusError) for each in found] == [False] * 3 + [True]


async def test_a_log_that_does_not_answer_is_told_to_all_who_wait(
    scene: Scene,
) -> None:
    scene.reader.go.set()
    scene.broker.outage = Outage.DEAF
    looks = [started(scene.archive.look(place(n))) for n in range(3)]
    found = await asyncio.gather(*looks, return_exceptions=True)
    assert all(isinstance(each, BusError) for each in found)
    scene.broker.outage = None
    assert value(await scene.archive.look(place(1))) == b"1"


async def test_a_fault_of_our_own_is_told_to_who_waits_and_stops_no_later_look(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.reader.go.set()
    with monkeypatch.context() as patch:
        patch.setattr(scene.reader, "log_ranges", lambda *_: {}[""])
        with pytest.raises(KeyError):
            await scene.archive.look(place(1))
    assert value(await scene.archive.look(place(1))) == b"1"
