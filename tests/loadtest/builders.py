"""Records and hosts of which a test says what matters."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from loadtest.figures import Host
from loadtest.references import Floor
from loadtest.stream import Outcome, Records

MS = 1_000_000
FLOOR = Floor(per_second=40_000, us=20)


class Ended(NamedTuple):
    at_ms: int
    took_ms: int
    outcome: Outcome = Outcome(200)


def the_records(ends: Sequence[Ended]) -> Records:
    table = list(dict.fromkeys(each.outcome for each in ends))
    return Records(
        array("q", [each.at_ms * MS for each in ends]),
        array("q", [each.at_ms * MS for each in ends]),
        array("q", [(each.at_ms + each.took_ms) * MS for each in ends]),
        array("q", [table.index(each.outcome) for each in ends]),
        table,
        connections=1,
        cpu_ns=len(ends) * 7000,
    )


def a_host(**given: object) -> Host:
    values: dict[str, object] = {
        "cpu_us": {"ingress": 40.0, "kafka": 30.0, "generator": 7.0},
        "cores": {},
        "memory_mb": {},
        "log_bytes": {},
        "mean_batch": 31.0,
        "batches": 76.0,
        "busy": 0.98,
        "hops_ms": {},
        "bare": None,
        "bare_beside": None,
        "foreign_cores": 0.0,
        "restarts": 0,
    }
    return Host(**(values | given))  # type: ignore[arg-type] # by name
