"""What an operator says of a model version beside its file: ``model.toml``.

The repository reads it, the runtime takes it; both meet here. The docstrings are the
reference of the file's keys.
"""

from __future__ import annotations

from math import prod
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    Field,
    FiniteFloat,
    NonNegativeInt,
    PositiveFloat,
    Strict,
    model_validator,
)

from headrace.domain.tensor import VARIABLE, Datatype

__all__ = ["ROWS_MAX", "Manifest", "PaddingManifest", "SimulatedInput"]

ROWS_MAX = 4096
"""Largest ``max_batch``; above it a record's member columns outgrow its tensors."""

RANK_MAX = 16
"""Most dimensions of a tensor whose axes a manifest names."""

SIZE_MAX = 1 << 30
"""Largest extent of a dimension, and most elements in a row of an input."""

LENGTH_MAX = 1 << 20
"""Longest edge of padding; a probe makes up a row of each."""

TOKENS_MAX = 1 << 40

EDGES_MAX = 64
INPUTS_MAX = 64

SIMULATED_MS_MAX = 3_600_000
"""An hour: a longer run is no run."""

_Rows = Annotated[int, Strict(), Field(ge=1, le=ROWS_MAX)]
_Length = Annotated[int, Strict(), Field(ge=1, le=LENGTH_MAX)]
_Size = Annotated[int, Strict(), Field(ge=VARIABLE, le=SIZE_MAX)]
_SimulatedMs = Annotated[FiniteFloat, Field(ge=0, le=SIMULATED_MS_MAX)]


class PaddingManifest(BaseModel, frozen=True, extra="forbid"):
    """``[padding]``: how requests of differing length share a batch."""

    axis: str
    """The dimension's name in the ONNX file, such as ``sequence``."""

    values: dict[str, FiniteFloat] = {}
    """Filler per input; 0 for an input that is not named."""

    edges: Annotated[tuple[_Length, ...], Field(min_length=1, max_length=EDGES_MAX)]
    """Lengths that requests are padded up to, ascending. Close edges waste less
    computation, far ones fill batches sooner."""

    tokens_max: Annotated[int, Strict(), Field(ge=1, le=TOKENS_MAX)] | None = None
    """Most rows times padded length in one batch; ``max_batch`` rows of the longest
    edge unless said. One request always fits."""

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if list(self.edges) != sorted(set(self.edges)):
            raise ValueError("edges must ascend, each once")
        return self


class SimulatedInput(BaseModel, frozen=True, extra="forbid"):
    """An input of the simulated accelerator, which is an output as well."""

    name: Annotated[str, Field(min_length=1)]
    datatype: Datatype
    shape: Annotated[tuple[_Size, ...], Field(min_length=1, max_length=RANK_MAX)]
    """With the batch dimension, -1, in front."""

    @model_validator(mode="after")
    def _sizes(self) -> Self:
        if self.shape[0] != VARIABLE:
            raise ValueError("shape must begin with -1, the batch dimension")
        if any(size < 1 and size != VARIABLE for size in self.shape):
            raise ValueError("shape must hold sizes from 1 and -1 for variable ones")
        if prod(size for size in self.shape if size != VARIABLE) > SIZE_MAX:
            raise ValueError(f"shape must hold at most {SIZE_MAX} elements in a row")
        return self


class Manifest(BaseModel, frozen=True, extra="forbid"):
    """``model.toml``; every key is optional for an ONNX model."""

    backend: Literal["onnx", "simulated"] = "onnx"

    max_batch: _Rows = 32
    """Most rows in one run, lowered to what a probe at load could run. 1 makes a
    model without a batch axis servable, one request at a time."""

    batch_axis: dict[str, Annotated[int, Strict(), Field(ge=-1, lt=RANK_MAX)]] = {}
    """Batch axis per tensor, inputs and outputs; -1: none, all members share it.
    A tensor that is not named has axis 0 if its dimension 0 is variable, and none if
    it has rank 0."""

    padding: PaddingManifest | None = None

    warm_up: Annotated[NonNegativeInt, Field(le=100)] = 1
    """Runs of each probed size before it is timed."""

    latency_objective_ms: Annotated[PositiveFloat, Field(le=600_000)] | None = None
    """Also the time limit of requests that name none."""

    alpha_ms: _SimulatedMs | None = None
    """Simulated: run time of a batch of no rows."""

    beta_ms: _SimulatedMs | None = None
    """Simulated: run time of each row."""

    memory_rows: _Rows | None = None
    """Simulated: a batch of more rows runs out of memory; absent: none does."""

    memory_left_rows: Annotated[int, Strict(), Field(ge=0, le=ROWS_MAX)] | None = None
    """Simulated: as ``memory_rows``, once the version is loaded, as when another
    process has taken the device's memory since; 0: all of it."""

    inputs: Annotated[tuple[SimulatedInput, ...], Field(max_length=INPUTS_MAX)] = ()
    """Simulated: the inputs, returned unchanged as outputs."""

    @model_validator(mode="after")
    def _backend_keys(self) -> Self:
        simulated = {
            "alpha_ms": self.alpha_ms is not None,
            "beta_ms": self.beta_ms is not None,
            "inputs": bool(self.inputs),
        }
        if self.backend == "simulated":
            missing = [key for key, given in simulated.items() if not given]
            if missing:
                raise ValueError(f'backend "simulated" needs {", ".join(missing)}')
            if len({each.name for each in self.inputs}) < len(self.inputs):
                raise ValueError("inputs must have a name each, none twice")
            return self
        simulated["memory_rows"] = self.memory_rows is not None
        simulated["memory_left_rows"] = self.memory_left_rows is not None
        strange = [key for key, given in simulated.items() if given]
        if strange:
            raise ValueError(f'{", ".join(strange)}: only for backend = "simulated"')
        return self
