"""Who was heard, measured in the log (D3).

X is silent for t when the newest record read from ``status`` is t later, in log time,
than X's last. A slow reader makes nobody silent: the newest record stands still with
all the others. A time in which nobody at all was heard was one of a stopped broker, and
counts for nobody either: the first heartbeat after it would otherwise silence everyone
whose own is still on its way.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Roster"]

Key = TypeVar("Key", bound=Hashable)

KEYS_MAX = 4_096
"""Past so many the quieter half is forgotten; each process start is a new key."""


class Roster(Generic[Key]):
    """The last heartbeat of each process, and how far ``status`` is read.

    ``pause_us``: log time without any heartbeat, our own included, after which the log
    is taken to have stood still; None where a gap always means silence.
    """

    def __init__(self, *, pause_us: int | None = None) -> None:
        self._pause_us = pause_us
        self._last_us: dict[Key, int] = {}
        self._newest_us: int | None = None
        self._paused_us = 0

    @property
    def newest_us(self) -> int | None:
        """Log time of the newest record read; None: nothing is read yet."""
        return self._newest_us

    def heard(self, key: Key, log_us: int) -> None:
        """``key`` wrote a heartbeat that was appended at ``log_us``."""
        self.advance(log_us)
        at_us = log_us - self._paused_us
        self._last_us[key] = max(at_us, self._last_us.get(key, at_us))
        if len(self._last_us) > KEYS_MAX:
            loudest = sorted(self._last_us.items(), key=lambda item: -item[1])
            self._last_us = dict(loudest[: KEYS_MAX // 2])

    def advance(self, log_us: int) -> None:
        """Any record of ``status`` was read."""
        if self._newest_us is not None:
            gap_us = log_us - self._newest_us
            if gap_us <= 0:
                return
            if self._pause_us is not None and gap_us > self._pause_us:
                self._paused_us += gap_us
        self._newest_us = log_us

    def heard_within(self, key: Key, us: int) -> bool:
        last_us = self._last_us.get(key)
        if last_us is None or self._newest_us is None:
            return False
        return self._newest_us - self._paused_us - last_us < us
