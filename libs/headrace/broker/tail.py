"""Reading a topic from a tool: on one event loop, without threads or positions."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiokafka
from aiokafka.errors import KafkaError

from headrace.broker.connection import KafkaConnection
from headrace.broker.interface import Record
from headrace.errors import BusError

__all__ = ["tail"]


async def tail(
    connection: KafkaConnection,
    topic: str,
    *,
    since_us: int | None = None,
    follow: bool = False,
) -> AsyncIterator[Record]:
    """The records of every partition of ``topic``, each partition in order.

    ``since_us`` (append time): the first record to read; None: from the start.
    Ends at what was the end when the reading began, unless ``follow``. A topic that
    does not exist has no records. Raises BusError.
    """
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=connection.bootstrap_servers,
        client_id=connection.client_id,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_uncommitted",
        max_partition_fetch_bytes=connection.batch_bytes_max,
    )
    try:
        await consumer.start()
        try:
            async for record in _read(consumer, topic, since_us, follow=follow):
                yield record
        finally:
            await consumer.stop()
    except KafkaError as error:
        raise BusError(f"read {topic}: {error}", code=type(error).__name__) from error


async def _read(
    consumer: aiokafka.AIOKafkaConsumer,
    topic: str,
    since_us: int | None,
    *,
    follow: bool,
) -> AsyncIterator[Record]:
    if topic not in await consumer.topics():
        return
    partitions = [
        aiokafka.TopicPartition(topic, one)
        for one in sorted(consumer.partitions_for_topic(topic) or ())
    ]
    consumer.assign(partitions)
    ends = await consumer.end_offsets(partitions)
    if since_us is None:
        await consumer.seek_to_beginning(*partitions)
    else:
        found = await consumer.offsets_for_times(
            dict.fromkeys(partitions, since_us // 1000)
        )
        for one, place in found.items():
            consumer.seek(one, ends[one] if place is None else place.offset)
    while follow or [
        one for one in partitions if await consumer.position(one) < ends[one]
    ]:
        for one, records in (await consumer.getmany(timeout_ms=200)).items():
            for record in records:
                if follow or record.offset < ends[one]:
                    yield Record(
                        record.topic,
                        record.partition,
                        record.offset,
                        record.timestamp * 1000,
                        record.key,
                        record.value,
                        list(record.headers),
                    )
