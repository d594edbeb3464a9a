"""Which worker slots live, and what the log's clock says; for several threads."""

from __future__ import annotations

import threading

from headrace.broker import Record
from headrace.delivery import LogClock, Roster
from headrace.errors import UndecodableRecord
from headrace.wire import Heartbeat, Role, decode_json

__all__ = ["SharedLogClock", "SlotRoster"]

HEARD_US = 10_000_000
"""A slot that was silent for so long no longer keeps a version's files from changing:
longer than any restart takes."""

PAUSE_US = 500_000
"""Log time without anybody's heartbeat is one without a log, and makes nobody silent:
who reads the first one after it would otherwise bury all whose own is on its way."""


class SharedLogClock:
    """A :class:`headrace.delivery.LogClock` that one thread feeds and others ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clock = LogClock()

    def feed(self, sent_us: int, acked_us: int, log_us: int) -> None:
        with self._lock:
            self._clock.feed(sent_us, acked_us, log_us)

    def to_mono(self, log_us: int) -> int | None:
        """None before the first heartbeat is acked."""
        with self._lock:
            return self._clock.to_mono(log_us) if self._clock.is_set else None

    @property
    def error_us(self) -> int | None:
        with self._lock:
            return self._clock.error_us if self._clock.is_set else None


class SlotRoster:
    """Fed with the records of ``status`` by their reader's thread."""

    def __init__(self, dead_us: int) -> None:
        self._dead_us = dead_us
        self._lock = threading.Lock()
        self._roster: Roster[int] = Roster(pause_us=PAUSE_US)
        self._read = threading.Event()
        self._first_us: int | None = None

    def take(self, records: list[Record]) -> None:
        for record in records:
            try:
                heartbeat = decode_json(Heartbeat, record)
            except UndecodableRecord:
                continue  # its writer's former or ingress reports it
            with self._lock:
                if heartbeat.role is Role.GPU_WORKER:
                    self._roster.heard(heartbeat.slot, record.timestamp_us)
                else:
                    self._roster.advance(record.timestamp_us)
                if self._first_us is None:
                    self._first_us = self._roster.newest_us
        self._read.set()

    def heard(self, slot: int) -> bool:
        with self._lock:
            return self._roster.heard_within(slot, HEARD_US)

    def is_dead(self, slot: int) -> bool:
        """Silent for ``dead_us``, while ``status`` was followed all along."""
        with self._lock:
            newest_us, first_us = self._roster.newest_us, self._first_us
            if newest_us is None or first_us is None:
                return False
            return newest_us - first_us > self._dead_us and (
                not self._roster.heard_within(slot, self._dead_us)
            )

    def wait_read(self, timeout_s: float) -> None:
        """Until anything was read, our own heartbeat at the latest."""
        self._read.wait(timeout_s)
