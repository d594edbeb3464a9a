"""One scenario from start to figures."""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headrace.errors import SetupError
from headrace.simulation.workload import Stream as Workload
from headrace.simulation.workload import arrivals
from loadtest import models
from loadtest.figures import (
    Figures,
    Host,
    Timeline,
    derived,
    figures_of,
    timeline_of,
)
from loadtest.platform import Running, started
from loadtest.references import Bare, Floor, measure_bare, measure_floor
from loadtest.scenario import Platform, Run, Scenario, Simulated
from loadtest.scenario import Stream as StreamSpec
from loadtest.sending import send
from loadtest.stream import Stream
from loadtest.watching import Watch

__all__ = ["Bench", "Result", "arrivals_ns"]

_DRAIN_NS = 3_000_000_000
_OPENED = 64
_REFERENCE_S = 2.0
_WARM_UP_CONNECTIONS = 64
_UNKNOWN = Floor(per_second=1.0, us=1.0)


class Result(msgspec.Struct, frozen=True):
    """One run on one platform."""

    run: str
    platform: str
    round: int
    streams: list[Figures]
    host: Host
    figures: dict[str, float]
    timeline: Timeline
    load_average: float


class Bench:
    """Runs a scenario; ``generator`` is the command that sends its streams."""

    def __init__(
        self,
        scenario: Scenario,
        generator: Sequence[str],
        *,
        foreign_max: float,
        attempts: int,
        say: Callable[[str], None],
    ) -> None:
        self._scenario = scenario
        self._command = generator
        self._foreign_max = foreign_max
        self._attempts = attempts
        self._say = say
        self._best_closed: dict[tuple[str, str], float] = {}

    def run(self, only: str, rounds: int) -> Iterator[Result]:
        """All runs whose name contains ``only``, on each platform, each ``rounds``
        times; rounds are interleaved, so that a drift of the machine meets all."""
        runs = [run for run in self._scenario.runs if only in run.name]
        with tempfile.TemporaryDirectory(prefix="headrace-loadtest-") as folder:
            models.write_models(Path(folder), self._scenario.models)
            for platform in self._scenario.platforms if runs else ():
                with started(platform, Path(folder)) as running:
                    place = _Place(platform, running)
                    self._warm_up(place)
                    for number in range(rounds):
                        self._say("a raw ASGI app on uvicorn")
                        place.floor = measure_floor(self._command, _REFERENCE_S)
                        for run in runs:
                            yield self._measure(run, place, number)

    def _warm_up(self, place: _Place) -> None:
        asked = {each.model for run in self._scenario.runs for each in run.streams}
        for name in sorted(asked):
            stream = StreamSpec(
                model=name, arrivals="closed", connections=_WARM_UP_CONNECTIONS
            )
            run = Run(
                name="warm up", streams=(stream,), seconds=self._scenario.warm_up_s
            )
            self._say(f"warming up {name}")
            send(self._command, self._streams(run, place, 0))

    def _measure(self, run: Run, place: _Place, number: int) -> Result:
        """The quietest of as many attempts as it takes to have a quiet one."""
        best: Result | None = None
        for _ in range(self._attempts):
            self._say(f"{run.name} {place.label}")
            found = self._attempt(run, place, number)
            foreign = found.host.foreign_cores
            if best is None or foreign < best.host.foreign_cores:
                best = found
            if foreign <= self._foreign_max:
                break
        assert best is not None
        first = run.streams[0]
        if first.closed_loop:
            answered = best.streams[0].answered
            place.best[first.model] = max(place.best.get(first.model, 0.0), answered)
        return best

    def _attempt(self, run: Run, place: _Place, number: int) -> Result:
        seconds = run.length_s
        model = self._scenario.models[run.streams[0].model]
        streams = self._streams(run, place, number)
        with ExitStack() as stack:
            alone, beside = None, None
            if isinstance(model, Simulated):
                manifest = models.manifest_of(model)
                alone = measure_bare(manifest, _REFERENCE_S)
                beside = stack.enter_context(Bare(manifest, seconds))
            watch = Watch(place.running, run.streams[0].model, seconds)

            def begin(start_ns: int) -> None:
                watch.begin(start_ns)
                if beside is not None:
                    beside.begin()

            records = send(self._command, streams, on_start=begin)
            host = watch.host(records, alone, beside.rate() if beside else None)
        figures = [
            figures_of(
                each,
                stream.model,
                sent_s=seconds,
                slo_ms=run.slo_ms,
                last_step_s=_last_step_s(stream),
            )
            for each, stream in zip(records, run.streams, strict=True)
        ]
        return Result(
            run.name,
            place.label,
            number,
            figures,
            host,
            derived(figures, host, self._capacity(run, place), place.floor),
            timeline_of(records[0], sent_s=seconds, slo_ms=run.slo_ms),
            float(Path("/proc/loadavg").read_text("ascii").split()[0]),
        )

    def _capacity(self, run: Run, place: _Place) -> float:
        """Of the first stream's model on this platform, per second."""
        name = run.streams[0].model
        model = self._scenario.models[name]
        if isinstance(model, Simulated):
            return model.capacity * place.platform.workers
        if name not in place.best and any(each.load for each in run.streams):
            raise SetupError(
                f"run {run.name!r} is a multiple of a capacity that no closed loop "
                f"with {name} has shown before it: measure one as well"
            )
        return place.best.get(name, 1.0)

    def _streams(self, run: Run, place: _Place, seed: int) -> list[Stream]:
        capacity = self._capacity(run, place)
        return [
            Stream(
                place.running.addresses,
                models.prepare(stream, self._scenario.models[stream.model], number),
                stream.connections,
                min(stream.connections, _OPENED),
                round(run.length_s * 1e9),
                _DRAIN_NS,
                arrivals_ns(stream, run.length_s, capacity, 100 * seed + number),
            )
            for number, stream in enumerate(run.streams)
        ]


@dataclass(slots=True)
class _Place:
    """A running platform and what was learned of it."""

    platform: Platform
    running: Running
    floor: Floor = _UNKNOWN
    best: dict[str, float] = field(default_factory=dict)
    """Answers per second of the best closed loop, by model."""

    @property
    def label(self) -> str:
        return self.platform.label


def arrivals_ns(
    stream: StreamSpec, seconds: float, capacity: float, seed: int
) -> array[int] | None:
    """When the requests are due; None for a closed loop."""
    if stream.closed_loop:
        return None
    steps = [(step.load * capacity, step.seconds) for step in stream.steps]
    if not steps:
        rate = stream.per_second or (stream.load or 0.0) * capacity
        steps = [(rate, seconds)]
    found = array("q")
    start_s = 0.0
    for place, (rate, length_s) in enumerate(steps):
        part = Workload(
            rate=rate,
            start_s=start_s,
            end_s=start_s + length_s,
            process=stream.arrivals,
        )
        drawn = arrivals(part, 0, 1000 * seed + place)
        found.extend(instant * 1000 for instant, _ in drawn)
        start_s += length_s
    return found


def _last_step_s(stream: StreamSpec) -> float | None:
    return sum(step.seconds for step in stream.steps[:-1]) if stream.steps else None
