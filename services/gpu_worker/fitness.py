"""What follows from runs that fail: less memory, a slot spared, the process' end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import assert_never

import msgspec
import numpy as np

from headrace.clock import Clock
from headrace.delivery import Fitness, Ran, Remedy
from headrace.delivery.worker_decisions import WorkerExit
from headrace.domain import ModelState
from headrace.errors import ModelRefused
from headrace.runtime import Array, FailureKind, RunFailed
from headrace.telemetry import Log
from headrace.wire import Announcement
from services.gpu_worker.jobs import Job, Runnable

__all__ = ["FitnessChanged", "FitnessWatch", "as_fit"]

FitnessChanged = Callable[[Runnable, Fitness, str], None]

_RAN = {
    None: Ran.OK,
    FailureKind.MEMORY: Ran.OUT_OF_MEMORY,
    FailureKind.MODEL: Ran.FAILED,
}


def as_fit(said: Announcement, fitness: Fitness, why: str) -> Announcement:
    """What a slot that serves the version says of it in this state."""
    state = ModelState.FAILING if fitness.is_open else ModelState.READY
    return msgspec.structs.replace(
        said, state=state, rows_fit=fitness.rows_max, reason=why
    )


class FitnessWatch:
    """Told of every run by the run thread; ``tick`` is the loop's."""

    def __init__(self, changed: FitnessChanged, clock: Clock, log: Log) -> None:
        self._changed = changed
        self._clock = clock
        self._log = log
        self._lock = threading.Lock()
        self._unfit: set[Runnable] = set()

    def ran(self, job: Job) -> WorkerExit | None:
        """Before the next run: None, or why the process cannot go on."""
        runnable, failure = job.runnable, job.failure
        if runnable is None or not job.run_us:
            return None
        if failure is None and runnable not in self._unfit and not runnable.failures:
            return None
        if failure is FailureKind.DEVICE:
            return WorkerExit.DEVICE_LOST
        how = _RAN.get(failure)
        if how is None:
            return None
        rows = sum(job.batch.rows)
        if self._are_rows_to_blame(how, job, runnable):
            return None
        is_out = how is Ran.OUT_OF_MEMORY
        other_fits = is_out and rows == 1 and _runs_a_row(runnable)
        with self._lock:
            before = runnable.fitness.now
            remedy = runnable.fitness.ran(how, rows, self._now_us())
            if other_fits:
                runnable.fitness.other_row_fits()
            self._note(runnable, before, job)
        if remedy is None or (other_fits and remedy is Remedy.END_PROCESS):
            return None
        return self._apply(remedy, job, runnable)

    def _are_rows_to_blame(self, how: Ran, job: Job, runnable: Runnable) -> bool:
        """Whether rows of our own run where the senders' failed: then nothing follows
        for the version."""
        fitness = runnable.fitness
        match how:
            case Ran.FAILED:
                are_blamed = fitness.opens_next and _runs_a_row(runnable)
            case Ran.OUT_OF_MEMORY:
                are_blamed = _runs_rows(runnable, job.shapes)
            case Ran.OK:
                are_blamed = False
            case _:
                assert_never(how)
        if not are_blamed:
            return False
        self._log.info(
            "run.rows_blamed",
            model=runnable.model,
            version=runnable.version,
            text=job.outcomes[0].text,
        )
        with self._lock:
            before = fitness.now
            if how is Ran.FAILED:
                fitness.other_row_runs()
            elif sum(job.batch.rows) == 1:
                fitness.other_row_fits()
            self._note(runnable, before, job)
        return True

    def tick(self) -> None:
        """Time passes for what is not fit."""
        if not self._unfit:
            return
        with self._lock:
            for runnable in list(self._unfit):
                before = runnable.fitness.now
                runnable.fitness.tick(self._now_us())
                self._note(runnable, before, None)

    def _now_us(self) -> int:
        return self._clock.now_us()

    def _note(self, runnable: Runnable, before: Fitness, job: Job | None) -> None:
        fitness = runnable.fitness
        runnable.failures = fitness.failures
        if fitness.wakeup_at_us() is None and fitness.now == Fitness():
            self._unfit.discard(runnable)
        else:
            self._unfit.add(runnable)
        if fitness.now == before:
            return
        why = ""
        if fitness.now.is_open and job is not None:
            text = job.outcomes[0].text
            why = f"{fitness.failures} runs in a row failed, the last one so: {text}"
        self._log.warning(
            "model.fitness",
            model=runnable.model,
            version=runnable.version,
            rows_max=fitness.now.rows_max,
            is_open=fitness.now.is_open,
            text=why,
        )
        self._changed(runnable, fitness.now, why)

    def _apply(self, remedy: Remedy, job: Job, runnable: Runnable) -> WorkerExit | None:
        self._log.error(
            "run.out_of_memory",
            model=runnable.model,
            version=runnable.version,
            rows=sum(job.batch.rows),
            remedy=remedy.name.lower(),
        )
        if remedy is Remedy.SHRINK_ARENA:
            runnable.session.shrink()
            return None
        if remedy is Remedy.REBUILD_SESSION:
            try:
                runnable.session.rebuild()
            except ModelRefused as error:
                self._log.error(
                    "model.failed",
                    model=runnable.model,
                    version=runnable.version,
                    text=str(error),
                )
                return WorkerExit.OUT_OF_MEMORY
            return None
        if remedy is Remedy.FEWER_ROWS:
            return None
        return WorkerExit.OUT_OF_MEMORY


def _runs_a_row(runnable: Runnable) -> bool:
    """Otherwise one client, whose rows fail or take more than there is, could turn a
    version away for everybody, or end all workers, one after the other and as soon as
    they are back. The run limit of the batch that failed counts meanwhile, too."""
    return runnable.row is not None and _runs(runnable, runnable.row())


def _runs_rows(runnable: Runnable, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Made-up rows of the shapes that ran out of memory: where they fit, it is what
    the senders' rows say that takes too much, and not how many they are."""
    if runnable.row is None or not shapes:
        return False
    row = runnable.row()
    rows = {name: np.resize(row[name], shape) for name, shape in shapes.items()}
    return _runs(runnable, rows)


def _runs(runnable: Runnable, inputs: Mapping[str, Array]) -> bool:
    try:
        runnable.session.run(inputs)
    except RunFailed:
        return False
    return True
