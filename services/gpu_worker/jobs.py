"""A batch on its way through the worker: arrays in, a run, each member's part out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.delivery import VersionFitness
from headrace.delivery.worker_events import ALL_OK, Outcome
from headrace.domain import MemberStatus, Reason, Setback
from headrace.errors import RequestError
from headrace.runtime import (
    Array,
    BatchInput,
    FailureKind,
    Layout,
    MemberFault,
    Misfit,
    RunFailed,
    Session,
    assemble,
    share_out,
)
from headrace.wire import Batch, BatchedOutput
from services.gpu_worker.claims import Prefetch
from services.gpu_worker.runs import RunMemory

__all__ = ["Job", "ReadyModels", "Runnable"]


class Runnable:
    """A version in memory, as the fetch and run threads use it."""

    def __init__(
        self,
        model: str,
        version: str,
        session: Session,
        layout: Layout,
        fitness: VersionFitness,
        row: Callable[[], Mapping[str, Array]] | None = None,
    ) -> None:
        """``row`` makes one that has run; None: none is known."""
        self.model = model
        self.version = version
        self.session = session
        self.layout = layout
        self.fitness = fitness
        self.row = row
        self.runs = RunMemory()
        self.failures = 0
        """Runs that failed since one succeeded, as the run thread last saw it."""
        self.used_us = 0
        """When a batch for it last came."""


class ReadyModels:
    """The versions in memory, looked up by the fetch thread."""

    def __init__(self) -> None:
        self._runnables: dict[tuple[str, str], Runnable] = {}

    def find(self, model: str, version: str) -> Runnable | None:
        return self._runnables.get((model, version))

    def put(self, runnable: Runnable) -> None:
        self._runnables[runnable.model, runnable.version] = runnable

    def drop(self, model: str, version: str) -> None:
        self._runnables.pop((model, version), None)

    def names(self) -> frozenset[str]:
        return frozenset(f"{model}/{version}" for model, version in self._runnables)


class Job:
    """A batch and what is known of it so far. One thread has it at a time: fetch,
    then run, then reply."""

    def __init__(
        self,
        batch: Batch,
        runnable: Runnable | None,
        read_us: int,
        coming: Prefetch | None = None,
    ) -> None:
        """``coming``: the batch lacks tensors, and so they come."""
        self.batch = batch
        self.coming = coming
        self.runnable = runnable
        self.read_us = read_us
        self.inputs: dict[str, Array] = {}
        self.outputs: list[BatchedOutput] = []
        self.outcomes: tuple[Outcome, ...] = ()
        """One for all members or one each; empty while nothing is known."""

        self.order = b""
        """How it was ordered, where the log does not say so."""

        self.failure: FailureKind | None = None
        """Of its run, whatever became of the members."""

        self.shapes: dict[str, tuple[int, ...]] = {}
        """Of the arrays of a run that failed."""

        self.must_stop = False
        """Its run takes too long; nobody waits for one that has not begun."""

        self._arrays: list[Array] = []
        self.wait_us = self.input_us = self.run_us = self.output_us = 0

    @property
    def members(self) -> int:
        return len(self.batch.ids)

    @property
    def is_bulk(self) -> bool:
        """Whether no ingress waits for any of it: results go to no partition."""
        return all(
            address is None or address.partition is None
            for address in self.batch.addresses
        )

    def lay_out(self) -> None:
        """Make the arrays of the run, or know why there will be none."""
        if self.runnable is None:
            text = f"model {self.batch.model} version {self.batch.version} is not here"
            self.outcomes = (
                Outcome(MemberStatus.RETRY, Reason.MODEL_UNAVAILABLE, text),
            )
            return
        tensors = [
            BatchInput(each.name, each.datatype, each.shape, each.data)
            for each in self.batch.tensors
        ]
        try:
            self.inputs = assemble(
                self.runnable.layout, tensors, self.batch.rows, self.batch.lengths
            )
        except MemberFault as fault:
            self._single_out(fault.member, str(fault))
        except RequestError as error:
            self._input_failed(str(error))

    def complete(self) -> None:
        """Take the tensors that the record did not bring, or what becomes of those
        who lack them."""
        if self.coming is None or self.outcomes:
            return
        found = self.coming.found()
        self.coming = None
        if isinstance(found, Batch):
            self.batch = found
            self.lay_out()
        else:
            self.outcomes = found

    def run(self) -> None:
        """Run on the session. Afterwards ``outcomes`` is known."""
        assert self.runnable is not None
        if self.must_stop:
            self._run_failed(RunFailed(FailureKind.STOPPED, "it never began"))
            return
        try:
            self._arrays = self.runnable.session.run(self.inputs)
        except RunFailed as failed:
            self.shapes = {name: array.shape for name, array in self.inputs.items()}
            self._run_failed(failed)
        self.inputs = {}

    def share_out(self, payload_bytes_max: int) -> None:
        """Cut the run's outputs into the members' parts."""
        if self.outcomes:
            return
        assert self.runnable is not None
        try:
            self.outputs = share_out(
                self.runnable.layout, self._arrays, self.batch.rows, self.batch.lengths
            )
        except Misfit as misfit:
            self.failure = FailureKind.MODEL
            self._set_back(Setback.MODEL_ERROR, str(misfit))
        else:
            self.outcomes = self._sizes_checked(payload_bytes_max)
        self._arrays = []

    @property
    def output_bytes(self) -> int:
        """Of all members together."""
        return sum(output.bounds[-1] for output in self.outputs)

    def reply_bytes(self, member: int) -> int:
        """Of its outputs together."""
        return sum(
            output.bounds[member + 1] - output.bounds[member] for output in self.outputs
        )

    def _sizes_checked(self, payload_bytes_max: int) -> tuple[Outcome, ...]:
        if self.output_bytes <= payload_bytes_max:
            return ALL_OK
        sizes = [self.reply_bytes(member) for member in range(self.members)]
        if max(sizes) <= payload_bytes_max:
            return ALL_OK
        return tuple(
            ALL_OK[0]
            if size <= payload_bytes_max
            else Outcome(
                MemberStatus.FINAL,
                Reason.TOO_LARGE,
                f"the reply has {size} bytes, at most {payload_bytes_max} are allowed "
                "(payload_bytes_max)",
            )
            for size in sizes
        )

    def _run_failed(self, failed: RunFailed) -> None:
        self.failure = failed.kind
        match failed.kind:
            case FailureKind.INPUT:
                self._input_failed(str(failed))
            case FailureKind.MODEL:
                self._set_back(Setback.MODEL_ERROR, str(failed))
            case FailureKind.MEMORY:
                self._set_back(Setback.OOM, str(failed))
            case FailureKind.DEVICE:
                self._set_back(Setback.DEVICE, str(failed))
            case FailureKind.STOPPED:
                text = "the run took longer than its limit and was stopped"
                self._set_back(Setback.RUN_LIMIT, text)

    def _input_failed(self, text: str) -> None:
        """A member that rode alone caused it; of several nobody knows which did."""
        if self.members == 1:
            self.outcomes = (Outcome(MemberStatus.FINAL, Reason.POISON, text),)
        else:
            self._set_back(Setback.MODEL_ERROR, text)

    def _set_back(self, why: Setback, text: str) -> None:
        self.outcomes = (Outcome(MemberStatus.RETRY, why, text),)

    def _single_out(self, member: int, text: str) -> None:
        others = "a neighbour's input could not be read"
        outcomes = [
            Outcome(MemberStatus.RETRY, Setback.NEIGHBOUR, others)
        ] * self.members
        outcomes[member] = Outcome(MemberStatus.FINAL, Reason.POISON, text)
        self.outcomes = tuple(outcomes)
