"""Answers as bytes of HTTP: header lines and body, without the body's framing."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from headrace.domain import Tensor
from headrace.errors import RequestError
from headrace.wire import Locator
from headrace.wire.tensors import to_json
from services.ingress.head import Head
from services.ingress.parsing import WantedOutput
from services.ingress.refusal import Refusal

__all__ = [
    "Piece",
    "accepted_answer",
    "identity_fields",
    "refusal_answer",
    "refusal_around_id",
    "refusal_fields",
    "result_answer",
]

Piece = bytes | memoryview

_JSON = b"content-type: application/json\r\n"
_WINDOW_BITS = {b"gzip": 31, b"deflate": 15}
_COMPRESSION_LEVEL = 1
"""Answers are tensors: a higher level takes the event loop's time for little."""

COMPRESSED_BYTES_MAX = 16 * 1024 * 1024
"""A longer answer goes as it is, which any client takes."""

ANSWERS_KEPT = 256
"""Under overload a few refusals are given thousands of times a second."""

_encode = msgspec.json.encode


def accepted_answer(locator: Locator) -> tuple[bytes, bytes]:
    """Header lines and body of 202: the answer can be asked for."""
    name = locator.encode()
    fields = _JSON + b"location: /v2/requests/%b\r\n" % name.encode()
    return fields, _encode({"id": name})


@lru_cache(ANSWERS_KEPT)
def refusal_answer(refusal: Refusal, client_id: str = "") -> tuple[bytes, bytes]:
    """Header lines and body of an answer other than 200, without the identity: the
    protocol's form of an error, and the body's ``id`` where it had one."""
    content = {"error": refusal.text}
    if client_id:
        content["id"] = client_id
    return _JSON + refusal_fields(refusal), _encode(content)


def refusal_around_id(refusal: Refusal, x_request_id: bytes) -> tuple[bytes, bytes]:
    """All of an answer's bytes before and behind the request's id, on a connection that
    stays open."""
    fields, body = refusal_answer(refusal)
    before, after = identity_fields("|", x_request_id).split(b"|", 1)
    length = b"content-length: %d\r\n\r\n" % len(body)
    return STATUS_LINE[refusal.status] + before, after + fields + length + body


def refusal_fields(refusal: Refusal) -> bytes:
    """What the head of every answer other than 200 says."""
    fields = b"headrace-reason: %b\r\n" % refusal.reason.value.encode()
    if refusal.retry_after_s is not None:
        fields += b"retry-after: %d\r\n" % refusal.retry_after_s
    return fields + refusal.fields


def identity_fields(request_id: str, x_request_id: bytes) -> bytes:
    """What the head of every answer says of its request."""
    fields = b"headrace-request-id: %b\r\n" % request_id.encode()
    if x_request_id:
        fields += b"x-request-id: %b\r\n" % x_request_id
    return fields


class Asked(Protocol):
    """What of a request shapes its result."""

    @property
    def request_id(self) -> str: ...
    @property
    def client_id(self) -> str: ...
    @property
    def wanted(self) -> tuple[WantedOutput, ...]: ...
    @property
    def head(self) -> Head: ...


def result_answer(
    asked: Asked, model: str, version: str, outputs: Sequence[Tensor]
) -> tuple[bytes, Sequence[Piece]]:
    """Header lines and body of a result, in the form that the client asked for, with
    the body's ``id`` where it had one.

    Raises :class:`RequestError` for an output that is not there, or has no JSON form.
    """
    by_name = {output.name: output for output in outputs}
    described = []
    raws: list[Piece] = []
    for name, binary in asked.wanted:
        output = by_name.get(name)
        if output is None:
            raise RequestError(f"the model's answer lacks the output '{name}'")
        if binary:
            described.append(
                _described(
                    output, b'"parameters":{"binary_data_size":%d}}' % len(output.data)
                )
            )
            raws.append(output.data)
        else:
            data = to_json(name, output.datatype, output.data)
            described.append(_described(output, b'"data":%b}' % data))
    named = b'"id":%b,' % _encode(asked.client_id) if asked.client_id else b""
    text = b'{"model_name":%b,"model_version":%b,%b"outputs":[%b]}' % (
        _encode(model),
        _encode(version),
        named,
        b",".join(described),
    )
    fields = identity_fields(asked.request_id, asked.head.x_request_id)
    if raws:
        fields += (
            b"content-type: application/octet-stream\r\n"
            b"inference-header-content-length: %d\r\n" % len(text)
        )
    else:
        fields += _JSON
    encoding = asked.head.accept_encoding
    if encoding and len(text) + sum(map(len, raws)) <= COMPRESSED_BYTES_MAX:
        fields += b"content-encoding: %b\r\n" % encoding
        return fields, (_compressed(encoding, [text, *raws]),)
    return fields, (text, *raws)


def _described(output: Tensor, ending: bytes) -> bytes:
    return b'{"name":%b,"datatype":"%b","shape":[%b],%b' % (
        _encode(output.name),
        output.datatype.value.encode(),
        ",".join(map(str, output.shape)).encode(),
        ending,
    )


def _compressed(encoding: bytes, pieces: Sequence[Piece]) -> bytes:
    packer = zlib.compressobj(_COMPRESSION_LEVEL, zlib.DEFLATED, _WINDOW_BITS[encoding])
    return b"".join([*map(packer.compress, pieces), packer.flush()])
