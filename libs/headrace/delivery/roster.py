"""Who was heard, measured in the log (D3).

X is silent for t when the newest record read from ``status`` is t later, in log time,
than X's last. A stopped broker or a slow reader makes nobody silent: the newest record
stands still with all the others.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Roster"]

Key = TypeVar("Key", bound=Hashable)

KEYS_MAX = 4_096
"""Past so many the quieter half is forgotten; each process start is a new key."""


class Roster(Generic[Key]):
    """The last heartbeat of each process, and how far ``status`` is read."""

    def __init__(self) -> None:
        self._last_us: dict[Key, int] = {}
        self._newest_us: int | None = None

    @property
    def newest_us(self) -> int | None:
        """Log time of the newest record read; None: nothing is read yet."""
        return self._newest_us

    def heard(self, key: Key, log_us: int) -> None:
        """``key`` wrote a heartbeat that was appended at ``log_us``."""
        self._last_us[key] = max(log_us, self._last_us.get(key, log_us))
        self.advance(log_us)
        if len(self._last_us) > KEYS_MAX:
            loudest = sorted(self._last_us.items(), key=lambda item: -item[1])
            self._last_us = dict(loudest[: KEYS_MAX // 2])

    def advance(self, log_us: int) -> None:
        """Any record of ``status`` was read."""
        if self._newest_us is None or log_us > self._newest_us:
            self._newest_us = log_us

    def heard_within(self, key: Key, us: int) -> bool:
        last_us = self._last_us.get(key)
        if last_us is None or self._newest_us is None:
            return False
        return self._newest_us - last_us < us
