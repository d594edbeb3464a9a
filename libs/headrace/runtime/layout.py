"""Which axis of which tensor is the batch, and which one is padded.

Settled when a version is loaded, from its signature, the names of its dimensions and
its manifest. What cannot be settled is refused with the key of ``model.toml`` that
would settle it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec
import numpy as np

from headrace.domain import (
    BATCH_AXIS_NONE,
    VARIABLE,
    Datatype,
    Manifest,
    Padding,
    PaddingManifest,
    Signature,
    TensorSpec,
)
from headrace.errors import ModelRefused
from headrace.runtime.session import NUMPY_TYPES

__all__ = ["Layout", "settle_layout"]

Dimensions = Mapping[str, Sequence[str]]


class Layout(msgspec.Struct, frozen=True):
    """How requests of a version are laid side by side."""

    signature: Signature
    batch_axes: dict[str, int]
    """As :attr:`headrace.domain.ServedVersion.batch_axes`."""

    padding: Padding | None

    def batch_axis(self, name: str) -> int | None:
        """None: the tensor has none."""
        axis = self.batch_axes.get(name, BATCH_AXIS_NONE)
        return None if axis == BATCH_AXIS_NONE else axis


def settle_layout(
    signature: Signature, dimensions: Dimensions, manifest: Manifest
) -> Layout:
    """Raises :class:`headrace.errors.ModelRefused` unless the version can batch, or
    ``max_batch = 1`` says that it need not."""
    found = _batch_axes(signature, dimensions, manifest)
    if not found.problems:
        padding = (
            _padding(signature, dimensions, manifest.padding, found.axes)
            if manifest.padding
            else None
        )
        return Layout(signature, found.axes, padding)
    if manifest.max_batch > 1:
        raise ModelRefused(
            f"the batch axis is not known: {'; '.join(found.problems)}. In model.toml, "
            f"say batch_axis = {{ {_example(signature)} }} with the axis of each "
            "tensor (-1: none), or max_batch = 1 to run requests one by one"
        )
    if manifest.padding:
        raise ModelRefused("[padding] needs a model with a batch axis")
    return Layout(signature, {}, None)


class _Found(NamedTuple):
    axes: dict[str, int]
    problems: list[str]


def _batch_axes(
    signature: Signature, dimensions: Dimensions, manifest: Manifest
) -> _Found:
    specs = (*signature.inputs, *signature.outputs)
    declared = manifest.batch_axis
    _check_declared(declared, specs)
    axes: dict[str, int] = {}
    problems: list[str] = []
    names: dict[str, str] = {}
    for spec in specs:
        axes[spec.name] = declared.get(spec.name, _default_axis(spec))
        if spec.name in declared:
            continue
        if spec.shape and axes[spec.name] == BATCH_AXIS_NONE:
            problems.append(f"dimension 0 of {spec.name!r} is fixed at {spec.shape[0]}")
        elif spec.shape and (name := dimensions[spec.name][0]):
            names.setdefault(name, spec.name)
    if len(names) > 1:
        called = " and ".join(f"{name!r} in {of!r}" for name, of in names.items())
        problems.append(f"dimension 0 is called {called}")
    if all(axes[spec.name] == BATCH_AXIS_NONE for spec in signature.inputs):
        problems.append("no input has one")
    problems += [
        f"output {spec.name!r} has none, so it cannot be shared out"
        for spec in signature.outputs
        if axes[spec.name] == BATCH_AXIS_NONE
        and (spec.name in declared or not spec.shape)
    ]
    return _Found(axes, problems)


def _default_axis(spec: TensorSpec) -> int:
    return 0 if spec.shape and spec.shape[0] == VARIABLE else BATCH_AXIS_NONE


def _check_declared(declared: Mapping[str, int], specs: Sequence[TensorSpec]) -> None:
    by_name = {spec.name: spec for spec in specs}
    for name, axis in declared.items():
        spec = by_name.get(name)
        if spec is None:
            raise ModelRefused(
                f"batch_axis names {name!r}, which is no tensor of the model; there "
                f"are {', '.join(map(repr, by_name))}"
            )
        # A file may leave a shape out, which reads like rank 0: the probe tells.
        if axis == BATCH_AXIS_NONE or not spec.shape:
            continue
        if axis >= len(spec.shape):
            raise ModelRefused(
                f"batch_axis.{name} = {axis}, but {name!r} has the axes 0 to "
                f"{len(spec.shape) - 1}"
            )
        if spec.shape[axis] != VARIABLE:
            raise ModelRefused(
                f"batch_axis.{name} = {axis}, but that dimension is fixed at "
                f"{spec.shape[axis]}"
            )


def _example(signature: Signature) -> str:
    names = [spec.name for spec in (*signature.inputs, *signature.outputs)]
    return ", ".join(f'"{name}" = ...' for name in names[:4])


def _padding(
    signature: Signature,
    dimensions: Dimensions,
    wanted: PaddingManifest,
    batch_axes: Mapping[str, int],
) -> Padding:
    input_axes = _axes_named(wanted.axis, signature.inputs, dimensions)
    if not input_axes:
        names = chain.from_iterable(dimensions[spec.name] for spec in signature.inputs)
        known = sorted(set(names) - {""})
        raise ModelRefused(
            f"padding.axis {wanted.axis!r} is no dimension of an input; the file "
            f"names {', '.join(map(repr, known)) or 'none'}"
        )
    output_axes = _axes_named(wanted.axis, signature.outputs, dimensions)
    for name, axis in (input_axes | output_axes).items():
        if batch_axes[name] in {axis, BATCH_AXIS_NONE}:
            raise ModelRefused(
                f"tensor {name!r} has the padded axis {wanted.axis!r}, but no batch "
                "axis beside it"
            )
    strange = sorted(set(wanted.values) - set(input_axes))
    if strange:
        raise ModelRefused(
            f"padding.values names {strange[0]!r}, which is no input with the axis "
            f"{wanted.axis!r}"
        )
    values = {name: wanted.values.get(name, 0.0) for name in input_axes}
    for spec in signature.inputs:
        if spec.name in values:
            _check_filler(spec, values[spec.name])
    return Padding(
        wanted.axis, values, input_axes, output_axes, wanted.edges, wanted.tokens_max
    )


def _axes_named(
    axis: str, specs: Sequence[TensorSpec], dimensions: Dimensions
) -> dict[str, int]:
    axes: dict[str, int] = {}
    for spec in specs:
        found = [i for i, name in enumerate(dimensions[spec.name]) if name == axis]
        if len(found) > 1:
            raise ModelRefused(
                f"tensor {spec.name!r} has the padded axis {axis!r} more than once"
            )
        if found:
            axes[spec.name] = found[0]
    return axes


def _check_filler(spec: TensorSpec, value: float) -> None:
    if spec.datatype in {Datatype.BYTES, Datatype.BF16}:
        raise ModelRefused(f"{spec.datatype} input {spec.name!r} cannot be padded")
    kind = NUMPY_TYPES[spec.datatype]
    with np.errstate(all="ignore"):
        kept = np.array(value).astype(kind)
    if not np.isfinite(kept) or (kind.kind in "iub" and kept != value):
        raise ModelRefused(
            f"padding.values.{spec.name} = {value:g} does not fit {spec.datatype}"
        )
