"""Processes that wait to take the place of one that dies.

An interpreter and its imports are most of a batch former's start, and its lane stands
still meanwhile. So each former has a second process that has imported everything and
waits; it is told to begin when the first one is gone.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple, Protocol

from headrace.errors import SetupError
from services.ctl.supervision import Child, exit_cause
from services.ctl.supervisor import ChildProcess

__all__ = ["IN_VAIN_MAX", "SPARE_AFTER_S", "SpareProcess", "Spares"]

SPARE_AFTER_S = 5.0
"""From a process' start to that of its spare: whoever starts needs the processor. As
long again before one takes the place of a spare that has ended, and twice as long each
further time in a row."""

IN_VAIN_MAX = 5
"""So many spares in a row that end unused are the last ones, until the process itself
is started again."""

STABLE_S = 5.0
"""A spare that lived so long has not ended in vain."""


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
        say: Callable[[str], None],
        after_s: float = SPARE_AFTER_S,
    ) -> None:
        """``start`` gives a process that waits on the descriptor that it is told, or
        raises SetupError."""
        self._start = start
        self._say = say
        self._after_s = after_s
        self._in_vain: Counter[Child] = Counter()
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
            self._in_vain[child] = 0
        self._add_after(child, self._after_s)

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

    def _add_after(self, child: Child, delay_s: float) -> None:
        with self._lock:
            if child in self._retired:
                return
            timer = threading.Timer(delay_s, self._add, (child,))
            timer.daemon = True
            old, self._timers[child] = self._timers.get(child), timer
        if old is not None:
            old.cancel()
        timer.start()

    def _add(self, child: Child) -> None:
        reader, writer = os.pipe()
        try:
            spare = _Spare(self._start(child, reader), writer)
        except SetupError as error:
            os.close(writer)
            self._replace(child, f"could not be started ({error})")
            return
        finally:
            os.close(reader)
        with self._lock:
            is_kept = child not in self._retired and child not in self._spares
            if is_kept:
                self._spares[child] = spare
            is_another = is_kept and self._in_vain[child] > 0
        if not is_kept:
            os.close(writer)
            return
        if is_another:
            self._say(f"{child} has a spare again, as process {spare.process.pid}")
        name = f"keeper of the spare of {child}"
        threading.Thread(
            target=self._watch, args=(child, spare), name=name, daemon=True
        ).start()

    def _watch(self, child: Child, spare: _Spare) -> None:
        began_s = monotonic()
        status = spare.process.wait()
        with self._lock:
            if self._spares.get(child) is not spare:
                return  # it was taken, or let go
            del self._spares[child]
            if monotonic() - began_s >= STABLE_S:
                self._in_vain[child] = 0
        os.close(spare.line)
        self._replace(child, f"ended with {exit_cause(status)}")

    def _replace(self, child: Child, what: str) -> None:
        with self._lock:
            if child in self._retired:
                return
            self._in_vain[child] += 1
            times = self._in_vain[child]
        if times >= IN_VAIN_MAX:
            self._say(
                f"the spare of {child} {what}, {times} times in a row; there is none "
                f"until {child} is restarted, which takes longer without"
            )
            return
        delay_s = self._after_s * 2 ** (times - 1)
        self._say(f"the spare of {child} {what}; another starts in {delay_s:.1f} s")
        self._add_after(child, delay_s)
