"""What this slot says of its versions in ``control.models``, until the log has it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from headrace.broker import Delivery, Producer, Record
from headrace.domain import ModelState
from headrace.errors import BusError, UndecodableRecord
from headrace.repository import VersionKey
from headrace.telemetry import Log
from headrace.wire import (
    JSON_HEADERS,
    Announcement,
    announcement_key,
    decode_json,
    encode_json,
    parse_announcement_key,
)

__all__ = ["Announcements", "Announcer"]


class Announcer:
    """Writes announcements and tombstones; what failed is written again."""

    def __init__(self, producer: Producer, topic: str, slot: int) -> None:
        self._producer = producer
        self._topic = topic
        self._slot = slot
        self._lock = threading.Lock()
        self._latest: dict[bytes, bytes | None] = {}
        self._failed: set[bytes] = set()

    def say(self, key: VersionKey, announcement: Announcement | None) -> None:
        """None: the version left this slot for good."""
        value = None if announcement is None else encode_json(announcement)
        record_key = announcement_key(key.model, key.version, self._slot)
        with self._lock:
            self._latest[record_key] = value
            self._produce(record_key)

    def bury(self, key: VersionKey, slot: int) -> None:
        """Write the tombstone of a slot that will not do it any more."""
        with self._lock, suppress(BusError):
            self._producer.produce(
                self._topic,
                0,
                None,
                key=announcement_key(key.model, key.version, slot),
                headers=JSON_HEADERS,
            )

    def buried(self, key: VersionKey) -> None:
        """A tombstone of this slot's was read: write again what it says, unless it
        says nothing. Another slot took this one for dead."""
        record_key = announcement_key(key.model, key.version, self._slot)
        with self._lock:
            if self._latest.get(record_key) is not None:
                self._produce(record_key)

    def flush(self, timeout_s: float) -> None:
        """Wait until the log has what was said, for so long at most."""
        self._producer.flush(timeout_s)

    def repeat(self) -> None:
        """Write again what failed; call it now and then."""
        with self._lock:
            failed, self._failed = self._failed, set()
            for key in failed:
                self._produce(key)

    def _produce(self, key: bytes) -> None:
        def end(delivery: Delivery) -> None:
            if delivery.error is not None:
                with self._lock:
                    self._failed.add(key)

        try:
            self._producer.produce(
                self._topic,
                0,
                self._latest[key],
                key=key,
                headers=JSON_HEADERS,
                on_delivery=end,
            )
        except BusError:
            self._failed.add(key)


class Announcements:
    """What all slots say, as far as ``control.models`` is read. ``buried`` is told of
    each tombstone, on the thread that reads."""

    def __init__(self, buried: Callable[[VersionKey, int], None], log: Log) -> None:
        self._buried = buried
        self._log = log
        self._lock = threading.Lock()
        self._by_key: dict[tuple[VersionKey, int], Announcement] = {}

    def take(self, records: list[Record]) -> None:
        """In the order of the log; runs on the table's thread."""
        for record in records:
            try:
                model, version, slot = parse_announcement_key(record.key)
                said = (
                    None if record.value is None else decode_json(Announcement, record)
                )
            except UndecodableRecord as error:
                self._log.error(
                    "record.undecodable",
                    topic=record.topic,
                    offset=record.offset,
                    text=str(error),
                )
                continue
            place = (VersionKey(model, version), slot)
            with self._lock:
                if said is None:
                    self._by_key.pop(place, None)
                else:
                    self._by_key[place] = said
            if said is None:
                self._buried(*place)

    def of_slot(self, slot: int) -> dict[VersionKey, Announcement]:
        with self._lock:
            return {key: said for (key, of), said in self._by_key.items() if of == slot}

    def slots(self) -> dict[int, list[VersionKey]]:
        """The versions that each slot speaks of."""
        slots: dict[int, list[VersionKey]] = {}
        with self._lock:
            for key, slot in self._by_key:
                slots.setdefault(slot, []).append(key)
        return slots

    def loaded_before(self) -> dict[VersionKey, set[str]]:
        """The files, by their sum, with which some slot is or was ready."""
        files: dict[VersionKey, set[str]] = {}
        with self._lock:
            for (key, _), said in self._by_key.items():
                if said.sha256 and said.state is not ModelState.REFUSED:
                    files.setdefault(key, set()).add(said.sha256)
        return files

    def suspects(self, slot: int) -> set[tuple[VersionKey, str]]:
        """Versions, with the sum of their files, whose load this slot began and did not
        end, or some slot found to end processes."""
        with self._lock:
            return {
                (key, said.sha256)
                for (key, of), said in self._by_key.items()
                if said.load_begun and (of == slot or said.state is ModelState.REFUSED)
            }

    def proven(self) -> set[tuple[VersionKey, str]]:
        """Versions, with the sum of their files, that some slot has."""
        with self._lock:
            return {
                (key, said.sha256)
                for (key, _), said in self._by_key.items()
                if said.state is ModelState.READY
            }

    def other_files(
        self, key: VersionKey, sha256: str, slot: int, heard: Callable[[int], bool]
    ) -> Announcement | None:
        """Another slot that lives and serves other files under this number."""
        with self._lock:
            return next(
                (
                    said
                    for (of, other), said in self._by_key.items()
                    if of == key
                    and other != slot
                    and said.state is ModelState.READY
                    and said.sha256 != sha256
                    and heard(other)
                ),
                None,
            )
