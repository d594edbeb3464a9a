"""A loaded model version behind one protocol: what the worker runs batches on.

Two tenants: ONNX Runtime (:mod:`headrace.runtime.onnx_session`) and the simulated
accelerator (:mod:`headrace.runtime.simulated`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.domain import Datatype, Signature

__all__ = ["NUMPY_TYPES", "Array", "Session"]

Array: TypeAlias = NDArray[Any]

NUMPY_TYPES: dict[Datatype, np.dtype[Any]] = {
    **{each: np.dtype(each.typestr) for each in Datatype if each.typestr},
    Datatype.BF16: np.dtype("<u2"),
    Datatype.BYTES: np.dtype(np.object_),
}
"""How an array holds each datatype: ``BF16``, which numpy does not know, as its bits,
``BYTES`` as ``str`` objects."""


class Session(Protocol):
    """A model version that can run. One thread runs it; any may stop it."""

    @property
    def signature(self) -> Signature: ...

    @property
    def dimensions(self) -> Mapping[str, Sequence[str]]:
        """The names of each tensor's dimensions; empty where a dimension has none."""
        ...

    @property
    def platform(self) -> str:
        """As the protocol's metadata names it."""
        ...

    @property
    def provider(self) -> str:
        """What it runs on: ``cpu``, ``cuda`` or ``simulated``."""
        ...

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The outputs in the order of the signature, types as in
        :data:`NUMPY_TYPES`. Raises :class:`headrace.runtime.RunFailed`."""
        ...

    def stop(self) -> None:
        """End the run in progress, which raises; without one nothing happens."""
        ...

    def shrink(self) -> None:
        """Let the next run give back what memory its arena does not need at its
        end."""
        ...

    def rebuild(self) -> None:
        """Give all memory back and load the same files anew, on the thread that runs.
        Raises :class:`headrace.errors.ModelRefused`; then the session cannot run."""
        ...

    def close(self) -> None:
        """Free the device's memory; the session cannot run again."""
        ...
