"""A thread that ends the process when its main loop hangs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Final

from headrace.clock import Clock
from headrace.lifecycle.health import Pulse

__all__ = ["Watchdog"]

_LOOK_S: Final = 0.25
_LOOK_US: Final = 250_000


class Watchdog:
    """Calls ``end`` when ``pulse`` has not beaten for ``limit_us`` of running time.

    Time in which the whole process was stopped or starved does not count: the
    watchdog counts its own looks, which are late then too, and none for more than
    twice its length. A hanging loop keeps its lanes, since the group's heartbeats
    come from the client's own thread: only the end of the process frees them.
    """

    def __init__(
        self,
        pulse: Pulse,
        clock: Clock,
        end: Callable[[], None],
        *,
        limit_us: int = 2_000_000,
    ) -> None:
        self._pulse = pulse
        self._clock = clock
        self._end = end
        self._limit_us = limit_us
        self._excused = 0
        self._beats = pulse.beats
        self._still_us = 0
        self._looked_us = clock.now_us()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    @contextlib.contextmanager
    def excused(self) -> Iterator[None]:
        """The main loop waits for something that has a limit of its own: a callback
        of the group, a drain."""
        self._excused += 1
        try:
            yield
        finally:
            self._pulse.beat()
            self._excused -= 1

    def look(self) -> None:
        """One look; the thread does it every 250 ms."""
        now_us = self._clock.now_us()
        since_us = min(now_us - self._looked_us, 2 * _LOOK_US)
        self._looked_us = now_us
        if self._excused or self._pulse.beats != self._beats:
            self._beats = self._pulse.beats
            self._still_us = 0
            return
        self._still_us += since_us
        if self._still_us > self._limit_us:
            self._end()

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            self.look()
