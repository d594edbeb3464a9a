"""Whether a process is alive, whether it is ready, and if not, why."""

from __future__ import annotations

import threading
from typing import Final

from headrace.clock import Clock
from headrace.wire.control import ServiceState

__all__ = ["Health", "Pulse"]

_TURN_US_MAX: Final = 2_000_000


class Pulse:
    """The turns of a main loop, seen by other threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._beats = 0
        self._last_us = clock.now_us()

    def beat(self) -> None:
        """The loop turned. Call it at least every 200 ms."""
        self._beats += 1
        self._last_us = self._clock.now_us()

    @property
    def beats(self) -> int:
        """How often it turned; equal numbers mean that it has not."""
        return self._beats

    @property
    def age_us(self) -> int:
        """Time since the last turn."""
        return self._clock.now_us() - self._last_us


class Health:
    """What ``/livez`` and ``/readyz`` say; any thread may ask and tell.

    A process is ready when nothing is awaited any more; what it awaits at its start
    is named at once, so that it cannot be ready by oversight.
    """

    def __init__(self, pulse: Pulse, awaited: dict[str, str]) -> None:
        """``awaited``: a name for each condition, and the sentence that a caller of
        ``/readyz`` gets while it is not met."""
        self._pulse = pulse
        self._lock = threading.Lock()
        self._awaited = dict(awaited)
        self._draining = False

    def await_(self, name: str, sentence: str) -> None:
        """From now on this has to be met (again)."""
        with self._lock:
            self._awaited[name] = sentence

    def met(self, name: str) -> None:
        """What was awaited under ``name`` is there; repeating it changes nothing."""
        with self._lock:
            self._awaited.pop(name, None)

    def awaits(self, name: str) -> bool:
        """Whether it is awaited now."""
        with self._lock:
            return name in self._awaited

    def drain(self) -> None:
        self._draining = True

    @property
    def state(self) -> ServiceState:
        if self._draining:
            return ServiceState.DRAINING
        return ServiceState.STARTING if self._awaited else ServiceState.READY

    def why_not_alive(self) -> str | None:
        """None: alive."""
        age_us = self._pulse.age_us
        if age_us <= _TURN_US_MAX:
            return None
        return f"the main loop has not turned for {age_us / 1e6:.1f} s"

    def why_not_ready(self) -> str | None:
        """None: ready."""
        if self._draining:
            return "draining"
        with self._lock:
            return "; ".join(self._awaited.values()) or self.why_not_alive()
