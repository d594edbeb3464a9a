"""LoadGen decides when to ask; a thread with an event loop asks."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import mlperf_loadgen

from loadtest.mlperf.outcome import OFFLINE, SERVER, Outcome, outcome_of
from services.ctl.client import Connection, InferRequest

__all__ = ["Client", "Terms", "run"]

_PENALTY_S = 1.0
_SUMMARY = "mlperf_log_summary.txt"
_PERCENTILE = 0.99
_QUERIES_MIN = 100


class Terms(NamedTuple):
    scenario: str
    seconds: float
    """At least."""
    rate: float
    """Per second: Server sends it, Offline expects it."""
    bound_ms: float


class Client:
    """Asks for LoadGen's samples, over at most so many connections at once."""

    def __init__(
        self, url: str, path: str, requests: Sequence[InferRequest], connections: int
    ) -> None:
        self._path = path
        self._requests = requests
        self._connections = [Connection(url) for _ in range(connections)]
        self._ready = threading.Event()
        self._failed = 0

    @property
    def samples(self) -> int:
        """How many there are to choose from."""
        return len(self._requests)

    def failures(self) -> int:
        """Requests that were not answered with 200 since the last call."""
        failed, self._failed = self._failed, 0
        return failed

    def issue(self, samples: Sequence[Any]) -> None:
        """LoadGen's call, on a thread of its own."""
        wanted = [(each.id, each.index) for each in samples]
        self._loop.call_soon_threadsafe(self._take, wanted)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """The thread runs."""
        thread = threading.Thread(
            target=asyncio.run, args=(self._ask(),), name="asking", daemon=True
        )
        thread.start()
        self._ready.wait()
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._over.set)
            thread.join()

    def _take(self, wanted: list[tuple[int, int]]) -> None:
        for each in wanted:
            self._waiting.put_nowait(each)

    async def _ask(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
        self._over = asyncio.Event()
        self._ready.set()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._serve(connection))
                for connection in self._connections
            ]
            await self._over.wait()
            for task in tasks:
                task.cancel()
        for connection in self._connections:
            connection.close()

    async def _serve(self, connection: Connection) -> None:
        while True:
            identity, index = await self._waiting.get()
            try:
                answer = await connection.post(self._path, self._requests[index])
                ok = answer.status == 200
            except (ConnectionError, TimeoutError):
                ok = False
            if ok:
                _complete(identity)
            else:
                # A refusal is quick; LoadGen knows no failures, only late answers.
                self._failed += 1
                self._loop.call_later(_PENALTY_S, _complete, identity)


def run(client: Client, terms: Terms) -> Outcome:
    """One run of LoadGen, in its performance mode."""
    system = mlperf_loadgen.ConstructSUT(client.issue, _nothing)
    library = mlperf_loadgen.ConstructQSL(
        client.samples, client.samples, _nothing, _nothing
    )
    client.failures()
    with tempfile.TemporaryDirectory(prefix="headrace-mlperf-") as folder:
        output = mlperf_loadgen.LogOutputSettings()
        output.outdir = folder
        log = mlperf_loadgen.LogSettings()
        log.log_output = output
        log.enable_trace = False
        mlperf_loadgen.StartTestWithLogSettings(system, library, _settings(terms), log)
        summary = (Path(folder) / _SUMMARY).read_text("utf-8")
    mlperf_loadgen.DestroyQSL(library)
    mlperf_loadgen.DestroySUT(system)
    return outcome_of(summary, client.failures())


def _settings(terms: Terms) -> Any:
    found = mlperf_loadgen.TestSettings()
    found.mode = mlperf_loadgen.TestMode.PerformanceOnly
    found.scenario = getattr(mlperf_loadgen.TestScenario, terms.scenario)
    found.min_duration_ms = round(terms.seconds * 1000)
    found.min_query_count = 1 if terms.scenario == OFFLINE else _QUERIES_MIN
    if terms.scenario == SERVER:
        found.server_target_qps = terms.rate
        found.server_target_latency_ns = round(terms.bound_ms * 1e6)
        found.server_target_latency_percentile = _PERCENTILE
    if terms.scenario == OFFLINE:
        found.offline_expected_qps = terms.rate
    return found


def _complete(identity: int) -> None:
    response = mlperf_loadgen.QuerySampleResponse(identity, 0, 0)
    mlperf_loadgen.QuerySamplesComplete([response])


def _nothing(*_: object) -> None:
    """LoadGen would load samples here, and flush a queue."""
