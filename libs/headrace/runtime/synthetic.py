"""Inputs made up for a probe: small, harmless, and different from row to row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from math import prod
from typing import NamedTuple

import numpy as np

from headrace.domain import VARIABLE, Datatype, TensorSpec
from headrace.runtime.batching import BatchInput
from headrace.runtime.failures import FailureKind, RunFailed
from headrace.runtime.layout import Dimensions, Layout
from headrace.runtime.session import NUMPY_TYPES, Array
from headrace.wire.compatibility import LENGTH, ROWS
from headrace.wire.tensors import pack_bytes

__all__ = ["KINDS", "Integers", "SyntheticInputs", "choices"]

KINDS = 3
"""Rows that differ; row i of a batch is of kind ``i % KINDS``."""

SCALES = (1.0, 4.0, 2.0)
"""Floats of a kind lie between 0 and its scale: a model whose answer depends on the
range of the whole batch gives itself away."""

SIZES_ALIKE = (2, 1, 16, 64)
"""Sizes tried for every variable dimension alike."""

NAMES_VARIED_MAX = 6
"""At most so many dimensions are tried as the one that is larger than the others."""


ELEMENTS_MAX = 1 << 26
"""Most elements of a made-up row: no record carries as many, and a file that asks for
more must not cost the process its memory."""


class Integers(Enum):
    """Values of integer inputs. An index may lie outside a table, a count may ask for
    much: 0 and 1 are the safest guesses."""

    MIXED = (0, 1)
    ONES = (1, 1)
    ZEROS = (0, 0)


class Choice(NamedTuple):
    sizes: Mapping[str, int]
    integers: Integers


class SyntheticInputs:
    """Inputs of one choice, for any number of rows."""

    def __init__(self, layout: Layout, dimensions: Dimensions, choice: Choice) -> None:
        self._layout = layout
        self._dimensions = dimensions
        self._choice = choice

    def row(self, kind: int, length: int) -> dict[str, Array]:
        """Arrays of one row; ``length`` on the padded axis, if there is one.

        Raises :class:`headrace.runtime.RunFailed` for a row that is too large.
        """
        return {
            spec.name: self._array(spec, kind, length)
            for spec in self._layout.signature.inputs
        }

    def batch(self, lengths: list[int], kinds: int = KINDS) -> list[BatchInput]:
        """A batch of one-row members with these lengths, of so many kinds."""
        rows = [self.row(i % kinds, length) for i, length in enumerate(lengths)]
        return [self._input(spec, rows) for spec in self._layout.signature.inputs]

    def _input(self, spec: TensorSpec, rows: list[dict[str, Array]]) -> BatchInput:
        arrays = [row[spec.name] for row in rows]
        axis = self._layout.batch_axis(spec.name)
        if axis is None:
            arrays = arrays[:1]
        padding = self._layout.padding
        marks = {axis: ROWS}
        if padding and spec.name in padding.input_axes:
            marks[padding.input_axes[spec.name]] = LENGTH
        shape = tuple(marks.get(at, n) for at, n in enumerate(arrays[0].shape))
        contents = b"".join(_raw(spec, array) for array in arrays)
        return BatchInput(spec.name, spec.datatype, shape, contents)

    def _array(self, spec: TensorSpec, kind: int, length: int) -> Array:
        axis = self._layout.batch_axis(spec.name)
        if axis is None:
            kind = 0  # shared by the batch
        padding = self._layout.padding
        padded = padding.input_axes.get(spec.name) if padding else None
        shape = [
            1 if at == axis
            else length if at == padded
            else self._choice.sizes[_key(spec, self._dimensions, at)]
            if extent == VARIABLE
            else extent
            for at, extent in enumerate(spec.shape)
        ]  # fmt: skip
        if prod(shape) > ELEMENTS_MAX:
            text = f"a row of input {spec.name!r} has more than {ELEMENTS_MAX} elements"
            raise RunFailed(FailureKind.MEMORY, text)
        random = np.random.default_rng([kind, len(spec.name), *spec.name.encode()])
        return _values(spec, shape, random, kind, self._choice.integers)


def choices(layout: Layout, dimensions: Dimensions) -> Iterator[Choice]:
    """Choices of sizes and integers, likeliest first."""
    keys = list(
        dict.fromkeys(
            _key(spec, dimensions, axis)
            for spec in layout.signature.inputs
            for axis, extent in enumerate(spec.shape)
            if extent == VARIABLE
        )
    )
    sizes = [dict.fromkeys(keys, size) for size in SIZES_ALIKE[: 4 if keys else 1]]
    if len(keys) > 1:
        varied = [dict.fromkeys(keys, 1) | {key: 2} for key in keys[:NAMES_VARIED_MAX]]
        sizes[2:2] = varied
    for each in sizes:
        for integers in Integers:
            yield Choice(each, integers)


def _key(spec: TensorSpec, dimensions: Dimensions, axis: int) -> str:
    """Dimensions of one name have one size; those without a name stand alone."""
    return dimensions[spec.name][axis] or f"{spec.name}.{axis}"


def _values(
    spec: TensorSpec,
    shape: list[int],
    random: np.random.Generator,
    kind: int,
    integers: Integers,
) -> Array:
    if spec.datatype is Datatype.BYTES:
        texts = np.empty(shape, np.object_)
        texts[...] = f"row {kind}"
        return texts
    floats = random.uniform(0, SCALES[kind], shape)
    if spec.datatype is Datatype.BF16:
        return (floats.astype("<f4").view("<u4") >> 16).astype("<u2")
    numpy_type = NUMPY_TYPES[spec.datatype]
    if numpy_type.kind == "f":
        return floats.astype(numpy_type)
    low, high = integers.value
    return random.integers(low, high + 1, shape).astype(numpy_type)


def _raw(spec: TensorSpec, array: Array) -> bytes:
    if spec.datatype is Datatype.BYTES:
        return pack_bytes(str(element).encode() for element in array.flat)
    return array.tobytes()
