"""The threads of an ingress, and what they hand to its loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from headrace.broker import Producer, ProducerThread

__all__ = ["FedOnLoop", "FlushedThread", "ServedOnLoop", "ServiceThread"]

FLUSH_S: Final = 0.3


class ServiceThread(Protocol):
    def start(self) -> None: ...
    def stop(self) -> None: ...


class FlushedThread:
    """A producer's thread that waits a little for its last records."""

    def __init__(self, thread: ProducerThread) -> None:
        self._thread = thread
        self.start = thread.start

    def stop(self) -> None:
        self._thread.stop(FLUSH_S)


class ServedOnLoop:
    """A producer that the loop polls. The client takes the interpreter once for each
    record, whether somebody wants to hear of it or not: a thread that does so takes it
    from the loop (2 µs per request)."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self._producer.flush(FLUSH_S)


class FedOnLoop:
    """Hands the samples of the log's time to the loop, the only thread that reads
    what they change."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, take: Callable[[int, int, int], None]
    ) -> None:
        self._loop = loop
        self._take = take

    def feed(self, sent_us: int, acked_us: int, log_us: int) -> None:
        self._loop.call_soon_threadsafe(self._take, sent_us, acked_us, log_us)
