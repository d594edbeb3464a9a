"""The body of an inference request: JSON, JSON with binary tensors, or raw bytes.

Checked here once, against the model's signature: whatever does not fit raises
:class:`headrace.errors.RequestError` with the tensor, what was expected and what came.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import NamedTuple

import msgspec

from headrace.domain import (
    BATCH_AXIS_NONE,
    VARIABLE,
    Datatype,
    Priority,
    ServedVersion,
    Tensor,
    TensorSpec,
)
from headrace.errors import RequestError
from headrace.wire import RequestForm
from headrace.wire.compatibility import Compatibility, compatibility
from headrace.wire.tensors import (
    HAVE_RULES,
    check_raw,
    check_shape,
    pack_bytes,
    parse_json_data,
)
from services.ingress.body import (
    Body,
    BodyRefused,
    Input,
    InputParameters,
    Output,
    OutputParameters,
    RequestParameters,
    read_id,
    read_json,
)
from services.ingress.bounds import BodyBounds
from services.ingress.head import Head, checked_timeout_us, clipped, named_priority

__all__ = ["Likeness", "Parsed", "RequestParser", "WantedOutput"]

Bytes = bytes | bytearray | memoryview

_NUMBERED_PRIORITY: dict[int, Priority | None] = dict(enumerate([None, *Priority]))
"""Triton's numbers: 0 is the default, 1 the most urgent."""

KEYS_MAX = 1024
"""Compatibility keys are remembered for so many shapes, then all are forgotten."""

LAYOUTS_MAX = 256
LAYOUT_BYTES_MAX = 4096
"""JSON parts whose tensors are all binary are remembered by their bytes, up to this
size, and so many of them: then all are forgotten."""

_NO_JSON_FORM = frozenset({Datatype.FP16, Datatype.BF16})


class WantedOutput(NamedTuple):
    """An output that the client asked for, and in which form."""

    name: str
    binary: bool


class Parsed(msgspec.Struct, gc=False):
    """A checked request; ``tensors`` in the order of the signature's inputs."""

    tensors: tuple[Tensor, ...]
    key: Compatibility
    wanted: tuple[WantedOutput, ...]
    size: int
    """Raw bytes of the tensors."""

    client_id: str = ""
    priority: Priority | None = None
    timeout_us: int = 0
    like: Likeness | None = None
    """The same object for all requests that differ in their tensors' values alone."""


class Likeness:
    """Holds what others work out once for requests that are alike."""

    __slots__ = ("forms",)

    def __init__(self) -> None:
        self.forms: dict[str, RequestForm] = {}
        """Of their records, by tenant."""


class _Place(NamedTuple):
    """An input, and where its contents lie in the binary part."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    start: int
    end: int
    has_rules: bool
    """Whether its contents can be wrong though their size is right."""


class _Layout(NamedTuple):
    """What a checked JSON part says; ``parsed`` lacks the tensors."""

    places: tuple[_Place, ...]
    size: int
    parsed: Parsed

    def fill(self, binary: memoryview) -> Parsed:
        tensors = []
        for name, datatype, shape, start, end, has_rules in self.places:
            value = binary[start:end]
            if has_rules:
                check_raw(name, datatype, shape, value)
            tensors.append(Tensor(name, datatype, shape, value))
        known = self.parsed
        return Parsed(
            tuple(tensors),
            known.key,
            known.wanted,
            self.size,
            "",
            known.priority,
            known.timeout_us,
            known.like,
        )


_NO_BINARY = memoryview(b"")
_NO_PARAMETERS = RequestParameters()
_NO_INPUT_PARAMETERS = InputParameters()
_NO_OUTPUT_PARAMETERS = OutputParameters()


class RequestParser:
    """Checks bodies against one version's signature. What depends on shapes alone is
    worked out once: requests of one client look alike."""

    def __init__(
        self,
        served: ServedVersion,
        payload_bytes_max: int,
        element_text_bytes: int,
    ) -> None:
        self.bounds = BodyBounds(
            served.signature, payload_bytes_max, element_text_bytes
        )
        self._served = served
        self._inputs = {spec.name: spec for spec in served.signature.inputs}
        self._outputs = served.signature.outputs
        self._everything = {
            False: tuple(
                WantedOutput(spec.name, binary=False) for spec in self._outputs
            ),
            True: tuple(WantedOutput(spec.name, binary=True) for spec in self._outputs),
        }
        # The value of an input without batch axis belongs to the key.
        self._keys_depend_on_values = bool(served.batch_axes) and any(
            served.batch_axes.get(name, BATCH_AXIS_NONE) == BATCH_AXIS_NONE
            for name in self._inputs
        )
        self._keys: dict[tuple[tuple[int, ...], ...], Compatibility] = {}
        self._layouts: dict[bytes, _Layout] = {}

    def parse(self, head: Head, body: Bytes) -> Parsed:
        """A decompressed ``body``, checked."""
        size = head.json_bytes
        if size == 0:
            return self._raw(body)
        if size is None:
            read, binary = read_json(body, self.bounds, whole=True), _NO_BINARY
        elif size > len(body):
            raise RequestError(
                f"Inference-Header-Content-Length is {size}, but the body has "
                f"{len(body)} bytes"
            )
        else:
            binary = memoryview(body)[size:]
            if size <= LAYOUT_BYTES_MAX:
                json_part = bytes(body[:size])
                layout = self._layouts.get(json_part)
                if layout is not None and layout.size == len(binary):
                    return layout.fill(binary)
                return self._learned(json_part, binary)
            read = read_json(memoryview(body)[:size], self.bounds)
        return self._read(read, binary)

    def _learned(self, json_part: bytes, binary: memoryview) -> Parsed:
        body = read_json(json_part, self.bounds)
        parsed = self._read(body, binary)
        # An id makes the part one of its kind, and so do values inside it.
        if (
            not parsed.client_id
            and not self._keys_depend_on_values
            and all(given.data is msgspec.UNSET for given in body.inputs)
        ):
            if len(self._layouts) >= LAYOUTS_MAX:
                self._layouts.clear()
            self._layouts[json_part] = _layout_of(body, parsed, len(binary))
        return parsed

    def _read(self, body: Body, binary: memoryview) -> Parsed:
        try:
            return self._checked(body, binary)
        except RequestError as error:
            raise BodyRefused(error, body.id) from error

    def _checked(self, body: Body, binary: memoryview) -> Parsed:
        specs = self._inputs
        tensors: dict[str, Tensor] = {}
        at = 0
        for given in body.inputs:
            spec = specs.get(given.name)
            if spec is None:
                raise RequestError(
                    f"the model has no input {given.name[:100]!r}, its inputs are "
                    f"{_names(specs)}"
                )
            if given.name in tensors:
                raise RequestError(f"input {given.name!r} is given twice")
            tensors[given.name], at = _read_input(given, spec, binary, at)
        if at != len(binary):
            raise RequestError(
                f"the inputs' binary_data_size add up to {at} bytes, but {len(binary)} "
                "follow the JSON part"
            )
        if len(tensors) != len(specs):
            missing = [name for name in specs if name not in tensors]
            raise RequestError(f"the request lacks the model's input {_names(missing)}")
        ordered = tuple([tensors[name] for name in specs])
        parameters = body.parameters or _NO_PARAMETERS
        return Parsed(
            ordered,
            self._key(ordered),
            self._wanted(body.outputs, binary=parameters.binary_data_output),
            sum([len(tensor.data) for tensor in ordered]),
            read_id(body.id),
            _read_priority(parameters.priority),
            checked_timeout_us(parameters.timeout or 0),
        )

    def _key(self, tensors: tuple[Tensor, ...]) -> Compatibility:
        shapes = tuple([tensor.shape for tensor in tensors])
        key = self._keys.get(shapes)
        if key is None:
            key = compatibility(
                self._served, shapes, [tensor.data for tensor in tensors]
            )
            if not self._keys_depend_on_values:
                if len(self._keys) >= KEYS_MAX:
                    self._keys.clear()
                self._keys[shapes] = key
        return key

    def _wanted(
        self, outputs: list[Output] | None, *, binary: bool
    ) -> tuple[WantedOutput, ...]:
        if not outputs:
            everything = self._everything[binary]
            if not binary:
                self._check_json_forms(everything)
            return everything
        known = {spec.name for spec in self._outputs}
        wanted: dict[str, WantedOutput] = {}
        for output in outputs:
            if output.name not in known:
                raise RequestError(
                    f"the model has no output {output.name[:100]!r}, its outputs are "
                    f"{_names(spec.name for spec in self._outputs)}"
                )
            if output.name in wanted:
                raise RequestError(f"output {output.name!r} is asked for twice")
            wanted[output.name] = WantedOutput(
                output.name, _is_binary(output, binary=binary)
            )
        chosen = tuple(wanted.values())
        self._check_json_forms(chosen)
        return chosen

    def _check_json_forms(self, wanted: tuple[WantedOutput, ...]) -> None:
        as_json = {name for name, binary in wanted if not binary}
        for spec in self._outputs:
            if spec.datatype in _NO_JSON_FORM and spec.name in as_json:
                raise RequestError(
                    f"output '{spec.name}' is {spec.datatype}, which has no JSON form: "
                    "ask for it with the parameter binary_data or binary_data_output"
                )

    def _raw(self, body: Bytes) -> Parsed:
        """Without a JSON part the body is the only input's contents, one row."""
        if len(self._inputs) != 1:
            raise RequestError(
                "a raw request (Inference-Header-Content-Length: 0) needs a model with "
                f"one input, this one has {len(self._inputs)}"
            )
        (spec,) = self._inputs.values()
        axis = self._served.batch_axes.get(spec.name, BATCH_AXIS_NONE)
        shape = [1 if place == axis else dim for place, dim in enumerate(spec.shape)]
        tensor = _raw_tensor(spec, shape, body)
        return Parsed(
            (tensor,), self._key((tensor,)), self._everything[True], len(tensor.data)
        )


def _read_input(
    given: Input, spec: TensorSpec, binary: memoryview, at: int
) -> tuple[Tensor, int]:
    """The tensor, and where the next input's binary data begins."""
    name = given.name
    if given.datatype != spec.datatype:
        raise RequestError(
            f"input '{name}': datatype must be {spec.datatype}, got "
            f"{given.datatype[:40]!r}"
        )
    shape = check_shape(name, given.shape)
    parameters = given.parameters or _NO_INPUT_PARAMETERS
    if parameters.shared_memory_region is not None:
        raise RequestError(
            f"input '{name}': shared memory is not supported, send the data"
        )
    size = parameters.binary_data_size
    if size is None:
        if given.data is msgspec.UNSET:
            raise RequestError(
                f"input '{name}': expected data or the parameter binary_data_size, "
                "got neither"
            )
        data = parse_json_data(name, spec.datatype, shape, given.data)
        return Tensor(name, spec.datatype, shape, data), at
    if given.data is not msgspec.UNSET:
        raise RequestError(
            f"input '{name}': expected data or the parameter binary_data_size, got both"
        )
    end = at + size
    if not 0 <= size <= len(binary) - at:
        raise RequestError(
            f"input '{name}': binary_data_size is {clipped(size)}, but "
            f"{len(binary) - at} bytes of binary data are left for it"
        )
    value = binary[at:end]
    check_raw(name, spec.datatype, shape, value)
    return Tensor(name, spec.datatype, shape, value), end


def _layout_of(body: Body, parsed: Parsed, size: int) -> _Layout:
    starts: dict[str, int] = {}
    at = 0
    sizes = {tensor.name: len(tensor.data) for tensor in parsed.tensors}
    for given in body.inputs:
        starts[given.name] = at
        at += sizes[given.name]
    places = tuple(
        _Place(
            tensor.name,
            tensor.datatype,
            tensor.shape,
            starts[tensor.name],
            starts[tensor.name] + sizes[tensor.name],
            tensor.datatype in HAVE_RULES,
        )
        for tensor in parsed.tensors
    )
    return _Layout(
        places, size, msgspec.structs.replace(parsed, tensors=(), like=Likeness())
    )


def _is_binary(output: Output, *, binary: bool) -> bool:
    parameters = output.parameters or _NO_OUTPUT_PARAMETERS
    if parameters.classification is not None:
        raise RequestError(
            f"output '{output.name}': classification is not supported, ask for the "
            "scores and sort them"
        )
    if parameters.shared_memory_region is not None:
        raise RequestError(
            f"output '{output.name}': shared memory is not supported, read the data "
            "from the answer"
        )
    return binary if parameters.binary_data is None else parameters.binary_data


def _read_priority(given: int | str | None) -> Priority | None:
    if given is None:
        return None
    if isinstance(given, str):
        return named_priority(given)
    if given not in _NUMBERED_PRIORITY:
        raise RequestError(
            f"parameter priority must be 0 (default), 1 (realtime) to "
            f"{len(Priority)} (bulk), or a name, got {clipped(given)}"
        )
    return _NUMBERED_PRIORITY[given]


def _raw_tensor(spec: TensorSpec, shape: list[int], body: Bytes) -> Tensor:
    """``shape`` has at most one open dimension, which the body's length closes."""
    view: bytes | memoryview = memoryview(body)
    if spec.datatype is Datatype.BYTES:
        shape = [1 if dim == VARIABLE else dim for dim in shape]
        if prod(shape) != 1:
            raise RequestError(
                f"input '{spec.name}': a raw request gives one BYTES element, but the "
                f"shape {list(spec.shape)} (-1 is any size) asks for {prod(shape)}"
            )
        view = pack_bytes([bytes(view)])
    elif shape.count(VARIABLE) > 1:
        raise RequestError(
            f"input '{spec.name}': a raw request leaves the shape {list(spec.shape)} "
            "open (-1 is any size), send the shape in a JSON part"
        )
    elif VARIABLE in shape:
        item_bytes = spec.datatype.item_bytes
        assert item_bytes is not None
        step = item_bytes * prod(dim for dim in shape if dim != VARIABLE)
        if not view or len(view) % step:
            raise RequestError(
                f"input '{spec.name}': the raw body has {len(view)} bytes, expected a "
                f"multiple of {step} ({spec.datatype} {list(spec.shape)}, where -1 is "
                "any size)"
            )
        shape[shape.index(VARIABLE)] = len(view) // step
    checked = check_shape(spec.name, shape)
    check_raw(spec.name, spec.datatype, checked, view)
    return Tensor(spec.name, spec.datatype, checked, view)


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "(none)"
