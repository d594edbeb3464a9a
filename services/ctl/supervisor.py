"""The shell around :mod:`services.ctl.supervision`: real processes, one event queue.

A thread per child waits for its end, one more reads what it prints; everything that
decides runs in :meth:`Supervisor.run`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol, assert_never

from headrace.clock import Clock
from headrace.errors import SetupError
from services.ctl.supervision import (
    Abandon,
    Child,
    Decision,
    Event,
    Exited,
    Finished,
    GiveUp,
    Kill,
    Leaves,
    Left,
    RestartLater,
    Start,
    StopAsked,
    Supervision,
    Terminate,
    Ticked,
    exit_cause,
)

__all__ = ["ChildProcess", "Launch", "Restarted", "Supervisor"]

_FENCED_JITTER_US = 1_000_000
_FAILED_TO_START = 1


class ChildProcess(Protocol):
    """A process, or what behaves like one."""

    @property
    def pid(self) -> int: ...

    def wait(self) -> int:
        """Its exit status, when it has ended and is reaped."""
        ...

    @property
    def last_words(self) -> str:
        """Why it ended, in its own words; empty: it said nothing of it."""
        ...

    def asks_for_successor(self) -> bool:
        """Wait until it was asked to end by others and works on until the next one
        does; False: that will not be."""
        ...

    def terminate(self) -> None:
        """Ask it to drain and end, with no successor; does not wait."""
        ...

    def kill(self) -> None: ...


Launch = Callable[[Child, str], ChildProcess]
"""Start a process for a child that is told how the one before it ended (see
:func:`exit_cause`). May block; raises SetupError if it cannot be started."""


class Restarted(NamedTuple):
    """A child runs again."""

    child: Child
    pid: int
    previous_exit: str


class _Born(NamedTuple):
    child: Child
    process: ChildProcess
    previous_status: int | None


class _Ended(NamedTuple):
    process: ChildProcess
    exited: Exited


class _Leaving(NamedTuple):
    child: Child
    process: ChildProcess


class Supervisor:
    """Keeps the children running until it is asked to stop."""

    def __init__(  # noqa: PLR0913 - all that it tells of
        self,
        supervision: Supervision,
        launch: Launch,
        *,
        clock: Clock,
        say: Callable[[str], None],
        on_change: Callable[[], None],
        on_restart: Callable[[Restarted], None],
        on_last: Callable[[Child], None],
    ) -> None:
        """``on_last`` is told of a child for which no further process is started."""
        self._supervision = supervision
        self._launch = launch
        self._clock = clock
        self._say = say
        self._on_change = on_change
        self._on_restart = on_restart
        self._on_last = on_last
        self._has_failed = False
        self._processes: dict[Child, ChildProcess] = {}
        # Those that end while another has their place.
        self._leaving: list[tuple[Child, ChildProcess]] = []
        self._last_words: dict[Child, str] = {}
        # Asked of a child whose process is not born yet.
        self._owed: dict[Child, Terminate | Kill] = {}
        self._events: SimpleQueue[_Born | _Ended | Exited | _Leaving | StopAsked]
        self._events = SimpleQueue()

    def pids(self) -> dict[Child, int]:
        """The processes of now; a restart changes them."""
        return {child: process.pid for child, process in [*self._processes.items()]}

    def stop(self) -> None:
        """Drain and end; asked again: kill. Safe in a signal handler."""
        self._events.put(StopAsked())

    def run(self) -> bool:
        """Start every child and stay until a stop has ended all of them; False: one
        of them could not run here at all."""
        finished = self._carry_out(self._supervision.begin(self._clock.now_us()))
        while not finished:
            event = self._decided(self._next())
            if event is not None:
                now_us = self._clock.now_us()
                finished = self._carry_out(self._supervision.handle(event, now_us))
        return not self._has_failed

    def _decided(
        self, event: _Born | _Ended | Exited | _Leaving | StopAsked | Ticked
    ) -> Event | None:
        """What is to be decided about it; None: nothing."""
        match event:
            case _Born():
                self._born(event)
                return None
            case _Leaving(child, process):
                if self._processes.get(child) is not process:
                    return None  # it has ended meanwhile
                self._say(f"{child} is to end; the next one starts beside it")
                self._leaving.append((child, self._processes.pop(child)))
                return Leaves(child)
            case _Ended(process, exited):
                leaver = (exited.child, process)
                if leaver in self._leaving:
                    self._leaving.remove(leaver)
                    if exited.status:
                        cause = exit_cause(exited.status)
                        self._say(f"the {exited.child} that was to end did: {cause}")
                    return Left(exited.child)
                return self._decided(exited)
            case Exited(child):
                self._processes.pop(child, None)
                self._owed.pop(child, None)
            case StopAsked() if not self._supervision.stopping:
                self._say("draining; a signal after 2 s kills what still runs")
            case _:
                pass
        return event

    def _next(self) -> _Born | _Ended | Exited | _Leaving | StopAsked | Ticked:
        wakeup_us = self._supervision.wakeup_at_us()
        try:
            if wakeup_us is None:
                return self._events.get()
            wait_us = max(0, wakeup_us - self._clock.now_us())
            return self._events.get(timeout=wait_us / 1_000_000)
        except Empty:
            return Ticked()

    def _carry_out(self, decisions: Sequence[Decision]) -> bool:
        """Whether nothing is left to do."""
        finished = False
        for decision in decisions:
            match decision:
                case Start():
                    self._start(decision)
                case RestartLater():
                    said = self._last_words.get(decision.child, "")
                    self._say(_sentence(decision, said))
                case Abandon(child):
                    self._say(f"{child} is not started any more: {self._why(child)}")
                    self._on_last(child)
                case GiveUp(child):
                    self._has_failed = True
                    self._say(f"{child} cannot run here: {self._why(child)}")
                case Terminate() | Kill():
                    self._signal(decision)
                case Finished():
                    finished = True
                case _:
                    assert_never(decision)
        return finished

    def _start(self, decision: Start) -> None:
        name = f"keeper of {decision.child}"
        threading.Thread(
            target=self._keep, args=(decision,), name=name, daemon=True
        ).start()

    def _keep(self, decision: Start) -> None:
        child = decision.child
        try:
            process = self._launch(child, exit_cause(decision.previous_status))
        except SetupError as error:
            self._last_words[child] = str(error)
            self._events.put(Exited(child, _FAILED_TO_START))
            return
        self._events.put(_Born(child, process, decision.previous_status))
        threading.Thread(
            target=self._listen,
            args=(child, process),
            name=f"succession of {child}",
            daemon=True,
        ).start()
        status = process.wait()
        self._last_words[child] = process.last_words
        jitter_us = random.randrange(_FENCED_JITTER_US)
        self._events.put(_Ended(process, Exited(child, status, jitter_us)))

    def _listen(self, child: Child, process: ChildProcess) -> None:
        if process.asks_for_successor():
            self._events.put(_Leaving(child, process))

    def _why(self, child: Child) -> str:
        return self._last_words.get(child) or "its last lines say why"

    def _born(self, event: _Born) -> None:
        self._processes[event.child] = event.process
        self._on_change()
        owed = self._owed.pop(event.child, None)
        if owed is not None:
            self._signal(owed)
        elif event.previous_status is not None:
            cause = exit_cause(event.previous_status)
            pid = event.process.pid
            self._say(f"{event.child} runs again, as process {pid}, after {cause}")
            self._on_restart(Restarted(event.child, pid, cause))

    def _signal(self, decision: Terminate | Kill) -> None:
        child = decision.child
        self._on_last(child)
        processes = [process for one, process in self._leaving if one == child]
        if child in self._processes:
            processes.append(self._processes[child])
        else:
            self._owed[child] = decision
        if isinstance(decision, Kill) and processes:
            self._say(f"{child} is killed")
        for process in processes:
            if isinstance(decision, Terminate):
                process.terminate()
            else:
                process.kill()


def _sentence(decision: RestartLater, said: str) -> str:
    """``said``: the child's last words."""
    status, times = decision.status, decision.failures
    again = f", {times} times in a row" if times > 1 else ""
    # Who was killed could not say why.
    why = said or ("its last lines say why" if status > 0 else "")
    delay_s = decision.delay_us / 1_000_000
    when = f"in {delay_s:.1f} s" if delay_s else "at once"
    return (
        f"{decision.child} ended with {exit_cause(status)}{again}"
        f"{f' ({why})' if why else ''}; it is restarted {when}"
    )
