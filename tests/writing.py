"""One producer for what tests write by hand."""

from __future__ import annotations

from functools import lru_cache

from headrace.broker import KafkaConnection, KafkaProducer, ProducerSettings

__all__ = ["writer_to"]


@lru_cache(maxsize=1)
def writer_to(bootstrap_servers: str) -> KafkaProducer:
    """A new one has its first record in the log after half a second: librdkafka asks
    for an idempotent producer's identity when no connection is up yet, and again 500 ms
    later."""
    connection = KafkaConnection(bootstrap_servers, "test")
    return KafkaProducer(connection, ProducerSettings(timeout_ms=20_000))
