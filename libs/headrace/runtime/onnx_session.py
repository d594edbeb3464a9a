"""An ONNX file in ONNX Runtime."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from re import compile as pattern
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from headrace.domain import VARIABLE, Datatype, Signature, TensorSpec
from headrace.errors import ModelRefused
from headrace.runtime.device import Device
from headrace.runtime.failures import (
    FailureKind,
    RunFailed,
    clean_text,
    kind_of_text,
)
from headrace.runtime.session import NUMPY_TYPES, Array

__all__ = ["OnnxSession"]

_DATATYPES = {
    "tensor(bool)": Datatype.BOOL,
    "tensor(uint8)": Datatype.UINT8,
    "tensor(uint16)": Datatype.UINT16,
    "tensor(uint32)": Datatype.UINT32,
    "tensor(uint64)": Datatype.UINT64,
    "tensor(int8)": Datatype.INT8,
    "tensor(int16)": Datatype.INT16,
    "tensor(int32)": Datatype.INT32,
    "tensor(int64)": Datatype.INT64,
    "tensor(float16)": Datatype.FP16,
    "tensor(bfloat16)": Datatype.BF16,
    "tensor(float)": Datatype.FP32,
    "tensor(double)": Datatype.FP64,
    "tensor(string)": Datatype.BYTES,
}
_ONNX_BF16 = 16
"""``TensorProto.BFLOAT16``."""

_GENERATED_NAME = pattern(r"unk__\d+|DynamicDimension\.\d+|\?|-1")
"""Names that converters give to dimensions that have none: never equal on purpose."""

_SENDERS_FAULT = (ort_errors.InvalidArgument, ValueError, TypeError)
_DEVICE_LOST = (ort_errors.DeviceReset,)

_ERRORS: tuple[type[Exception], ...] = (
    *(
        each
        for each in vars(ort_errors).values()
        if isinstance(each, type) and issubclass(each, Exception)
    ),
    # What the binding raises itself: for a missing input, a C++ exception of a
    # kernel (bad_alloc comes as MemoryError), an object it cannot take.
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)


class OnnxSession:
    """Loads the file at once; raises :class:`headrace.errors.ModelRefused` when it
    cannot run here, or takes or gives what is no tensor."""

    platform = "onnx_onnxv1"

    def __init__(self, model: Path, device: Device) -> None:
        self.provider = device.provider.value
        self._model = model
        self._device = device
        self._files = _stamps(model)
        self._session = self._load()
        inputs = self._session.get_inputs()
        outputs = self._session.get_outputs()
        self.signature = Signature(
            tuple(_spec("input", each) for each in inputs),
            tuple(_spec("output", each) for each in outputs),
        )
        self.dimensions: Mapping[str, Sequence[str]] = {
            each.name: tuple(map(_name, each.shape)) for each in [*inputs, *outputs]
        }
        self._outputs = [spec.name for spec in self.signature.outputs]
        self._needs_ort_values = any(
            spec.datatype is Datatype.BF16
            for spec in (*self.signature.inputs, *self.signature.outputs)
        )
        self._options = onnxruntime.RunOptions()
        self._must_shrink = False

    def _load(self) -> onnxruntime.InferenceSession:
        device = self._device
        try:
            session = onnxruntime.InferenceSession(
                str(self._model),
                device.session_options(),
                providers=device.execution_providers,
            )
        except _ERRORS as error:
            raise ModelRefused(
                f"ONNX Runtime cannot load the file: {clean_text(str(error))}"
            ) from error
        taken = session.get_providers()[0]
        if taken != device.execution_providers[0]:
            raise ModelRefused(
                f"the model would run on {taken} instead of {self.provider}"
            )
        return session

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        self._options = onnxruntime.RunOptions()
        if self._must_shrink:
            self._must_shrink = False
            self._options.add_run_config_entry(
                "memory.enable_memory_arena_shrinkage", self._device.arenas
            )
        run = self._run_ort_values if self._needs_ort_values else self._run_arrays
        try:
            return run(inputs)
        except _ERRORS as error:
            raise _translated(error) from error

    def stop(self) -> None:
        self._options.terminate = True

    def shrink(self) -> None:
        self._must_shrink = True

    def rebuild(self) -> None:
        if _stamps(self._model) != self._files:
            raise ModelRefused("its files have changed since they were loaded")
        del self._session  # its memory first
        self._session = self._load()

    def close(self) -> None:
        del self._session

    def _run_arrays(self, inputs: Mapping[str, Array]) -> list[Array]:
        # A rank-0 result comes as a numpy scalar.
        return [
            np.asarray(output)
            for output in self._session.run(self._outputs, inputs, self._options)
        ]

    def _run_ort_values(self, inputs: Mapping[str, Array]) -> list[Array]:
        """With ``BF16``, which travels as bits in the arrays."""
        datatypes = {spec.name: spec.datatype for spec in self.signature.inputs}
        values = {
            name: _ort_value(datatypes.get(name), array)
            for name, array in inputs.items()
        }
        outputs = self._session.run_with_ort_values(
            self._outputs, values, self._options
        )
        return [
            _bits(output) if spec.datatype is Datatype.BF16 else output.numpy()
            for spec, output in zip(self.signature.outputs, outputs, strict=True)
        ]


def _stamps(model: Path) -> list[tuple[str, int, int]]:
    """The files beside the model, by size and time: among them are its weights."""
    found = [(each.name, each.stat()) for each in sorted(model.parent.iterdir())]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in found]


def _spec(kind: str, node: Any) -> TensorSpec:
    datatype = _DATATYPES.get(node.type)
    if datatype is None:
        remedy = (
            "; a classifier converted with zipmap=False gives tensors"
            if node.type.startswith("seq(map(")
            else ""
        )
        raise ModelRefused(
            f"{kind} {node.name!r} is of type {node.type}, which the protocol cannot "
            f"carry as a tensor{remedy}"
        )
    shape = tuple(
        size if isinstance(size, int) and size > 0 else VARIABLE for size in node.shape
    )
    return TensorSpec(node.name, datatype, shape)


def _name(size: object) -> str:
    if isinstance(size, str) and not _GENERATED_NAME.fullmatch(size):
        return size
    return ""


def _ort_value(datatype: Datatype | None, array: Array) -> onnxruntime.OrtValue:
    if datatype is Datatype.BF16:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
            np.ascontiguousarray(array), _ONNX_BF16
        )
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def _bits(value: onnxruntime.OrtValue) -> Array:
    shape = value.shape()
    count = int(np.prod(shape, dtype=np.int64))
    item = NUMPY_TYPES[Datatype.BF16]
    if not count:
        return np.empty(shape, item)
    raw = ctypes.string_at(value.data_ptr(), count * item.itemsize)
    return np.frombuffer(raw, item).reshape(shape)


def _translated(error: Exception) -> RunFailed:
    text = str(error)
    if isinstance(error, _DEVICE_LOST):
        kind: FailureKind | None = FailureKind.DEVICE
    elif isinstance(error, MemoryError):
        kind = FailureKind.MEMORY
    else:
        kind = kind_of_text(text)
    if kind is None:
        is_input = isinstance(error, _SENDERS_FAULT)
        kind = FailureKind.INPUT if is_input else FailureKind.MODEL
    return RunFailed(kind, clean_text(text))
