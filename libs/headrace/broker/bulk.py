"""Sending bulk work and hearing of its ends: what jobs, replays and batches share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka import admin as client

from headrace.broker.admin import KafkaAdmin
from headrace.broker.connection import KafkaConnection
from headrace.broker.depth import group_depth
from headrace.broker.interface import (
    Delivery,
    Headers,
    Reader,
    Record,
    TopicPartition,
)
from headrace.broker.producer import Compression, KafkaProducer, ProducerSettings
from headrace.broker.reader import KafkaReader, ReaderSettings, at
from headrace.clock import Clock, SystemClock
from headrace.delivery import Pacing, PacingLimits
from headrace.domain import DeadLetter, Priority, Source
from headrace.errors import BusFull, OffsetOutOfRange, UndecodableRecord
from headrace.wire import Topics, decode_dead_letter, decode_plain_reply
from headrace.wire import headers as names
from headrace.wire.plain import PlainReply

__all__ = ["Answered", "BulkExchange", "CommittedPositions"]

COMMITTED_EVERY_US: Final = 250_000
LINGER_MS: Final = 10
DELIVERED_WITHIN_MS: Final = 120_000
PRODUCER_BYTES_MAX: Final = 16 * 1024 * 1024
READER_BYTES_MAX: Final = 8 * 1024 * 1024
READER_RECORDS_MIN: Final = 2000
LOOK_UP_S: Final = 10.0


class Answered(NamedTuple):
    """How an id ended: with a reply, which may be an error, or with a dead letter.
    ``at_us``: when that was appended; ``value``: the answer's record."""

    id: str
    place: Source
    at_us: int
    reply: PlainReply | None
    letter: DeadLetter | None
    value: bytes


class CommittedPositions:
    """What a group has committed, asked again and again without waiting for it."""

    def __init__(
        self,
        connection: KafkaConnection,
        group: str,
        partitions: Sequence[TopicPartition],
        clock: Clock,
    ) -> None:
        self._admin = client.AdminClient(connection.config())
        self._asked = ConsumerGroupTopicPartitions(
            group, [at(each) for each in partitions]
        )
        self._clock = clock
        self._answer: Future[ConsumerGroupTopicPartitions] | None = None
        self._next_us = 0

    def newest(self) -> dict[TopicPartition, int]:
        """What came in since the last call; mostly nothing."""
        found: dict[TopicPartition, int] = {}
        now_us = self._clock.now_us()
        if self._answer is not None and self._answer.done():
            found = self._taken(self._answer)
            self._answer = None
        if self._answer is None and now_us >= self._next_us:
            self._next_us = now_us + COMMITTED_EVERY_US
            (self._answer,) = self._admin.list_consumer_group_offsets(
                [self._asked], request_timeout=LOOK_UP_S
            ).values()
        return found

    def _taken(
        self, answer: Future[ConsumerGroupTopicPartitions]
    ) -> dict[TopicPartition, int]:
        try:
            known = answer.result().topic_partitions or []
        except KafkaException:
            return {}  # a coordinator that moves: the next answer tells
        return {
            TopicPartition(one.topic, one.partition): one.offset
            for one in known
            if one.offset >= 0
        }


class BulkExchange:
    """Publishes requests of one model and priority, no more than may wait in the log,
    and reads how they end: from ``results`` (a topic, which exists) and from the
    model's dead letters. One thread makes all calls.

    ``since_us``: letters written earlier are passed over, in log time; results are
    read from their start.

    Raises :class:`headrace.errors.BusError`, as do its methods.
    """

    def __init__(  # noqa: PLR0913 - an address, and how far it is used
        self,
        connection: KafkaConnection,
        topics: Topics,
        model: str,
        results: str,
        *,
        since_us: int = 0,
        priority: Priority = Priority.BULK,
        limits: PacingLimits = PacingLimits(),  # noqa: B008 - immutable
        clock: Clock | None = None,
    ) -> None:
        self._topic = topics.requests(model)
        self._letters = TopicPartition(topics.dead_letters(model), 0)
        self._results = results
        depths = group_depth(
            connection, topics.lane_group, self._topic.__eq__, LOOK_UP_S
        )
        lanes = {
            one.partition: depth
            for one, depth in depths.items()
            if topics.lane_and_priority(one.partition)[1] is priority
        }
        self.pacing = Pacing(
            {
                number: (max(depth.start, depth.committed or 0), depth.end)
                for number, depth in lanes.items()
            },
            limits,
        )
        self._committed = CommittedPositions(
            connection,
            topics.lane_group,
            [TopicPartition(self._topic, number) for number in lanes],
            clock or SystemClock(),
        )
        self._producer = KafkaProducer(
            connection,
            ProducerSettings(
                linger_ms=LINGER_MS,
                timeout_ms=DELIVERED_WITHIN_MS,
                compression=Compression.LZ4,
                queue_bytes_max=PRODUCER_BYTES_MAX,
                idempotent=False,
            ),
        )
        self._reader: Reader = KafkaReader(
            connection,
            ReaderSettings(
                queue_records_min=READER_RECORDS_MIN, queue_bytes_max=READER_BYTES_MAX
            ),
        )
        self._reached = self._assign(KafkaAdmin(connection), since_us)
        self._sought: dict[TopicPartition, int] | None = None

    def offer(self, headers: Headers, value: bytes, key: bytes | None = None) -> bool:
        """Publish, unless too much waits already: then False, until :meth:`turn` has
        heard of progress. A record whose delivery fails is as one that got lost."""
        size = len(value)
        number = self.pacing.place(size)
        if number is None:
            return False

        def end(delivery: Delivery) -> None:
            if delivery.error is None:
                self.pacing.acked(number, delivery.offset, size)
            else:
                self.pacing.failed(number, size)

        try:
            self._producer.produce(
                self._topic, number, value, key=key, headers=headers, on_delivery=end
            )
        except BusFull:
            return False
        self.pacing.sent(number, size)
        return True

    def cancel(self, headers: Headers, key: bytes | None = None) -> None:
        """Take back a request wherever it waits: one record behind each lane's."""
        for number in self.pacing.partitions:
            self._producer.produce(self._topic, number, None, key=key, headers=headers)

    def sign(self, key: bytes) -> None:
        """Write into the topic of results, which answers nobody."""
        self._producer.produce(self._results, 0, b"", key=key)

    def turn(self, timeout_s: float, records_max: int = 500) -> list[Answered]:
        """What has ended; waits at most so long for the first. Records of others, and
        what cannot be decoded, are passed over."""
        self._producer.poll(0)
        offsets = self._committed.newest()
        self.pacing.committed({one.partition: at for one, at in offsets.items()})
        try:
            records = self._reader.read(records_max, timeout_s)
        except OffsetOutOfRange as lost:
            # Retention passed by: what it took is missing, and is sent again.
            one = TopicPartition(lost.topic, lost.partition)
            start = self._reader.log_range(one, LOOK_UP_S).start
            self._reader.assign({one: start})
            self._reached[one] = start
            return []
        answers = []
        for record in records:
            one = TopicPartition(record.topic, record.partition)
            self._reached[one] = record.offset + 1
            answer = self._answer(record)
            if answer is not None:
                answers.append(answer)
        return answers

    def ends(self) -> dict[TopicPartition, int]:
        """How far the answers go at this moment."""
        ranges = self._reader.log_ranges([*self._reached], LOOK_UP_S)
        return {one: log.end for one, log in ranges.items()}

    def has_read(self, ends: Mapping[TopicPartition, int]) -> bool:
        return all(self._reached[one] >= end for one, end in ends.items())

    @property
    def is_quiet(self) -> bool:
        """Whether the formers are through with all that was sent, and every answer of
        theirs has been read: whoever has none then is missing. To be asked again
        after each :meth:`turn`; it looks at the log once nothing waits there."""
        if not self.pacing.is_drained:
            self._sought = None
            return False
        if self._sought is None:
            self._sought = self.ends()
        return self.has_read(self._sought)

    def flush(self, timeout_s: float) -> int:
        """Wait for acks; how many are still out."""
        return self._producer.flush(timeout_s)

    def close(self) -> None:
        self._reader.close()

    def _assign(self, admin: KafkaAdmin, since_us: int) -> dict[TopicPartition, int]:
        results = [
            TopicPartition(self._results, number)
            for number in range(admin.partitions(self._results, LOOK_UP_S))
        ]
        ranges = self._reader.log_ranges(results, LOOK_UP_S)
        positions = {one: log.start for one, log in ranges.items()}
        positions |= self._reader.offsets_since([self._letters], since_us, LOOK_UP_S)
        self._reader.assign(positions)
        return positions

    def _answer(self, record: Record) -> Answered | None:
        place = Source(record.topic, record.partition, record.offset)
        value = record.value or b""
        try:
            if record.topic != self._letters.topic:
                reply = decode_plain_reply(record)
                return Answered(
                    reply.id, place, record.timestamp_us, reply, None, value
                )
            buried = decode_dead_letter(record)
        except UndecodableRecord:
            return None
        address = dict(buried.headers).get(names.REPLY_TOPIC) or b""
        if address != self._results.encode():
            return None
        letter = buried.letter
        return Answered(letter.id, place, record.timestamp_us, None, letter, value)
