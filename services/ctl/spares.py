"""Processes that wait to take the place of one that dies.

An interpreter and its imports are most of a batch former's start, and its lane stands
still meanwhile. So each former has a second process that has imported everything and
waits; it is told to begin when the first one is gone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from headrace.errors import SetupError
from services.ctl.supervision import Child
from services.ctl.supervisor import ChildProcess

__all__ = ["SPARE_AFTER_S", "SpareProcess", "Spares"]

SPARE_AFTER_S = 5.0
"""From a process' start to that of its spare: whoever starts needs the processor."""


class SpareProcess(ChildProcess, Protocol):
    @property
    def has_ended(self) -> bool: ...


class _Spare(NamedTuple):
    process: SpareProcess
    line: int
    """What is written here lets it begin; when it is closed, it ends."""


class Spares:
    """At most one spare for each child; any thread may call."""

    def __init__(
        self,
        start: Callable[[Child, int], SpareProcess],
        after_s: float = SPARE_AFTER_S,
    ) -> None:
        """``start`` gives a process that waits on the descriptor that it is told, or
        raises SetupError."""
        self._start = start
        self._after_s = after_s
        self._lock = threading.Lock()
        self._spares: dict[Child, _Spare] = {}
        self._timers: dict[Child, threading.Timer] = {}
        self._retired: set[Child] = set()

    def take(self, child: Child) -> ChildProcess | None:
        """The child's spare, which begins now; None: there is none."""
        with self._lock:
            spare = self._spares.pop(child, None)
        if spare is None:
            return None
        try:
            os.write(spare.line, b"\n")
        except BrokenPipeError:
            return None
        finally:
            os.close(spare.line)
        return None if spare.process.has_ended else spare.process

    def prepare(self, child: Child) -> None:
        """Start a spare for the child, which has just started, a little later."""
        with self._lock:
            if child in self._retired:
                return
            timer = threading.Timer(self._after_s, self._add, (child,))
            timer.daemon = True
            old, self._timers[child] = self._timers.get(child), timer
        if old is not None:
            old.cancel()
        timer.start()

    def retire(self, child: Child) -> None:
        """Nobody will run for ``child`` any more."""
        with self._lock:
            self._retired.add(child)
            timer = self._timers.pop(child, None)
            spare = self._spares.pop(child, None)
        if timer is not None:
            timer.cancel()
        if spare is not None:
            os.close(spare.line)

    def _add(self, child: Child) -> None:
        reader, writer = os.pipe()
        # The system may start no more processes: then there is no spare.
        with suppress(SetupError):
            process = self._start(child, reader)
            with self._lock:
                if child not in self._retired and child not in self._spares:
                    self._spares[child] = _Spare(process, writer)
                    writer = -1
        os.close(reader)
        if writer >= 0:
            os.close(writer)
