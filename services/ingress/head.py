"""What the head of an inference request says, before any of its body is read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from headrace.domain import Priority, Reason
from headrace.errors import RequestError
from headrace.wire import TIMEOUT_MAX_US
from headrace.wire.topics import checked_name
from services.ingress.refusal import Refusal, refuse

__all__ = [
    "Head",
    "Keep",
    "Target",
    "checked_timeout_us",
    "clipped",
    "named_priority",
    "read_head",
    "read_target",
    "read_x_request_id",
]

REQUEST_ID_BYTES_MAX = 256
"""Longest ``x-request-id``; more is refused (400)."""

KEY_BYTES_MAX = 255
"""Longest ``idempotency-key``; more is refused (400)."""

SHOWN_MAX = 40
"""So many characters of what a client sent stand in a message about it."""

_KEY = re.compile(rb'"([!#-~]{1,%d})"|([!#-~]{1,%d})' % (KEY_BYTES_MAX, KEY_BYTES_MAX))
_DIGITS = re.compile(rb"[0-9]{1,18}")
_QVALUE_ZERO = re.compile(rb"q=0(\.0{0,3})?")
_ENCODINGS = {
    b"": b"",
    b"identity": b"",
    b"gzip": b"gzip",
    b"x-gzip": b"gzip",
    b"deflate": b"deflate",
}

_PRIORITY_NAMES = {priority.name.lower(): priority for priority in Priority}
_PRIORITIES = ", ".join(_PRIORITY_NAMES)


class Target(NamedTuple):
    """The model and version that a path names; version "" is the highest served."""

    model: str
    version: str


class Keep(msgspec.Struct, frozen=True):
    """The answer is kept in the log: under an idempotency key, for one who asks for it
    later, or both."""

    key: str = ""
    is_async: bool = False


class Head(msgspec.Struct, gc=False):
    """The headers that matter to inference; ``fault`` is the first thing wrong that
    no body can set right."""

    content_length: int | None = None
    encoding: bytes = b""
    """``gzip``, ``deflate`` or empty."""
    json_bytes: int | None = None
    """``Inference-Header-Content-Length``; None: the body is JSON alone."""
    accept_encoding: bytes = b""
    """How the answer may be compressed, as ``encoding``."""
    x_request_id: bytes = b""
    priority: Priority | None = None
    timeout_us: int = 0
    tenant: str = "default"
    traceparent: bytes = b""
    tracestate: bytes = b""
    keep: Keep | None = None
    fault: Refusal | None = None
    priority_fault: Refusal | None = None
    """Of no account where the body gives a priority, as its value would be."""
    timeout_fault: Refusal | None = None
    """As ``priority_fault``, for a time limit."""

    @property
    def is_async(self) -> bool:
        """Whether its answer is to be asked for later."""
        return self.keep is not None and self.keep.is_async


def read_target(path: bytes) -> Target | None:
    """The target of an inference path as it stands on the wire, nothing unquoted, so
    that a quoted slash never becomes one. None: not such a path."""
    parts = path.decode("ascii", "replace").split("/")
    match parts:
        case ["", "v2", "models", model, "infer"] if model:
            return Target(model, "")
        case ["", "v2", "models", model, "versions", version, "infer"] if (
            model and version
        ):
            return Target(model, version)
    return None


def read_head(headers: Iterable[tuple[bytes, bytes]]) -> Head:
    """Read headers with names in lower case; faults are noted, not raised, so that
    the answer can still echo the request's id."""
    head = Head()
    seen = set()
    for name, value in headers:
        read = _READERS.get(name)
        if read is None:
            continue
        fault = read(head, value)
        if fault is not None and value.endswith((b" ", b"\t")):
            # The parser leaves them on, though they do not belong to the value.
            fault = read(head, value.rstrip(b" \t"))
        if name in seen and name not in _MAY_REPEAT:
            fault = refuse(Reason.INVALID, f"the header {name.decode()} is given twice")
        seen.add(name)
        if fault is not None:
            _note(head, name, fault)
    return head


def read_x_request_id(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """For what is answered without :func:`read_head`; empty: none to be echoed."""
    given = [value for name, value in headers if name == b"x-request-id"]
    if len(given) == 1 and len(given[0]) <= REQUEST_ID_BYTES_MAX:
        return given[0]
    return b""


def named_priority(name: str) -> Priority:
    """Raises :class:`RequestError` for an unknown name."""
    priority = _PRIORITY_NAMES.get(name)
    if priority is None:
        raise RequestError(
            f"priority must be one of {_PRIORITIES}, got {name[:SHOWN_MAX]!r}"
        )
    return priority


def checked_timeout_us(timeout_us: int) -> int:
    """``timeout_us``, 0 for the model's own; raises :class:`RequestError`."""
    if not 0 <= timeout_us <= TIMEOUT_MAX_US:
        raise RequestError(
            f"the time limit must be from 0 (the model's own) to {TIMEOUT_MAX_US} "
            f"microseconds, got {clipped(timeout_us)}"
        )
    return timeout_us


def clipped(number: int) -> str:
    """``number`` for a message: JSON sends integers of thousands of digits."""
    text = str(number)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def _note(head: Head, name: bytes, fault: Refusal) -> None:
    match name:
        case b"headrace-priority":
            head.priority_fault = head.priority_fault or fault
            head.priority = None
        case b"headrace-timeout-ms":
            head.timeout_fault = head.timeout_fault or fault
            head.timeout_us = 0
        case _:
            head.fault = head.fault or fault


def _content_length(head: Head, value: bytes) -> Refusal | None:
    head.content_length = int(value)  # the parser has refused anything but digits
    return None


def _content_encoding(head: Head, value: bytes) -> Refusal | None:
    encoding = _ENCODINGS.get(value.strip().lower())
    if encoding is None:
        return refuse(
            Reason.INVALID,
            "the content encoding must be gzip, deflate or identity, got "
            f"{_shown(value)}",
            status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            fields=b"accept-encoding: gzip, deflate\r\n",
        )
    head.encoding = encoding
    return None


def _transfer_encoding(_head: Head, value: bytes) -> Refusal | None:
    if value.strip().lower() == b"chunked":
        return None
    return refuse(
        Reason.INVALID,
        f"the transfer encoding must be chunked alone, got {_shown(value)}: say how "
        "the body is compressed in content-encoding",
        status=HTTPStatus.NOT_IMPLEMENTED,
    )


def _accept_encoding(head: Head, value: bytes) -> Refusal | None:
    for offer in value.lower().split(b","):
        encoding, _, quality = offer.strip().partition(b";")
        accepted = _ENCODINGS.get(encoding.strip(), b"")
        if accepted and not _QVALUE_ZERO.fullmatch(quality.strip()):
            # gzip is the better known of the two; a client that takes both gets it.
            head.accept_encoding = max(head.accept_encoding, accepted)
    return None


def _json_bytes(head: Head, value: bytes) -> Refusal | None:
    if not _DIGITS.fullmatch(value):
        return refuse(
            Reason.INVALID,
            "Inference-Header-Content-Length must be the number of bytes of the JSON "
            f"part, got {_shown(value)}",
        )
    head.json_bytes = int(value)
    return None


def _x_request_id(head: Head, value: bytes) -> Refusal | None:
    if len(value) > REQUEST_ID_BYTES_MAX:
        return refuse(
            Reason.INVALID,
            f"x-request-id is limited to {REQUEST_ID_BYTES_MAX} bytes, got "
            f"{len(value)}",
        )
    head.x_request_id = value
    return None


def _priority(head: Head, value: bytes) -> Refusal | None:
    try:
        head.priority = named_priority(value.decode("latin-1"))
    except RequestError as error:
        return refuse(Reason.INVALID, f"headrace-priority: {error}")
    return None


def _timeout_ms(head: Head, value: bytes) -> Refusal | None:
    if not _DIGITS.fullmatch(value):
        return refuse(
            Reason.INVALID,
            "headrace-timeout-ms must be a whole number of milliseconds, at most "
            f"{TIMEOUT_MAX_US // 1000}, got {_shown(value)}",
        )
    try:
        head.timeout_us = checked_timeout_us(int(value) * 1000)
    except RequestError as error:
        return refuse(Reason.INVALID, f"headrace-timeout-ms: {error}")
    return None


def _tenant(head: Head, value: bytes) -> Refusal | None:
    try:
        head.tenant = checked_name("tenant", value.decode("latin-1"))
    except RequestError as error:
        return refuse(Reason.INVALID, f"headrace-tenant: {error}")
    return None


def _prefer(head: Head, value: bytes) -> Refusal | None:
    wishes = {wish.strip().lower() for wish in value.replace(b";", b",").split(b",")}
    if b"respond-async" in wishes:
        head.keep = Keep(head.keep.key if head.keep else "", is_async=True)
    return None


def _idempotency_key(head: Head, value: bytes) -> Refusal | None:
    found = _KEY.fullmatch(value.strip())
    if found is None:
        return refuse(
            Reason.INVALID,
            f"the idempotency-key must be 1 to {KEY_BYTES_MAX} visible characters of "
            f"ASCII, bare or in double quotes, got {_shown(value)}",
        )
    key = (found[1] or found[2]).decode()
    head.keep = Keep(key, is_async=head.keep is not None)
    return None


def _traceparent(head: Head, value: bytes) -> Refusal | None:
    head.traceparent = value
    return None


def _tracestate(head: Head, value: bytes) -> Refusal | None:
    head.tracestate = value
    return None


def _shown(value: bytes) -> str:
    return repr(value[:SHOWN_MAX].decode("latin-1"))


_READERS = {
    b"content-length": _content_length,
    b"content-encoding": _content_encoding,
    b"transfer-encoding": _transfer_encoding,
    b"accept-encoding": _accept_encoding,
    b"inference-header-content-length": _json_bytes,
    b"x-request-id": _x_request_id,
    b"headrace-priority": _priority,
    b"headrace-timeout-ms": _timeout_ms,
    b"headrace-tenant": _tenant,
    b"prefer": _prefer,
    b"idempotency-key": _idempotency_key,
    b"traceparent": _traceparent,
    b"tracestate": _tracestate,
}
_MAY_REPEAT = {b"accept-encoding", b"prefer", b"traceparent", b"tracestate"}
