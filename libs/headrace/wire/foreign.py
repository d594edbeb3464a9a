"""A request's value as any producer of the protocol may write it.

Inputs in any order, typed ``contents`` or raw ones, nothing checked yet: what comes
out is in the order of the signature, raw, and fits the served version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import NamedTuple

from google.protobuf.message import DecodeError

from headrace.domain import (
    Datatype,
    PayloadRef,
    ServedVersion,
    Tensor,
    TensorSpec,
)
from headrace.errors import RequestError, UndecodableRecord
from headrace.wire._generated import open_inference_pb2 as oip
from headrace.wire.compatibility import Compatibility, compatibility
from headrace.wire.payloads import views_of
from headrace.wire.tensors import check_shape, check_size, pack, pack_bytes

__all__ = ["Contents", "Inputs", "raw_inputs", "read_foreign", "read_inputs"]

InputTensor = oip.ModelInferRequest.InferInputTensor

_FIELDS = {
    Datatype.BOOL: "bool_contents",
    Datatype.INT8: "int_contents",
    Datatype.INT16: "int_contents",
    Datatype.INT32: "int_contents",
    Datatype.INT64: "int64_contents",
    Datatype.UINT8: "uint_contents",
    Datatype.UINT16: "uint_contents",
    Datatype.UINT32: "uint_contents",
    Datatype.UINT64: "uint64_contents",
    Datatype.FP32: "fp32_contents",
    Datatype.FP64: "fp64_contents",
    Datatype.BYTES: "bytes_contents",
}


class Contents(NamedTuple):
    """What a request's value holds for the version that will run it."""

    served: ServedVersion
    compatibility: Compatibility
    tensors: tuple[bytes | memoryview, ...]
    client_id: str
    payload: PayloadRef | None = None
    """Where the tensors are, if they are not here."""


def read_foreign(
    value: bytes,
    model: str,
    version: str,
    version_of: Callable[[str, str], ServedVersion],
    payload: PayloadRef | None = None,
) -> Contents:
    """``version`` is the header's, else the value's own counts. With ``payload`` the
    value describes its inputs alone, in the order of the signature.

    Raises :class:`headrace.errors.RequestError`.
    """
    message = _message(value)
    if message.model_name not in ("", model):
        raise RequestError(
            f"the value names model {message.model_name[:120]!r}, but this is the "
            f"topic of {model!r}"
        )
    served = version_of(model, version or message.model_version)
    _check_outputs(message, served)
    if payload is not None:
        return _referenced(message, served, payload)
    inputs = _by_name(message, served)
    ordered = [inputs[spec.name] for spec in served.signature.inputs]
    shapes = [shape for shape, _ in ordered]
    tensors = tuple(raw for _, raw in ordered)
    return Contents(served, compatibility(served, shapes, tensors), tensors, message.id)


class Inputs(NamedTuple):
    """What a value asks of the version that will run it. ``tensors`` are in the order
    of its signature, without data where ``payload`` says that they are in the store."""

    tensors: tuple[Tensor, ...]
    compatibility: Compatibility
    payload: PayloadRef | None


def read_inputs(
    value: bytes, served: ServedVersion, payload: PayloadRef | None
) -> Inputs:
    """Of a value, whichever model it names, that fits ``served``.

    Raises :class:`headrace.errors.RequestError`, and
    :class:`headrace.errors.UndecodableRecord` for what is no request.
    """
    message = _message(value)
    specs = served.signature.inputs
    if payload is not None:
        referenced = _referenced(message, served, payload)
        described = tuple(
            Tensor(spec.name, spec.datatype, tuple(tensor.shape), b"")
            for spec, tensor in zip(specs, message.inputs, strict=True)
        )
        return Inputs(described, referenced.compatibility, referenced.payload)
    inputs = _by_name(message, served)
    tensors = tuple(
        Tensor(spec.name, spec.datatype, *inputs[spec.name]) for spec in specs
    )
    shapes = [each.shape for each in tensors]
    key = compatibility(served, shapes, [each.data for each in tensors])
    return Inputs(tensors, key, None)


def raw_inputs(
    value: bytes, payload: PayloadRef | None = None, content: memoryview | None = None
) -> tuple[Tensor, ...]:
    """The inputs of a value as they stand in it, typed contents as raw ones, or in the
    ``content`` of the object that ``payload`` names; held against no signature.

    Raises :class:`headrace.errors.RequestError`, and
    :class:`headrace.errors.UndecodableRecord` for what is no request.
    """
    message = _message(value)
    try:
        specs = [
            TensorSpec(each.name, Datatype(each.datatype), tuple(each.shape))
            for each in message.inputs
        ]
        raws: list[bytes | memoryview] = list(message.raw_input_contents)
        if payload is not None:
            sizes = _sizes(specs, [spec.shape for spec in specs], payload)
            views = views_of(payload._replace(sizes=sizes), content or memoryview(b""))
            raws = list(views)
        elif not raws:
            raws = [_typed(*each) for each in zip(specs, message.inputs, strict=True)]
        return tuple(
            Tensor(spec.name, spec.datatype, spec.shape, raw)
            for spec, raw in zip(specs, raws, strict=True)
        )
    except ValueError as error:
        raise UndecodableRecord(f"no inference.ModelInferRequest: {error}") from error


def _message(value: bytes) -> oip.ModelInferRequest:
    try:
        return oip.ModelInferRequest.FromString(value)
    except DecodeError as error:
        raise UndecodableRecord(
            f"the value is no inference.ModelInferRequest: {error}"
        ) from error


def _check_outputs(message: oip.ModelInferRequest, served: ServedVersion) -> None:
    """A reply holds every output; what it would not hold is refused."""
    names = [spec.name for spec in served.signature.outputs]
    for output in message.outputs:
        if output.name not in names:
            raise RequestError(
                f"unknown output '{output.name[:120]}', model {served.model} version "
                f"{served.version} gives {_listed(names)}"
            )
        if "classification" in output.parameters:
            raise RequestError(
                f"output '{output.name}': classification is not supported, read the "
                "scores and sort them"
            )


def _referenced(
    message: oip.ModelInferRequest, served: ServedVersion, payload: PayloadRef
) -> Contents:
    specs = served.signature.inputs
    if message.raw_input_contents or [each.name for each in message.inputs] != [
        spec.name for spec in specs
    ]:
        raise RequestError(
            "a value whose tensors are in the payload store has no contents itself and "
            f"describes {_listed(spec.name for spec in specs)} in this order"
        )
    shapes = []
    for spec, tensor in zip(specs, message.inputs, strict=True):
        if tensor.datatype != spec.datatype:
            raise RequestError(
                f"input '{spec.name}' has datatype {tensor.datatype[:20]!r}, expected "
                f"{spec.datatype}"
            )
        if served.batch_axes and spec.name not in served.batch_axes:
            raise RequestError(
                f"input '{spec.name}' has no batch axis, so its value decides which "
                "requests share a batch: it cannot be in the payload store"
            )
        shapes.append(check_shape(spec.name, list(tensor.shape)))
    sizes = _sizes(specs, shapes, payload)
    return Contents(
        served,
        compatibility(served, shapes, [b""] * len(shapes)),
        (),
        message.id,
        payload._replace(sizes=sizes),
    )


def _sizes(
    specs: Sequence[TensorSpec], shapes: Sequence[tuple[int, ...]], payload: PayloadRef
) -> tuple[int, ...]:
    """Bytes of each tensor, which follow from the shapes where there are no strings."""
    units = [spec.datatype.item_bytes for spec in specs]
    known = [
        None if unit is None else unit * prod(shape)
        for unit, shape in zip(units, shapes, strict=True)
    ]
    whole = [size for size in known if size is not None]
    sizes = payload.sizes
    if len(sizes) == 1 and len(whole) == len(specs):
        sizes = tuple(whole)
    if (
        len(sizes) != len(specs)
        or any(
            expected not in (None, size)
            for expected, size in zip(known, sizes, strict=False)
        )
        or sum(sizes) != payload.length
    ):
        expected = ", ".join("any" if size is None else str(size) for size in known)
        raise RequestError(
            f"the reference is of tensors of {', '.join(map(str, payload.sizes))} "
            f"bytes, expected {expected}"
        )
    return sizes


def _by_name(
    message: oip.ModelInferRequest, served: ServedVersion
) -> dict[str, tuple[tuple[int, ...], bytes]]:
    """Shape and raw contents of every input of the signature."""
    raws = message.raw_input_contents
    if raws and len(raws) != len(message.inputs):
        raise RequestError(
            f"raw_input_contents has {len(raws)} entries for {len(message.inputs)} "
            "inputs, expected one each"
        )
    specs = {spec.name: spec for spec in served.signature.inputs}
    found: dict[str, tuple[tuple[int, ...], bytes]] = {}
    for index, tensor in enumerate(message.inputs):
        spec = specs.get(tensor.name)
        if spec is None:
            raise RequestError(
                f"unknown input '{tensor.name[:120]}', model {served.model} version "
                f"{served.version} takes {_listed(specs)}"
            )
        if tensor.name in found:
            raise RequestError(f"input '{tensor.name}' is given twice")
        if tensor.datatype != spec.datatype:
            raise RequestError(
                f"input '{tensor.name}' has datatype {tensor.datatype[:20]!r}, "
                f"expected {spec.datatype}"
            )
        shape = check_shape(tensor.name, list(tensor.shape))
        if not raws:
            raw = _typed(spec, tensor)
        elif tensor.HasField("contents"):
            raise RequestError(
                f"input '{tensor.name}' has contents beside raw_input_contents"
            )
        else:
            raw = raws[index]
        check_size(tensor.name, spec.datatype, shape, raw)
        found[tensor.name] = shape, raw
    if missing := specs.keys() - found.keys():
        raise RequestError(
            f"missing input {_listed(sorted(missing))}, model {served.model} version "
            f"{served.version} takes {_listed(specs)}"
        )
    return found


def _typed(spec: TensorSpec, tensor: InputTensor) -> bytes:
    field = _FIELDS.get(spec.datatype)
    if field is None:
        raise RequestError(
            f"input '{spec.name}' is {spec.datatype}, which travels in "
            "raw_input_contents alone"
        )
    elements = getattr(tensor.contents, field)
    if spec.datatype is Datatype.BYTES:
        return pack_bytes(elements)
    return pack(spec.name, spec.datatype, elements)


def _listed(input_names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in input_names)
