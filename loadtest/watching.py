"""What the services and the machine do while streams are sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from loadtest import processes
from loadtest.figures import Host, answers
from loadtest.platform import Running
from loadtest.stream import Records

__all__ = ["Watch"]


class _Counted(NamedTuple):
    rows: float
    batches: float
    busy_s: float
    hops_ms: Mapping[str, float]


class Watch:
    """From before the first request to after the last answer of a run; processor
    time is taken at the run's start and end exactly."""

    def __init__(self, running: Running, model: str, seconds: float) -> None:
        self._running = running
        self._model = model
        self._seconds = seconds
        self._log = running.log_bytes()
        self._counted = self._count()
        self._taken: list[processes.Usage] = []
        self._thread = threading.Thread(name="watch")
        running.restarts()

    def begin(self, start_ns: int) -> None:
        instants = (start_ns, start_ns + round(self._seconds * 1e9))
        self._thread = threading.Thread(
            target=self._take, args=(instants,), name="watch"
        )
        self._thread.start()

    def host(
        self, records: Sequence[Records], bare: float | None, beside: float | None
    ) -> Host:
        """Call it when everything was answered.

        Raises ProcessLookupError if a service ended on the way.
        """
        self._thread.join()
        if len(self._taken) < 2:
            raise ProcessLookupError("a service ended while it was measured")
        before, after = self._taken
        seconds = self._seconds
        answered = max(1, sum(map(answers, records)))
        generators_ns = sum(each.cpu_ns for each in records)
        spent_ns = {
            service: used - before.processes_ns[service]
            for service, used in after.processes_ns.items()
        } | {"generator": generators_ns}
        log = self._running.log_bytes()
        now = self._count()
        batches = now.batches - self._counted.batches
        rows = now.rows - self._counted.rows
        return Host(
            cpu_us={name: ns / 1e3 / answered for name, ns in spent_ns.items()},
            cores={name: ns / 1e9 / seconds for name, ns in spent_ns.items()},
            memory_mb={
                service: sum(map(processes.memory_bytes, pids)) / 1e6
                for service, pids in self._running.pids.items()
            },
            log_bytes={
                kind: (size - self._log.get(kind, 0)) / answered
                for kind, size in log.items()
            },
            mean_batch=rows / batches if batches else 0.0,
            batches=batches / seconds,
            busy=(now.busy_s - self._counted.busy_s) / seconds,
            hops_ms=dict(now.hops_ms),
            bare=bare,
            bare_beside=beside,
            foreign_cores=processes.foreign_cores(before, after, generators_ns),
            restarts=self._running.restarts(),
        )

    def _take(self, instants: Sequence[int]) -> None:
        for instant in instants:
            time.sleep(max(0, instant - time.monotonic_ns()) / 1e9)
            self._taken.append(processes.usage(self._running.pids))

    def _count(self) -> _Counted:
        rows = batches = busy_s = 0.0
        hops_ms = {}
        for (name, labels), value in self._running.samples("batch_former").items():
            if name == "headrace_hop_seconds":
                hops_ms[dict(labels)["hop"]] = value * 1000
            elif ("model", self._model) in labels:
                rows += value * (name == "headrace_batch_rows_sum")
                batches += value * (name == "headrace_batch_rows_count")
        for (name, _), value in self._running.samples("gpu_worker").items():
            busy_s += value * (name == "headrace_device_busy_seconds_total")
        return _Counted(rows, batches, busy_s, hops_ms)
