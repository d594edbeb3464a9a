"""What a takeover is told, while its predecessor goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from headrace.broker import Leader, LogRange, NewTopic, Reader, TopicPartition
from headrace.clock import SystemClock
from headrace.delivery.events import PositionsFetched
from headrace.errors import BusError
from headrace.testing import ManualClock, MemoryBroker
from services.batch_former.inbox import Inbox
from services.batch_former.messages import Asked, LanesAssigned, Message
from services.batch_former.ownership import Ownership, positions_of
from tests.services.batch_former.test_threads import Ear

REQUESTS, COMPLETIONS = TopicPartition("requests", 0), TopicPartition("completions", 0)


class Busy:
    """Behind each look at a partition lie one more request and its done."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._reader = broker.reader()
        self._producer = broker.producer()

    def log_range(self, partition: TopicPartition, timeout_s: float) -> LogRange:
        found = self._reader.log_range(partition, timeout_s)
        for topic, _ in (REQUESTS, COMPLETIONS):
            self._producer.produce(topic, 0, b"")
            self._producer.poll(0)
        return found

    def log_ranges(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, LogRange]:
        return {one: self.log_range(one, timeout_s) for one in partitions}


def test_no_done_is_passed_by_of_a_request_that_is_not_seen() -> None:
    clock = ManualClock()
    broker = MemoryBroker(clock)
    broker.admin().create_topics(
        [NewTopic(topic, 1, {}) for topic, _ in (REQUESTS, COMPLETIONS)], 1
    )
    inbox = Ownership(Inbox(), broker.reader(), REQUESTS, SystemClock())
    leader: Leader = broker.leader(
        group="lanes", instance_id="1", topic="lanes", listener=inbox
    )

    told = positions_of(leader, cast(Reader, Busy(broker)), [REQUESTS], COMPLETIONS)

    (requests,) = told.partitions
    assert told.completions_end <= requests.log_end


class Misled:
    """Until it is made anew it knows no partition, as a client does that asked a broker
    in its start."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._reader = broker.reader()
        self._is_misled = True

    def restart(self) -> None:
        self._is_misled = False

    def log_range(self, partition: TopicPartition, timeout_s: float) -> LogRange:
        return self.log_ranges([partition], timeout_s)[partition]

    def log_ranges(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, LogRange]:
        if self._is_misled:
            raise BusError("no such partition", code="_UNKNOWN_PARTITION")
        return self._reader.log_ranges(partitions, timeout_s)


def test_a_client_that_knows_no_partition_does_not_hold_up_a_takeover() -> None:
    broker = MemoryBroker(ManualClock())
    broker.admin().create_topics(
        [NewTopic(topic, 1, {}) for topic in ("requests", "completions", "lanes")], 1
    )
    inbox: Inbox[Message] = Inbox()
    ranges = cast(Reader, Misled(broker))
    ownership = Ownership(inbox, ranges, REQUESTS, SystemClock())
    ownership.start(
        broker.leader(group="g", instance_id="1", topic="lanes", listener=ownership)
    )
    try:
        ear = Ear(inbox)
        ear.hears(LanesAssigned((0,)))
        ownership.fetch_positions(0, 1, lambda: [REQUESTS], COMPLETIONS)
        assert isinstance(ear.hears_a(Asked).event, PositionsFetched)
    finally:
        ownership.stop()
