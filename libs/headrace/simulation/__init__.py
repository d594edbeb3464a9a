"""The pool in virtual time, driven by the objects that production runs."""

from headrace.simulation.pool import Loss, ModelSpec, Pool, Table
from headrace.simulation.tallies import Histogram, Results, Tallies
from headrace.simulation.workload import Kind, Stream
from headrace.simulation.world import World

__all__ = [
    "Histogram",
    "Kind",
    "Loss",
    "ModelSpec",
    "Pool",
    "Results",
    "Stream",
    "Table",
    "Tallies",
    "World",
]
