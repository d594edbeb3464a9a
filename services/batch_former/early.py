"""Requests for a version of which their sender heard before we did."""

from __future__ import annotations

from collections.abc import Callable

from headrace.broker import Record
from headrace.domain import Reason, RequestRejected
from headrace.wire import headers as names

__all__ = ["EarlyRequests", "Held"]

HOLD_US = 1_000_000
"""Longest that an announcement may lie between its two readers."""
RECORDS_MAX = 5_000
"""Records held of one partition; beyond, they are taken as they are."""

Key = tuple[str, int]
Held = tuple[Record, int]
"""A record, and the change of its reader after which it was read."""


class EarlyRequests:
    """Holds a partition from the first record on that names an unknown version, until
    models have changed or ``HOLD_US`` have passed.

    An ingress resolves the version itself, so that its record can only be early; what
    others put on the topic, and what is old, is refused at once.
    """

    def __init__(self, to_mono: Callable[[int], int]) -> None:
        self._to_mono = to_mono
        self._held: dict[Key, list[Held]] = {}
        self._release_at_us: int | None = None

    @property
    def is_holding(self) -> bool:
        return self._release_at_us is not None

    def is_held(self, key: Key, held: Held) -> bool:
        """Whether the partition is being held; ``held`` then waits behind the rest."""
        waiting = self._held.get(key)
        if waiting is None:
            return False
        waiting.append(held)
        if len(waiting) >= RECORDS_MAX:
            self._release_at_us = 0
        return True

    def holds(self, read: RequestRejected, key: Key, held: Held, now_us: int) -> bool:
        """Whether the record just read is early: its partition is held from here."""
        if read.reason is not Reason.MODEL_UNKNOWN:
            return False
        record = held[0]
        age_us = now_us - self._to_mono(record.timestamp_us)
        if not names.made_by_us(dict(record.headers)) or age_us > HOLD_US:
            return False
        self._held[key] = [held]
        if self._release_at_us is None:
            self._release_at_us = now_us + HOLD_US
        return True

    def release(self, now_us: int, *, models_changed: bool = False) -> list[Held]:
        """What is to be read again, when it is time."""
        if self._release_at_us is None:
            return []
        if not models_changed and now_us < self._release_at_us:
            return []
        released = [held for waiting in self._held.values() for held in waiting]
        self._held.clear()
        self._release_at_us = None
        return released
