"""A record's tensors in few words, for people."""

from __future__ import annotations

import msgspec

from headrace.domain import Datatype, Tensor
from headrace.errors import RequestError, UndecodableRecord
from headrace.wire import decode_plain_request, pack_bytes, to_json, unpack_bytes

__all__ = ["Payload", "TensorSummary", "payload_of", "summary_of"]

_ELEMENTS = 8
_HEX_BYTES = 32


class TensorSummary(msgspec.Struct, frozen=True):
    """``first``: the first elements as JSON, or a word on why there are none."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    size_bytes: int
    first: str


class Payload(msgspec.Struct, frozen=True):
    """``begins``: the first bytes as hex, of a value that is no request."""

    size_bytes: int
    client_id: str = ""
    inputs: list[TensorSummary] = []
    begins: str = ""


def payload_of(value: bytes | None) -> Payload | None:
    """None: the record has no value."""
    if value is None:
        return None
    try:
        request = decode_plain_request(value)
    except UndecodableRecord:
        return Payload(len(value), begins=value[:_HEX_BYTES].hex(" "))
    inputs = [summary_of(each) for each in request.inputs]
    return Payload(len(value), request.client_id, inputs)


def summary_of(tensor: Tensor) -> TensorSummary:
    return TensorSummary(
        tensor.name, tensor.datatype, tensor.shape, len(tensor.data), _first(tensor)
    )


def _first(tensor: Tensor) -> str:
    if not tensor.data:
        return "not in raw form here"
    try:
        if tensor.datatype is Datatype.BYTES:
            elements = unpack_bytes(tensor.name, tensor.data)
            head: bytes | memoryview = pack_bytes(elements[:_ELEMENTS])
            more = len(elements) > _ELEMENTS
        else:
            item = tensor.datatype.item_bytes or 1
            count = min(_ELEMENTS, len(tensor.data) // item)
            head = bytes(tensor.data)[: count * item]
            more = len(tensor.data) > len(head)
        text = to_json(tensor.name, tensor.datatype, head).decode()
    except RequestError:
        return bytes(tensor.data)[:_HEX_BYTES].hex(" ")
    return text[:-1] + ", ...]" if more else text
