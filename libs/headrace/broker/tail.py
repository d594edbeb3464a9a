"""Reading a topic from a tool: on one event loop, without threads or positions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient
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
) -> AsyncGenerator[Record, None]:
    """The records of every partition of ``topic``, each partition in order.

    ``since_us`` (append time): the first record to read; None: from the start.
    Ends at what was the end when the reading began, unless ``follow``. A topic that
    does not exist has no records. Raises BusError.
    """
    try:
        partitions = await _partitions(connection, topic)
        if not partitions:
            return
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
            async for record in _read(consumer, partitions, since_us, follow=follow):
                yield record
        finally:
            await consumer.stop()
    except KafkaError as error:
        raise BusError(f"read {topic}: {error}", code=type(error).__name__) from error


async def _partitions(
    connection: KafkaConnection, topic: str
) -> list[aiokafka.TopicPartition]:
    # A consumer learns of a topic's partitions only once it is subscribed.
    admin = AIOKafkaAdminClient(
        bootstrap_servers=connection.bootstrap_servers, client_id=connection.client_id
    )
    try:
        await admin.start()
        (found,) = await admin.describe_topics([topic])
    finally:
        await admin.close()
    return sorted(
        aiokafka.TopicPartition(topic, one["partition"]) for one in found["partitions"]
    )


async def _read(
    consumer: aiokafka.AIOKafkaConsumer,
    partitions: list[aiokafka.TopicPartition],
    since_us: int | None,
    *,
    follow: bool,
) -> AsyncIterator[Record]:
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
