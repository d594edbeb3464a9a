"""The pool in virtual time, driven by the objects that production runs."""

from headrace.simulation.limits import PIECES_MAX, SECONDS_MAX, SECONDS_MIN
from headrace.simulation.mlperf import Mlperf, find_server_rate, measure_offline
from headrace.simulation.pool import Loss, ModelSpec, Pool, Table
from headrace.simulation.scenario import (
    POLICIES,
    Scenario,
    explained,
    read_scenario,
)
from headrace.simulation.summary import Share, Summary, read_arrivals, simulate
from headrace.simulation.tallies import Histogram, Results, Tallies
from headrace.simulation.workload import Kind, Stream
from headrace.simulation.world import World

__all__ = [
    "PIECES_MAX",
    "POLICIES",
    "SECONDS_MAX",
    "SECONDS_MIN",
    "Histogram",
    "Kind",
    "Loss",
    "Mlperf",
    "ModelSpec",
    "Pool",
    "Results",
    "Scenario",
    "Share",
    "Stream",
    "Summary",
    "Table",
    "Tallies",
    "World",
    "explained",
    "find_server_rate",
    "measure_offline",
    "read_arrivals",
    "read_scenario",
    "simulate",
]
