"""The threads that say that this process lives, and listen to the others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Protocol

from headrace.broker import (
    READ_WAIT_S,
    Delivery,
    Producer,
    ProducerSettings,
    Reader,
    ReaderThread,
    Record,
    TopicPartition,
)
from headrace.clock import Clock
from headrace.errors import BusError, BusFull, OffsetOutOfRange
from headrace.lifecycle.health import Pulse

__all__ = ["BEATS", "STATUS_PARTITION", "Heartbeat", "LogTime", "StatusReader"]

_PERIOD_US: Final = 250_000
_RECORDS_BACK: Final = 2_000
"""How far back a reader of ``status`` starts: two seconds of 250 processes, so that
every living one is heard at once. Counted in records, since no clock of ours can say
which offset is two seconds old."""

STATUS_PARTITION: Final = 0

BEATS: Final = ProducerSettings(timeout_ms=1_000, idempotent=False)
"""A later heartbeat says more than one that is late. The first one is what a start
waits for, and one that comes twice is one."""


class LogTime(Protocol):
    """What learns the log's clock from delivery reports
    (:class:`headrace.delivery.LogClock`)."""

    def feed(self, sent_us: int, acked_us: int, log_us: int) -> None: ...


class Heartbeat:
    """Writes ``payload()`` to ``status`` every 250 ms, while the main loop turns.

    ``payload`` runs on the heartbeat's thread; None: nothing to say this time.
    Every report feeds ``log_time`` on the same thread.
    """

    def __init__(  # noqa: PLR0913 - what a heartbeat is made of
        self,
        producer: Producer,
        topic: str,
        key: bytes,
        payload: Callable[[], bytes | None],
        *,
        pulse: Pulse,
        clock: Clock,
        log_time: LogTime,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._key = key
        self._payload = payload
        self._pulse = pulse
        self._clock = clock
        self._log_time = log_time
        self._beats = -1
        self._now = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Say the last state once, and end."""
        self._stopped.set()
        self._thread.join()
        self._beat()
        self._producer.flush(0.3)

    def hasten(self) -> None:
        """Say the present state now, from any thread."""
        self._beat()

    def _run(self) -> None:
        next_us = self._clock.now_us()
        while not self._stopped.is_set():
            if self._pulse.beats != self._beats:
                self._beats = self._pulse.beats
                self._beat()
            next_us = max(next_us + _PERIOD_US, self._clock.now_us())
            self._serve_until(next_us)

    def _serve_until(self, until_us: int) -> None:
        # Reports are served when they come: their age would count as round trip.
        while not self._stopped.is_set():
            left_us = until_us - self._clock.now_us()
            if left_us <= 0:
                return
            self._producer.poll(min(left_us, 50_000) / 1e6)

    def _beat(self) -> None:
        value = self._payload()
        if value is None:
            return
        sent_us = self._clock.now_us()

        def learn(delivery: Delivery) -> None:
            if delivery.error is None:
                self._log_time.feed(
                    sent_us, self._clock.now_us(), delivery.timestamp_us
                )

        try:
            self._producer.produce(
                self._topic, STATUS_PARTITION, value, key=self._key, on_delivery=learn
            )
        except BusFull:
            # As many beats as fit are waiting already; one more says nothing new.
            return


class StatusReader:
    """Follows ``status`` from a little way back. ``take`` gets every record in order,
    on the reader's thread; ``fail`` what the log answers with an error."""

    def __init__(
        self,
        reader: Reader,
        topic: str,
        take: Callable[[list[Record]], None],
        fail: Callable[[BusError], None],
        *,
        wait_s: float = READ_WAIT_S,
    ) -> None:
        """``wait_s`` as of :class:`headrace.broker.ReaderThread`."""
        self._partition = TopicPartition(topic, STATUS_PARTITION)
        self._fail = fail
        self._is_assigned = False
        self._thread = ReaderThread("status", reader, take, self._failed, wait_s=wait_s)

    def start(self) -> None:
        self._thread.do(self._assign)
        self._thread.start()

    def stop(self) -> None:
        """As :meth:`headrace.broker.ReaderThread.stop`."""
        self._thread.stop()

    def _assign(self, reader: Reader) -> None:
        start, end = reader.log_range(self._partition, timeout_s=10)
        reader.assign({self._partition: max(start, end - _RECORDS_BACK)})
        self._is_assigned = True

    def _failed(self, error: BusError) -> None:
        self._fail(error)
        # A topic that was just made may have no leader yet.
        if isinstance(error, OffsetOutOfRange) or not self._is_assigned:
            self._thread.do(self._assign)
