"""Where an ONNX file wants weights read from, checked before anything opens it.

ONNX allows a tensor's bytes to lie in another file, named by a path. A path that
leaves the version folder would let a model read any file of the machine. ONNX Runtime
has a guard of its own; this one comes first, says which tensor, and also holds files
that exist by a symbolic link.

Only the fields that lead to ``external_data`` are described to protobuf; the rest of
the file stays unparsed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from headrace.errors import ModelRefused

__all__ = ["check_external_data"]

_BYTES = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
_MESSAGE = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
_REPEATED = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
_PACKAGE = "headrace.repository.onnx"

_MESSAGES: dict[str, dict[int, str]] = {
    "Model": {7: "Graph", 20: "Training", 25: "Function"},
    "Training": {1: "Graph", 2: "Graph"},
    "Function": {7: "Node", 11: "Attribute"},
    "Graph": {1: "Node", 5: "Tensor", 15: "Sparse"},
    "Node": {5: "Attribute"},
    "Attribute": {
        5: "Tensor",
        6: "Graph",
        10: "Tensor",
        11: "Graph",
        22: "Sparse",
        23: "Sparse",
    },
    "Sparse": {1: "Tensor", 2: "Tensor"},
    "Tensor": {8: "", 13: "Entry"},
    "Entry": {1: "", 2: ""},
}
"""Field numbers of ``onnx.proto`` by message; an empty type is a string, taken as
bytes. All repeated: protobuf reads a singular field as a list of one."""


def check_external_data(model: Path) -> None:
    """Raise :class:`headrace.errors.ModelRefused` unless every external tensor of
    the ONNX file lies in the file's own folder."""
    try:
        proto = _MODEL.FromString(model.read_bytes())
    except DecodeError as error:
        raise ModelRefused(f"{model.name} is not a readable ONNX file") from error
    for place in _places(proto):
        _check(place, model.parent)


class _Place(NamedTuple):
    tensor: str
    location: str


def _places(message: Message) -> Iterator[_Place]:
    """Every external location below ``message``, in the order of the file."""
    for field, values in message.ListFields():
        if field.type != _MESSAGE:
            continue
        for value in values:
            if value.DESCRIPTOR.name != "Entry":
                yield from _places(value)
            elif _text(value.f1) == "location":
                yield _Place(_text(getattr(message, "f8", [])), _text(value.f2))


def _text(values: Sequence[bytes]) -> str:
    # Of a repeated singular field the last value counts.
    return values[-1].decode("utf-8", "replace") if values else ""


def _check(place: _Place, folder: Path) -> None:
    path = PurePosixPath(place.location)
    leaves = path.is_absolute() or ".." in path.parts or "\\" in place.location
    # The same sentence whether or not the target exists.
    if leaves or "\0" in place.location or not _is_inside(folder, path):
        raise ModelRefused(
            f"tensor {place.tensor!r} keeps its data outside the version folder; "
            "external data must be a relative path below it"
        )
    if not (folder / path).is_file():
        raise ModelRefused(
            f"tensor {place.tensor!r} keeps its data in {place.location!r}, which is "
            "missing in the version folder"
        )


def _is_inside(folder: Path, path: PurePosixPath) -> bool:
    return (folder / path).resolve().is_relative_to(folder.resolve())


def _described() -> type[Message]:
    file = descriptor_pb2.FileDescriptorProto(
        name="headrace/repository/onnx.proto", package=_PACKAGE, syntax="proto2"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, kind in fields.items():
            message.field.add(
                name=f"f{number}",
                number=number,
                label=_REPEATED,
                type=_MESSAGE if kind else _BYTES,
                type_name=f".{_PACKAGE}.{kind}" if kind else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"{_PACKAGE}.Model")
    )


_MODEL = _described()
