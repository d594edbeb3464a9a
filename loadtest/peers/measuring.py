"""One system in one scenario: started, warmed up, asked, stopped."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from loadtest import processes
from loadtest.bench import arrivals_ns
from loadtest.figures import Figures, answers, figures_of
from loadtest.models import manifest_of
from loadtest.peers.forms import Form, rows
from loadtest.peers.killing import Killed, killed
from loadtest.peers.servers import Server
from loadtest.peers.systems import Setting, System
from loadtest.references import measure_bare
from loadtest.scenario import Run, Simulated
from loadtest.scenario import Stream as StreamSpec
from loadtest.sending import send
from loadtest.stream import Records, Stream

__all__ = ["KILLED_RUN", "KILL_AT_S", "Measurement", "measured"]

KILL_AT_S = 3.0
KILLED_RUN = "killed"

_DRAIN_NS = 5_000_000_000
_OPENED = 64
_BARE_S = 2.0
_WARM_UP_CONNECTIONS = 64


class Measurement(msgspec.Struct, frozen=True):
    """One run. ``cpu_us`` is per answer of any status, of all the system's
    processes; ``bare`` the rows per second of the accelerator without a server, just
    before."""

    system: str
    form: str
    scenario: str
    run: str
    round: int
    figures: Figures
    cpu_us: float | None
    memory_mb: float
    foreign_cores: float
    bare: float | None
    killed: Killed | None


def measured(
    system: System,
    setting: Setting,
    number: int,
    *,
    command: Sequence[str],
    seconds: float | None,
) -> Iterator[Measurement]:
    """Every run of the scenario, on one start of the system; ``seconds`` instead of
    the runs' own length.

    Raises SetupError if the system does not start, and RuntimeError if it ends before
    its time.
    """
    (model,) = setting.scenario.models.values()
    simulated = isinstance(model, Simulated)
    bare = (
        measure_bare(manifest_of(model), _BARE_S)
        if isinstance(model, Simulated)
        else None
    )
    forms = system.forms if setting.name == "tiny" else system.forms[:1]
    with system.start(setting) as server:
        for form in forms:
            place = _Place(server, form, command, echoed=simulated)
            place.warm_up(setting.scenario.warm_up_s)
            capacity = model.capacity if isinstance(model, Simulated) else 0.0
            for run in setting.scenario.runs:
                length_s = seconds or run.length_s
                if run.name == KILLED_RUN:
                    length_s = run.length_s
                found = place.run(run, length_s, capacity, number)
                if run.streams[0].closed_loop:
                    capacity = (
                        min(capacity, found.figures.answered)
                        if simulated
                        else max(capacity, found.figures.answered)
                    )
                yield Measurement(
                    system.name,
                    form.kind,
                    setting.name,
                    run.name,
                    number,
                    found.figures,
                    found.cpu_us,
                    found.memory_mb,
                    found.foreign_cores,
                    bare,
                    found.killed,
                )


class _Found(NamedTuple):
    figures: Figures
    cpu_us: float | None
    memory_mb: float
    foreign_cores: float
    killed: Killed | None


class _Place:
    def __init__(
        self, server: Server, form: Form, command: Sequence[str], *, echoed: bool
    ) -> None:
        self._server = server
        self._command = command
        self._requests = [form.prepared(row, echoed=echoed) for row in rows()]

    def warm_up(self, seconds: float) -> None:
        spec = StreamSpec(
            model="model", arrivals="closed", connections=_WARM_UP_CONNECTIONS
        )
        send(self._command, [self._stream(spec, seconds, 0.0, 0)])

    def run(self, run: Run, seconds: float, capacity: float, number: int) -> _Found:
        kills = run.name == KILLED_RUN
        stream = self._stream(run.streams[0], seconds, capacity, number)
        meter = _Meter(self._server, seconds)
        victim = self._server.worker() if kills else 0

        def begin(start_ns: int) -> None:
            if kills:
                at_s = start_ns / 1e9 - time.monotonic() + KILL_AT_S
                threading.Timer(at_s, os.kill, (victim, signal.SIGKILL)).start()
            else:
                meter.begin(start_ns)

        (records,) = send(self._command, [stream], on_start=begin)
        figures = figures_of(
            records,
            "model",
            sent_s=seconds,
            slo_ms=run.slo_ms,
            last_step_s=KILL_AT_S if kills else None,
        )
        if kills:
            found = killed(records, KILL_AT_S, seconds, run.slo_ms)
            return _Found(figures, None, 0.0, 0.0, found)
        used = meter.result(records)
        return _Found(figures, used.cpu_us, used.memory_mb, used.foreign_cores, None)

    def _stream(
        self, spec: StreamSpec, seconds: float, capacity: float, number: int
    ) -> Stream:
        return Stream(
            [self._server.address],
            self._requests,
            spec.connections,
            min(spec.connections, _OPENED),
            round(seconds * 1e9),
            _DRAIN_NS,
            arrivals_ns(spec, seconds, capacity, number),
        )


class _Meter:
    """Processor time of all processes of a server while a stream is sent."""

    def __init__(self, server: Server, seconds: float) -> None:
        self._server = server
        self._seconds = seconds
        self._taken: list[processes.Usage] = []
        self._memory_mb = 0.0
        self._thread = threading.Thread(name="meter")

    def begin(self, start_ns: int) -> None:
        instants = (start_ns, start_ns + round(self._seconds * 1e9))
        self._thread = threading.Thread(
            target=self._take, args=(instants,), name="meter"
        )
        self._thread.start()

    def result(self, records: Records) -> _Used:
        """Raises RuntimeError if none of the processes is left."""
        self._thread.join()
        before, after = self._taken
        if not after.processes_ns:
            raise RuntimeError("all its processes ended while it was measured")
        known = {pid: before.processes_ns.get(pid, 0) for pid in after.processes_ns}
        spent_ns = sum(after.processes_ns.values()) - sum(known.values())
        count = max(1, answers(records))
        return _Used(
            spent_ns / 1e3 / count,
            self._memory_mb,
            processes.foreign_cores(
                before._replace(processes_ns=known), after, records.cpu_ns
            ),
        )

    def _take(self, instants: Sequence[int]) -> None:
        for instant in instants:
            time.sleep(max(0, instant - time.monotonic_ns()) / 1e9)
            self._taken.append(processes.usage_of_living(self._server.pids()))
        living = self._taken[-1].processes_ns
        self._memory_mb = sum(processes.memory_bytes(int(pid)) for pid in living) / 1e6


class _Used(NamedTuple):
    cpu_us: float
    memory_mb: float
    foreign_cores: float
