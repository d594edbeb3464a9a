"""What the run thread does after a run that failed, in the order of the remedies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from headrace.delivery import Fitness, VersionFitness, WorkerLimits
from headrace.delivery.worker_decisions import WorkerExit
from headrace.domain import Datatype, Manifest, Signature, Source, TensorSpec
from headrace.errors import ModelRefused
from headrace.runtime import Array, FailureKind, RunFailed, settle_layout
from headrace.telemetry import get_log
from headrace.testing import ManualClock
from headrace.wire import Batch, BatchStamp, SourceTable
from services.gpu_worker.fitness import FitnessWatch
from services.gpu_worker.jobs import Job, Runnable

SPEC = TensorSpec("x", Datatype.FP32, (-1, 1))
A_ROW = 7
OOM = (
    "[ONNXRuntimeError] : 1 : FAIL : bfc_arena.cc:360 Failed to allocate memory for "
    "requested buffer of size 43980465111040"
)
LOST = "CUDA failure 700: an illegal memory access was encountered ; GPU=0"


class FailingSession:
    """Runs fail as ``failure`` says; what is done about it is noted."""

    platform = "test"
    provider = "cpu"
    signature = Signature((SPEC,), (SPEC,))
    dimensions: Mapping[str, Sequence[str]] = {"x": ("", "")}

    def __init__(self) -> None:
        self.failure: RunFailed | None = None
        self.done: list[str] = []
        self.can_be_rebuilt = True
        self.made_up_rows_max = 0
        self.made_up: list[int] = []
        """The rows of each run with values of ours."""

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        rows, is_ours = len(inputs["x"]), bool(np.all(inputs["x"] == A_ROW))
        if is_ours:
            self.made_up.append(rows)
        if self.failure is not None and not (is_ours and rows <= self.made_up_rows_max):
            raise self.failure
        return [inputs["x"]]

    def stop(self) -> None:
        raise AssertionError("nobody asked")

    def shrink(self) -> None:
        self.done.append("shrink")

    def rebuild(self) -> None:
        self.done.append("rebuild")
        if not self.can_be_rebuilt:
            raise ModelRefused("out of memory")

    def close(self) -> None:
        self.done.append("close")


class Bench:
    def __init__(self) -> None:
        self.session = FailingSession()
        self.clock = ManualClock()
        self.said: list[tuple[Fitness, str]] = []
        self.watch = FitnessWatch(
            lambda _runnable, *said: self.said.append(said), self.clock, get_log()
        )
        signature, dimensions = self.session.signature, self.session.dimensions
        layout = settle_layout(signature, dimensions, Manifest())
        fitness = VersionFitness(WorkerLimits(), 32)
        self.runnable = Runnable("m", "1", self.session, layout, fitness, a_row)

    def run(
        self, rows: int = 1, kind: FailureKind | None = None, text: str = ""
    ) -> WorkerExit | None:
        self.session.failure = RunFailed(kind, text) if kind else None
        job = Job(a_batch(rows), self.runnable, 0)
        job.inputs = {"x": np.zeros((rows, 1), np.float32)}
        job.run()
        job.run_us = 1
        job.share_out(1_000_000)
        return self.watch.ran(job)


def a_row() -> dict[str, Array]:
    return {"x": np.full((1, 1), A_ROW, np.float32)}


def a_batch(rows: int) -> Batch:
    """A member of so many rows."""
    return Batch(
        batch="b",
        stamp=BatchStamp(0, 1, "f" * 32, 1, 1000, None),
        release_reason="full",
        padded_rows=rows,
        predicted_us=1,
        model="m",
        version="1",
        tensors=(),
        ids=["r"],
        tenants=["t"],
        sources=SourceTable([Source("requests", 0, 0)]),
        addresses=[None],
        rows=[rows],
        lengths=[],
        attempts=[1],
        client_ids=[],
    )


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_memory_is_given_back_then_made_anew_then_left_to_a_new_process(
    bench: Bench,
) -> None:
    ends = [bench.run(32 >> n, FailureKind.MEMORY, OOM) for n in range(6)]

    assert bench.session.done == ["shrink", "rebuild"]
    assert ends == [None] * 5 + [WorkerExit.OUT_OF_MEMORY]
    assert [fitness.rows_max for fitness, _ in bench.said] == [16, 8, 4, 2, 1]


def test_a_row_that_alone_takes_too_much_costs_no_process_and_nobody_s_rows(
    bench: Bench,
) -> None:
    bench.session.made_up_rows_max = 1

    ends = {bench.run(32 >> n, FailureKind.MEMORY, OOM) for n in range(6)}
    ends |= {bench.run(1, FailureKind.MEMORY, OOM) for _ in range(12)}

    assert ends == {None}
    assert bench.said[-1] == (Fitness(), "")


def test_what_takes_too_much_by_its_values_costs_nobody_rows_or_a_session(
    bench: Bench,
) -> None:
    """Made-up rows of the same shapes fit: a limit on rows would last for minutes in
    the slots to which the halves did not come, and help nobody."""
    bench.session.made_up_rows_max = 32

    ends = {bench.run(32 >> n, FailureKind.MEMORY, OOM) for n in range(6)}

    assert ends == {None}
    assert bench.session.made_up == [32, 16, 8, 4, 2, 1]
    assert (bench.said, bench.session.done) == ([], [])


def test_a_session_that_cannot_be_made_anew_ends_the_process(bench: Bench) -> None:
    bench.session.can_be_rebuilt = False
    bench.run(32, FailureKind.MEMORY, OOM)

    assert bench.run(16, FailureKind.MEMORY, OOM) is WorkerExit.OUT_OF_MEMORY


def test_a_lost_device_ends_the_process_at_once(bench: Bench) -> None:
    assert bench.run(4, FailureKind.DEVICE, LOST) is WorkerExit.DEVICE_LOST
    assert bench.session.done == []


@pytest.mark.parametrize("kind", [FailureKind.INPUT, FailureKind.STOPPED])
def test_what_says_nothing_of_the_device_changes_nothing(
    bench: Bench, kind: FailureKind
) -> None:
    for _ in range(20):
        assert bench.run(4, kind, "no matter") is None

    assert bench.said == []


def test_failures_in_a_row_are_announced_with_the_last_ones_text(bench: Bench) -> None:
    for _ in range(4):
        bench.run(4, FailureKind.MODEL, "it broke")
    assert bench.said == []

    bench.run(4, FailureKind.MODEL, "it broke")
    bench.clock.advance(WorkerLimits().breaker_us)
    bench.watch.tick()
    bench.run(1)

    assert bench.said == [
        (
            Fitness(is_open=True),
            "5 runs in a row failed, the last one so: it broke",
        ),
        (Fitness(1), ""),
        (Fitness(), ""),
    ]


def test_a_success_between_failures_starts_the_count_anew(bench: Bench) -> None:
    for _ in range(4):
        for _ in range(4):
            bench.run(4, FailureKind.MODEL, "it broke")
        bench.run(4)

    assert bench.said == []


def test_failures_of_the_senders_rows_do_not_turn_the_version_away(
    bench: Bench,
) -> None:
    bench.session.made_up_rows_max = 1

    for _ in range(3 * WorkerLimits().breaker_failures):
        assert bench.run(1, FailureKind.MODEL, "it broke") is None

    assert bench.said == []
    assert bench.session.made_up == [1, 1, 1]  # once for each five


def test_a_half_open_breaker_is_not_opened_by_a_senders_row(bench: Bench) -> None:
    for _ in range(5):
        bench.run(4, FailureKind.MODEL, "it broke")
    bench.clock.advance(WorkerLimits().breaker_us)
    bench.watch.tick()
    bench.session.made_up_rows_max = 1
    bench.run(1, FailureKind.MODEL, "it broke")

    assert [fitness for fitness, _ in bench.said] == [
        Fitness(is_open=True),
        Fitness(1),
        Fitness(),
    ]


def test_a_version_of_which_no_row_is_known_is_judged_by_the_senders(
    bench: Bench,
) -> None:
    bench.runnable.row = None
    bench.session.made_up_rows_max = 1
    for _ in range(5):
        bench.run(4, FailureKind.MODEL, "it broke")

    assert [fitness.is_open for fitness, _ in bench.said] == [True]
