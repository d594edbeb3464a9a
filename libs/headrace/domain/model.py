"""A served model version, as ingress and batch former see it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.domain.tensor import Signature

__all__ = ["BATCH_AXIS_NONE", "ModelState", "Padding", "ServedVersion"]

BATCH_AXIS_NONE = -1
"""The axis of a tensor that has no batch axis: it belongs to the compatibility key."""


_Axis = Annotated[int, Meta(ge=BATCH_AXIS_NONE, le=2**31 - 1)]
_Edge = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class ModelState(StrEnum):
    """What a worker slot says of a version; ``loading`` is never announced twice."""

    LOADING = "loading"
    READY = "ready"
    FAILING = "failing"
    """It is loaded, and its runs fail: it is not asked until it is tried again."""
    REFUSED = "refused"
    UNLOADING = "unloading"


class Padding(msgspec.Struct, frozen=True):
    """How requests of differing length share a batch.

    ``axis`` names the dimension; ``values`` gives the filler per input;
    ``input_axes`` and ``output_axes`` give the axis number per tensor that has the
    dimension; ``edges`` are the bucket limits, ascending. A length above the last
    edge is its own bucket.
    """

    axis: str
    values: dict[str, float]
    input_axes: dict[str, _Axis]
    output_axes: dict[str, _Axis]
    edges: Annotated[tuple[_Edge, ...], Meta(min_length=1)]
    tokens_max: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    """Most rows times padded length in one batch; None: ``max_batch`` rows of the
    longest edge."""

    def edge(self, length: int) -> int:
        """The padded extent of ``length``."""
        for edge in self.edges:
            if length <= edge:
                return edge
        return length


class ServedVersion(msgspec.Struct, frozen=True):
    """One version of a model with the worker slots that hold it."""

    model: str
    version: str
    signature: Signature
    sha256: str
    max_batch: int
    """Most rows in one run."""

    batch_axes: dict[str, int]
    """Tensor name to its batch axis, inputs and outputs;
    :data:`BATCH_AXIS_NONE` where it has none. Empty: the model does not batch and
    ``max_batch`` is 1."""

    padding: Padding | None
    latency_objective_us: int | None
    """Also the time limit of requests that name none."""

    run_us: dict[int, int]
    """Measured run time per probed number of rows, the slowest slot's."""

    ready_slots: frozenset[int]
    unloading_slots: frozenset[int]
    loading_slots: frozenset[int] = frozenset()
    """Slots that will have it, or have it again: what is queued waits for them."""

    rows_fit: dict[int, int] = {}
    """Most rows in one run of these slots, where their memory holds fewer than
    ``max_batch``."""

    recent_runs: dict[str, tuple[tuple[int, int], ...]] = {}
    """Rows and run time of the slots' last runs by compatibility key."""

    run_length: int = 0
    """Padded length at which ``run_us`` was measured; 0: no padding, or unknown."""

    platform: str = "onnx_onnxv1"
    backend: str = "onnxruntime"

    @property
    def is_gone(self) -> bool:
        """Whether no slot has it or will have it: what is queued can never run."""
        return not (self.ready_slots or self.unloading_slots or self.loading_slots)

    @property
    def accepts(self) -> bool:
        """Whether new requests may name it."""
        return bool(self.ready_slots)
