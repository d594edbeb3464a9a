"""The delivery protocol's decisions: pure, for the batch former and the worker.

Nothing here waits, sends or looks at a clock. :class:`Lane` is a former's part and
:class:`WorkerCore` a worker's; their events and decisions stand in ``events``,
``decisions``, ``worker_events`` and ``worker_decisions``.
"""

from headrace.delivery.fitness import Fitness, Ran, Remedy, VersionFitness
from headrace.delivery.lane import Lane, LaneState
from headrace.delivery.limits import LaneLimits
from headrace.delivery.logtime import LogClock
from headrace.delivery.metadata import CommitMetadata
from headrace.delivery.pacing import Mark, Outstanding, Pacing, PacingLimits
from headrace.delivery.roster import Roster
from headrace.delivery.suspects import Turn
from headrace.delivery.worker import WorkerCore
from headrace.delivery.worker_limits import WorkerLimits

__all__ = [
    "CommitMetadata",
    "Fitness",
    "Lane",
    "LaneLimits",
    "LaneState",
    "LogClock",
    "Mark",
    "Outstanding",
    "Pacing",
    "PacingLimits",
    "Ran",
    "Remedy",
    "Roster",
    "Turn",
    "VersionFitness",
    "WorkerCore",
    "WorkerLimits",
]
