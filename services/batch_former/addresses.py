"""Which reply addresses exist."""

from __future__ import annotations

from headrace.broker import Admin
from headrace.clock import Clock
from headrace.errors import BusError

__all__ = ["ReplyAddresses"]

ASK_TIMEOUT_S = 0.3
"""Longest that a request with an address not seen before holds up the loop."""
MISSING_US = 1_000_000
"""A topic that is missing is not looked for again within this."""
MISSING_MAX = 10_000
"""Missing topics remembered; beyond, all are forgotten."""
ANY_NUMBER = 2**31


class ReplyAddresses:
    """Partitions of the topics that requests name, asked of the log."""

    def __init__(self, admin: Admin, clock: Clock) -> None:
        self._admin = admin
        self._clock = clock
        self._missing: dict[str, int] = {}

    def partitions(self, topic: str) -> int:
        """0: no such topic. Any number when the log does not say: a worker finds out,
        and a dead letter for a moment's silence could not be taken back."""
        now_us = self._clock.now_us()
        if now_us < self._missing.get(topic, 0):
            return 0
        try:
            count = self._admin.partitions(topic, ASK_TIMEOUT_S)
        except BusError:
            return ANY_NUMBER
        if not count:
            if len(self._missing) >= MISSING_MAX:
                self._missing.clear()
            self._missing[topic] = now_us + MISSING_US
        return count
