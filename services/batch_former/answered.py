"""Which idempotency keys were answered lately, read from the kept answers."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from time import sleep

from headrace.broker import (
    Admin,
    Reader,
    Record,
    TopicPartition,
    read_spans,
    spans_since,
)
from headrace.clock import Clock
from headrace.delivery import LogClock
from headrace.delivery.events import KeysRead
from headrace.domain import Reason, is_final
from headrace.errors import BusError
from headrace.telemetry import get_log
from headrace.wire import Topics
from headrace.wire import headers as names
from headrace.wire.topics import JOB_KEYED
from services.batch_former.inbox import Channel, Inbox
from services.batch_former.messages import Asked, Message

__all__ = ["AnsweredKeys"]

LOG_TIMEOUT_S = 2.0
READ_US_MAX = 60_000_000
"""Longest that all of them are read; then it begins again."""
AGAIN_S = 0.2
RECORDS_MAX = 1_000


class AnsweredKeys:
    """Reads on a thread of its own, since requests with a key alone wait for it.
    ``memory_us``: how far back."""

    def __init__(  # noqa: PLR0913 - what it reads, and for whom
        self,
        topics: Topics,
        admin: Admin,
        new_reader: Callable[[], Reader],
        inbox: Inbox[Message],
        *,
        memory_us: int,
        clock: Clock,
        log_clock: LogClock,
    ) -> None:
        self._topics = topics
        self._admin = admin
        self._new_reader = new_reader
        self._inbox = inbox
        self._memory_us = memory_us
        self._clock = clock
        self._log_clock = log_clock
        self._asked: SimpleQueue[tuple[int, int] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="keys", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Without waiting for what is being read: nobody needs it any more."""
        self._asked.put(None)

    def read(self, lane: int, term: int) -> None:
        """Answered by ``Asked(KeysRead)``."""
        self._asked.put((lane, term))

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            ended = None
            while ended is None:
                try:
                    ended = self._ended()
                except BusError as error:
                    get_log().warning("read.failed", thread="keys", text=str(error))
                    sleep(AGAIN_S)
            self._inbox.put(Channel.OWNERSHIP, Asked(*asked, KeysRead(ended)))

    def _ended(self) -> tuple[tuple[str, int], ...]:
        partitions = [
            TopicPartition(topic, number)
            for topic, count in self._admin.topics(LOG_TIMEOUT_S).items()
            if self._topics.is_results_topic(topic) and topic.endswith(f".{JOB_KEYED}")
            for number in range(count)
        ]
        if not partitions:
            return ()
        reader = self._new_reader()
        try:
            return tuple(self._read(reader, partitions))
        finally:
            reader.close()

    def _read(
        self, reader: Reader, partitions: list[TopicPartition]
    ) -> list[tuple[str, int]]:
        since_us = self._log_clock.to_log(self._clock.now_us()) - self._memory_us
        ended = []
        for record in read_spans(
            reader,
            spans_since(reader, partitions, since_us, LOG_TIMEOUT_S),
            records_max=RECORDS_MAX,
            us_max=READ_US_MAX,
            clock=self._clock,
        ):
            if _is_final_answer(record):
                at_us = self._log_clock.to_mono(record.timestamp_us)
                ended.append(((record.key or b"").decode(), at_us))
        return ended


def _is_final_answer(record: Record) -> bool:
    headers = dict(record.headers)
    if headers.get(names.STATUS) == names.STATUS_OK:
        return True
    try:
        return is_final(Reason((headers.get(names.REASON) or b"").decode()))
    except ValueError:
        return False
