"""The pool in virtual time, driven by the objects that production runs."""

from headrace.simulation.workload import Arrival, Stream, merged
from headrace.simulation.world import Loss, ModelSpec, Pool, Results, World

__all__ = [
    "Arrival",
    "Loss",
    "ModelSpec",
    "Pool",
    "Results",
    "Stream",
    "World",
    "merged",
]
