"""The threads at the edge: readers that move, and a group that takes lanes away."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import pytest

from headrace.broker import (
    KafkaLeader,
    KafkaReader,
    LogRange,
    Record,
    TopicPartition,
)
from headrace.broker.threads import LOOK_S, LOOK_TIMEOUT_S
from headrace.clock import SystemClock
from headrace.delivery.decisions import Commit, CommitEntry
from headrace.delivery.events import CommitEnded, CommitOutcome, PositionsFetched
from services.batch_former.consuming import Consuming
from services.batch_former.inbox import Channel, Inbox
from services.batch_former.main import DEFAULT, SELDOM
from services.batch_former.messages import (
    Asked,
    LanesAssigned,
    LanesLost,
    LanesRevoked,
    Message,
    OutOfRange,
    ReadBatch,
)
from services.batch_former.ownership import Ownership
from services.batch_former.tiers import READING, Reading
from tests.services.batch_former.pool import MODEL, Pool, until

pytestmark = pytest.mark.kafka


M = TypeVar("M", bound=Message)


class Ear:
    """Everything that an inbox got, as far as it was looked at."""

    def __init__(self, inbox: Inbox[Message]) -> None:
        self._inbox = inbox
        self.heard: list[Message] = []

    def hears(self, message: Message) -> None:
        self.hears_a(type(message), lambda heard: heard == message)

    def hears_a(
        self, kind: type[M], is_meant: Callable[[M], bool] = lambda _: True
    ) -> M:
        """The first message of this kind that is meant."""

        def look() -> M | None:
            self.heard += self._inbox.take(0.05)
            for heard in self.heard:
                if isinstance(heard, kind) and is_meant(heard):
                    return heard
            return None

        return until(f"a {kind.__name__} in {self.heard}", look)

    def batch_after(self, change: int) -> ReadBatch:
        return self.hears_a(ReadBatch, lambda batch: batch.change >= change)


@pytest.fixture
def partition(pool: Pool) -> TopicPartition:
    """Ten records."""
    pool.announce(0)
    partition = TopicPartition(pool.topics.requests(MODEL), 2)
    for number in range(10):
        pool.produce(*partition, b"%d" % number)
    return partition


def test_records_from_before_a_move_are_told_from_those_after_it(
    pool: Pool, partition: TopicPartition
) -> None:
    inbox: Inbox[Message] = Inbox()
    reader = KafkaReader(pool.connection)
    consuming = Consuming(
        reader, Channel.STANDARD, inbox, changes=itertools.count(1), records_max=1
    )
    consuming.start()

    first = consuming.read({partition: 0})
    before = Ear(inbox).batch_after(first)
    # The inbox is full of records that nobody wants any more.
    second = consuming.read({partition: 7})
    after = Ear(inbox).batch_after(second)
    inbox.close()
    consuming.stop()

    assert (before.change, before.records[0].offset) == (first, 0)
    assert (after.change, after.records[0].offset) == (second, 7)
    assert second == first + 1


class HeldReader:
    """A reader whose reads take until they are let go."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.let_go = threading.Semaphore(0)
        self._position = 0

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        (self._position,) = positions.values()

    def unassign(self, partitions: Sequence[TopicPartition]) -> None: ...

    def pause(self, partitions: Sequence[TopicPartition]) -> None: ...

    def resume(self, partitions: Sequence[TopicPartition]) -> None: ...

    def read(self, records_max: int, timeout_s: float) -> list[Record]:
        del records_max, timeout_s
        position = self._position
        self.entered.release()
        assert self.let_go.acquire(timeout=10)
        return [Record("t", 0, position, 0, None, None, [])]

    def log_range(self, partition: TopicPartition, timeout_s: float) -> LogRange:
        raise NotImplementedError

    def log_ranges(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, LogRange]:
        raise NotImplementedError

    def close(self) -> None: ...


@pytest.mark.parametrize(
    "reading",
    [Reading(DEFAULT, LOOK_S), Reading(SELDOM, LOOK_S), *READING.values()],
)
def test_the_two_questions_of_a_look_outlast_the_fetches_before_them(
    reading: Reading,
) -> None:
    timeout_ms = 1000 * max(LOOK_TIMEOUT_S, reading.look_s / 2)
    assert 2 * reading.settings.fetch_wait_ms <= timeout_ms / 2


def test_a_move_asked_for_during_a_read_counts_from_the_next_one() -> None:
    inbox: Inbox[Message] = Inbox()
    reader = HeldReader()
    consuming = Consuming(
        reader, Channel.STANDARD, inbox, changes=itertools.count(1), records_max=1
    )
    first = consuming.read({TopicPartition("t", 0): 0})
    consuming.start()
    assert reader.entered.acquire(timeout=10)

    second = consuming.read({TopicPartition("t", 0): 7})
    for _ in range(3):
        reader.let_go.release()
    batches = [Ear(inbox).batch_after(change) for change in (first, second)]
    inbox.close()
    for _ in range(100):
        reader.let_go.release()
    consuming.stop()

    assert [(batch.change, batch.records[0].offset) for batch in batches] == [
        (first, 0),
        (second, 7),
    ]


def test_a_position_outside_the_log_is_reported_with_what_is_there(
    pool: Pool, partition: TopicPartition
) -> None:
    inbox: Inbox[Message] = Inbox()
    reader = KafkaReader(pool.connection)
    consuming = Consuming(
        reader, Channel.STANDARD, inbox, changes=itertools.count(1), records_max=10
    )
    consuming.start()

    change = consuming.read({partition: 1_000})
    ear = Ear(inbox)
    lost = ear.hears_a(OutOfRange)
    again = consuming.read({partition: 9})
    batch = ear.batch_after(again)
    inbox.close()
    consuming.stop()

    assert (lost.channel, lost.partition) == (Channel.STANDARD, partition)
    assert (lost.log.start, lost.log.end, lost.change) == (0, 10, change)
    assert [record.offset for record in batch.records] == [9]


def member(pool: Pool, name: str) -> tuple[Ownership, Ear]:
    inbox: Inbox[Message] = Inbox()
    status = TopicPartition(pool.topics.status, 0)
    ownership = Ownership(inbox, KafkaReader(pool.connection), status, SystemClock())
    leader = KafkaLeader(
        pool.connection,
        group=pool.topics.lane_group,
        instance_id=f"{pool.bus.prefix}.{name}",
        topic=pool.topics.lanes,
        listener=ownership,
        settings=pool.bus.leader,
    )
    ownership.start(leader)
    return ownership, Ear(inbox)


def test_a_lane_is_committed_once_more_before_it_goes(kafka: str, prefix: str) -> None:
    pool = Pool(kafka, prefix, lanes=2)
    pool.announce(0)
    topic = pool.topics.requests(MODEL)
    pool.produce(topic, 2, b"0")
    pool.produce(topic, 6, b"0")
    old, old_ear = member(pool, "old")
    old_ear.hears(LanesAssigned((0, 1)))

    new, new_ear = member(pool, "new")
    (revoked,) = old_ear.hears_a(LanesRevoked).lanes
    commit = Commit(7, (CommitEntry(topic, revoked * 4 + 2, 1, "last"),), wait=True)
    old.commit(revoked, 1, commit)
    old_ear.hears(Asked(revoked, 1, CommitEnded(7, CommitOutcome.UNAVAILABLE)))
    assert LanesLost((revoked,)) not in old_ear.heard
    old.let_go(revoked)

    new_ear.hears(LanesAssigned((revoked,)))
    old_ear.hears(LanesLost((revoked,)))
    completions = TopicPartition(pool.topics.completions, revoked)
    ours = TopicPartition(topic, revoked * 4 + 2)
    new.fetch_positions(revoked, 1, lambda: [ours], completions)
    found = new_ear.hears_a(Asked).event
    late = Commit(8, (CommitEntry(topic, revoked * 4 + 2, 0, "late"),), wait=True)
    old.commit(revoked, 1, late)
    old_ear.hears(Asked(revoked, 1, CommitEnded(8, CommitOutcome.NOT_MEMBER)))
    old.stop()
    new.stop()

    assert isinstance(found, PositionsFetched)
    (state,) = found.partitions
    assert (state.committed, state.metadata) == (1, "last")
    assert (state.log_start, state.log_end) == (0, 1)
