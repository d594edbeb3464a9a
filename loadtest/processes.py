"""What processes use, as the kernel counts it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "Usage",
    "cpu_ns",
    "foreign_cores",
    "memory_bytes",
    "usage",
    "usage_of_living",
]

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """A snapshot; two of them make a measurement."""

    at_ns: int
    processes_ns: Mapping[str, int]
    """User and system time by service, living processes only."""
    machine_ns: int
    """Of everything that runs here, idle time excepted."""


def cpu_ns(pid: int) -> int:
    """User and system time of all threads of a process, to the nanosecond.

    Raises ProcessLookupError if it has ended.
    """
    # The clock of another process, as clock_getcpuclockid(3) names it.
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError as error:
        raise ProcessLookupError(f"process {pid} has ended") from error


def usage(pids: Mapping[str, Iterable[int]]) -> Usage:
    """Raises ProcessLookupError if one of them has ended."""
    user, nice, system, _, _, irq, softirq, steal = _cpu_ticks()
    return Usage(
        time.monotonic_ns(),
        {service: sum(map(cpu_ns, each)) for service, each in pids.items()},
        (user + nice + system + irq + softirq + steal) * _TICK_NS,
    )


def usage_of_living(pids: Iterable[int]) -> Usage:
    """By process id; those that have ended are left out."""
    found = {}
    for pid in pids:
        with suppress(ProcessLookupError):
            found[str(pid)] = cpu_ns(pid)
    return usage({})._replace(processes_ns=found)


def foreign_cores(before: Usage, after: Usage, own_ns: int) -> float:
    """How many cores others kept busy meanwhile; ``own_ns`` is what we used besides
    the processes of the snapshots."""
    ours = sum(after.processes_ns.values()) - sum(before.processes_ns.values()) + own_ns
    busy = after.machine_ns - before.machine_ns - ours
    return max(0.0, busy / (after.at_ns - before.at_ns))


def memory_bytes(pid: int) -> int:
    """Proportional set size: shared pages are divided among those that map them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _cpu_ticks() -> list[int]:
    first, _, _ = Path("/proc/stat").read_text("ascii").partition("\n")
    return [int(word) for word in first.split()[1:9]]
