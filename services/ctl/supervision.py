"""When a child process is started, restarted, asked to end and killed.

Pure: the supervisor's shell reports what happened and carries out what follows.

A child that dies is started again: at once when it was killed from outside or ended
by itself without an error; later and later when it dies soon after its start, over and
over. A child that Kafka has fenced waits until the session of its twin has passed. One
that says that it is not fit to run here is not started for ever. The stop is in stages,
each with its patience: who takes requests in first, the log last, so that what was
accepted is answered.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import NamedTuple, assert_never

from headrace.lifecycle import ExitCode

__all__ = [
    "Abandon",
    "Child",
    "Decision",
    "Event",
    "Exited",
    "Finished",
    "GiveUp",
    "Kill",
    "Leaves",
    "Left",
    "RestartLater",
    "RestartPolicy",
    "Service",
    "Start",
    "StopAsked",
    "Supervision",
    "Terminate",
    "Ticked",
    "exit_cause",
]


class Service(StrEnum):
    """What a child runs; the value names its module and stands in every document."""

    KAFKA = "kafka"
    BATCH_FORMER = "batch_former"
    GPU_WORKER = "gpu_worker"
    INGRESS = "ingress"


def exit_cause(status: int | None) -> str:
    """How a process ended, as a worker repeats it when it joins: ``exit:<code>``,
    ``signal:<name>``, or nothing for a first start."""
    if status is None:
        return ""
    if status >= 0:
        return f"exit:{status}"
    try:
        return f"signal:{signal.Signals(-status).name}"
    except ValueError:
        return f"signal:{-status}"


class Child(NamedTuple):
    """One place for a process, kept over restarts."""

    service: Service
    slot: int

    def __str__(self) -> str:
        return f"{self.service.replace('_', '-')}.{self.slot}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """Delays in µs; defaults are those of the platform."""

    stable_us: int = 5_000_000
    """A child that lived this long has started well: its failures are forgotten."""

    delay_first_us: int = 250_000
    """Before the restart after the first failure; doubled by each further one."""

    delay_max_us: int = 10_000_000
    fenced_us: int = 12_000_000
    """Twice the session of a static group member."""

    fenced_statuses: frozenset[int] = frozenset({ExitCode.FENCED, ExitCode.REPLACED})
    hopeless_statuses: frozenset[int] = frozenset({ExitCode.SETUP})
    """A first start that ends so ends everything: a restart changes nothing."""

    hopeless_max: int = 5
    """So many restarts in a row that end so are the last ones of the child."""

    force_after_us: int = 2_000_000
    """A second signal earlier than this is the first one, which came twice: to the
    group of processes and through a supervisor, say."""

    patience_us: tuple[tuple[Service, int], ...] = (
        (Service.INGRESS, 6_500_000),
        (Service.BATCH_FORMER, 4_000_000),
        (Service.GPU_WORKER, 4_000_000),
        (Service.KAFKA, 4_000_000),
    )
    """The stages of a stop, in order: how long each may take before SIGKILL. Their
    sum stays below the 20 s in which ``headrace up`` promises to end."""


@dataclass(frozen=True, slots=True)
class Exited:
    """A child's process has ended and is reaped. ``status`` is its exit status, or
    minus the signal; ``jitter_us`` keeps fenced twins from returning in step."""

    child: Child
    status: int
    jitter_us: int = 0


@dataclass(frozen=True, slots=True)
class Leaves:
    """A child's process was asked to end by others, and works on until the next one
    does: it is to be started beside it."""

    child: Child


@dataclass(frozen=True, slots=True)
class Left:
    """A process that said :class:`Leaves` has ended and is reaped."""

    child: Child


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The operator wants the end; a later second time, or a third: at once."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Nothing but time has passed."""


Event = Exited | Leaves | Left | StopAsked | Ticked


@dataclass(frozen=True, slots=True)
class Start:
    """Start a process for ``child``; ``previous_status`` is how the last one ended."""

    child: Child
    previous_status: int | None


@dataclass(frozen=True, slots=True)
class RestartLater:
    """Tell the operator: the child ended, and is started again after ``delay_us``; 0:
    at once."""

    child: Child
    status: int
    delay_us: int
    failures: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """Tell the operator: this child is not started any more, others do its work."""

    child: Child


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Tell the operator: this child cannot run here, so everything is stopped."""

    child: Child


@dataclass(frozen=True, slots=True)
class Terminate:
    """Ask the child to drain and end."""

    child: Child


@dataclass(frozen=True, slots=True)
class Kill:
    """End the child's process without asking."""

    child: Child


@dataclass(frozen=True, slots=True)
class Finished:
    """Every child has ended after a stop."""


Decision = Start | RestartLater | Abandon | GiveUp | Terminate | Kill | Finished


class _State(StrEnum):
    RUNNING = auto()
    WAITING = auto()
    GONE = auto()


@dataclass(slots=True)
class _Place:
    state: _State
    started_us: int
    failures: int = 0
    refusals: int = 0
    status: int | None = None
    start_at_us: int | None = None
    leaving: int = 0
    """Processes beside the one that takes the child's place."""

    @property
    def has_processes(self) -> bool:
        return self.state is _State.RUNNING or self.leaving > 0


@dataclass(slots=True)
class _Stop:
    """The stage that is being ended; ``stages`` are those still to come."""

    stages: list[tuple[Service, int]]
    asked_us: int
    is_asked_again: bool = False
    deadline_us: int | None = None
    current: Service | None = None
    killed: set[Child] = field(default_factory=set)
    finished: bool = False


class Supervision:
    """Decides for one set of children; all of them start as ``begin`` says."""

    def __init__(self, children: Sequence[Child], policy: RestartPolicy) -> None:
        self._policy = policy
        self._children = tuple(children)
        self._places: dict[Child, _Place] = {}
        self._stop: _Stop | None = None

    @property
    def stopping(self) -> bool:
        return self._stop is not None

    def begin(self, now_us: int) -> list[Decision]:
        """Start every child, in the order given."""
        self._places = {
            child: _Place(_State.RUNNING, started_us=now_us) for child in self._children
        }
        return [Start(child, None) for child in self._children]

    def handle(self, event: Event, now_us: int) -> list[Decision]:
        """Take in one event and say what follows from it now."""
        decisions: list[Decision] = []
        match event:
            case Exited():
                decisions += self._exited(event, now_us)
            case Leaves(child):
                decisions += self._leaves(child, now_us)
            case Left(child):
                self._places[child].leaving -= 1
            case StopAsked():
                decisions += self._stop_asked(now_us)
            case Ticked():
                pass
            case _:
                assert_never(event)
        if self._stop is None:
            return decisions + self._due(now_us)
        return decisions + self._advance(self._stop, now_us)

    def wakeup_at_us(self) -> int | None:
        """The next instant at which ``Ticked`` can change anything."""
        if self._stop is not None:
            return self._stop.deadline_us
        starts = [
            place.start_at_us
            for place in self._places.values()
            if place.start_at_us is not None
        ]
        return min(starts, default=None)

    def _exited(self, event: Exited, now_us: int) -> list[Decision]:
        place = self._places[event.child]
        if self._stop is not None:
            place.state = _State.GONE
            return []
        place.state = _State.WAITING
        is_first = place.status is None
        place.status = event.status
        if now_us - place.started_us >= self._policy.stable_us:
            place.failures = 0
        place.refusals = (
            place.refusals + 1 if event.status in self._policy.hopeless_statuses else 0
        )
        if place.refusals and (is_first or place.refusals > self._policy.hopeless_max):
            return self._abandon(event.child, now_us, is_first=is_first)
        delay_us = self._delay_us(place, event)
        place.start_at_us = now_us + delay_us
        return [RestartLater(event.child, event.status, delay_us, place.failures)]

    def _leaves(self, child: Child, now_us: int) -> list[Decision]:
        place = self._places[child]
        place.leaving += 1
        place.status = 0
        if self._stop is not None:
            place.state = _State.GONE
            return []
        place.started_us = now_us
        return [Start(child, place.status)]

    def _abandon(self, child: Child, now_us: int, *, is_first: bool) -> list[Decision]:
        self._places[child].state = _State.GONE
        has_others = any(
            other.service is child.service and place.state is not _State.GONE
            for other, place in self._places.items()
        )
        if has_others and not is_first:
            return [Abandon(child)]
        return [GiveUp(child), *self._stop_asked(now_us)]

    def _delay_us(self, place: _Place, event: Exited) -> int:
        if event.status in self._policy.fenced_statuses:
            return self._policy.fenced_us + event.jitter_us
        place.failures += 1
        if event.status in _NOT_ITS_FAULT and place.failures == 1:
            return 0
        delay_us = self._policy.delay_first_us << min(place.failures - 1, 20)
        return min(delay_us, self._policy.delay_max_us)

    def _due(self, now_us: int) -> list[Decision]:
        decisions: list[Decision] = []
        for child, place in self._places.items():
            if place.start_at_us is not None and place.start_at_us <= now_us:
                place.start_at_us = None
                place.started_us = now_us
                place.state = _State.RUNNING
                decisions.append(Start(child, place.status))
        return decisions

    def _stop_asked(self, now_us: int) -> list[Decision]:
        stop = self._stop
        if stop is None:
            self._stop = _Stop(list(self._policy.patience_us), now_us)
            for place in self._places.values():
                place.start_at_us = None
                if place.state is _State.WAITING:
                    place.state = _State.GONE
            return []
        is_meant = now_us - stop.asked_us >= self._policy.force_after_us
        if not is_meant and not stop.is_asked_again:
            stop.is_asked_again = True
            return []
        return self._kill(stop, list(self._places))

    def _kill(self, stop: _Stop, children: Sequence[Child]) -> list[Decision]:
        decisions: list[Decision] = []
        for child in children:
            if self._places[child].has_processes and child not in stop.killed:
                stop.killed.add(child)
                decisions.append(Kill(child))
        return decisions

    def _advance(self, stop: _Stop, now_us: int) -> list[Decision]:
        """Go on to the next stage once nothing of the current one runs."""
        decisions: list[Decision] = []
        while not (running := self._running(stop.current)):
            if not stop.stages:
                stop.deadline_us = None
                if stop.finished:
                    return []
                stop.finished = True
                return [Finished()]
            stop.current, patience_us = stop.stages.pop(0)
            stop.deadline_us = now_us + patience_us
            decisions += [
                Terminate(child)
                for child in self._running(stop.current)
                if child not in stop.killed
            ]
        if stop.deadline_us is not None and stop.deadline_us <= now_us:
            stop.deadline_us = None
            decisions += self._kill(stop, running)
        return decisions

    def _running(self, service: Service | None) -> list[Child]:
        return [
            child
            for child, place in self._places.items()
            if child.service is service and place.has_processes
        ]


# Ended from outside, or drained because someone asked it to.
_NOT_ITS_FAULT = frozenset({0, -signal.SIGKILL, -signal.SIGTERM})
