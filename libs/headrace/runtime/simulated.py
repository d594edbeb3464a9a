"""An accelerator that is not there: known run times, outputs that equal the inputs.

For tests, benchmarks and capacity planning: what the platform does around it is real.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Event

from headrace.domain import Manifest, Signature, TensorSpec
from headrace.runtime.failures import FailureKind, RunFailed
from headrace.runtime.session import Array

__all__ = ["SimulatedSession"]


class SimulatedSession:
    """A batch of b rows takes ``alpha_ms + beta_ms * b`` and fits up to
    ``memory_rows`` of them while it is probed, up to ``memory_left_rows`` later."""

    platform = "headrace_simulated"
    provider = "simulated"

    def __init__(self, manifest: Manifest) -> None:
        assert manifest.alpha_ms is not None
        assert manifest.beta_ms is not None
        tensors = tuple(
            TensorSpec(each.name, each.datatype, each.shape) for each in manifest.inputs
        )
        self.signature = Signature(tensors, tensors)
        self.dimensions: Mapping[str, Sequence[str]] = {
            tensor.name: ("",) * len(tensor.shape) for tensor in tensors
        }
        self.memory_rows = manifest.memory_rows
        left = manifest.memory_left_rows
        self._memory_left_rows = manifest.memory_rows if left is None else left
        self._alpha_us = round(manifest.alpha_ms * 1000)
        self._beta_us = round(manifest.beta_ms * 1000)
        self._stopped = Event()

    def run_us(self, rows: int) -> int:
        """How long a run of so many rows takes."""
        return self._alpha_us + self._beta_us * rows

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        rows = max(len(array) for array in inputs.values())
        fit = self._memory_left_rows
        if fit is not None and rows > fit:
            text = f"out of memory: {rows} rows, but {fit} fit"
            raise RunFailed(FailureKind.MEMORY, text)
        self._stopped.clear()
        if self._stopped.wait(self.run_us(rows) / 1e6):
            raise RunFailed(FailureKind.STOPPED, "the run was stopped")
        return [inputs[tensor.name] for tensor in self.signature.outputs]

    def stop(self) -> None:
        self._stopped.set()

    def shrink(self) -> None:
        """There is no arena."""

    def rebuild(self) -> None:
        """It would be the same again."""

    def close(self) -> None:
        """Nothing is held."""
