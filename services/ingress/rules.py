"""What a request on the wire has to keep to, whatever it is for: HTTP's own rules, and
the limits of a connection."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from headrace.domain import Reason
from services.ingress.head import SHOWN_MAX
from services.ingress.refusal import Refusal, refuse, unreadable
from services.ingress.settings import FRAMING_FACTOR_MAX, IngressLimits

__all__ = [
    "CUT_SHORT",
    "NOT_A_PATH",
    "NO_UPGRADE",
    "broken_rule",
    "head_late",
    "head_too_large",
    "is_over",
    "message_too_large",
    "not_http",
    "too_many_connections",
]

CUT_SHORT = unreadable("the request ends before its end")
NOT_A_PATH = unreadable("the target of the request is not a path")
NO_UPGRADE = unreadable(
    "this server does not upgrade: send the request without upgrade"
)

_HTTP_2 = b"PRI * HTTP/2"
_SPOKEN = frozenset({"1.0", "1.1"})


def broken_rule(version: str, headers: Iterable[tuple[bytes, bytes]]) -> Refusal | None:
    """Headers with names in lower case. RFC 9110, 15.6.6 (version) and 10.1.1
    (``expect``); RFC 9112, 3.2 (``host``)."""
    if version not in _SPOKEN:
        text = f"this server speaks HTTP/1.1 and 1.0, not HTTP/{version}"
        return refuse(
            Reason.INVALID, text, status=HTTPStatus.HTTP_VERSION_NOT_SUPPORTED
        )
    hosts = 0
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"expect" and value.strip().lower() != b"100-continue":
            shown = value[:SHOWN_MAX].decode("latin-1")
            text = f"only 100-continue can be expected, got {shown!r}"
            return refuse(Reason.INVALID, text, status=HTTPStatus.EXPECTATION_FAILED)
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        text = f"a request of HTTP/1.1 has one header host, this one has {hosts}"
        return refuse(Reason.INVALID, text)
    return None


def not_http(data: bytes, error: Exception) -> Refusal:
    """The parser does not read ``data`` as a request, or its rest."""
    if data.startswith(_HTTP_2):
        return unreadable("this server speaks HTTP/1.1, neither HTTP/2 nor gRPC")
    return unreadable(f"not a request of HTTP/1.1: {error}")


def too_many_connections(limits: IngressLimits) -> Refusal:
    return refuse(
        Reason.OVERLOADED,
        f"{limits.connections_max} connections are open (connections_max)",
    )


def head_too_large(limits: IngressLimits) -> Refusal:
    return refuse(
        Reason.TOO_LARGE,
        f"the head of a request is limited to {limits.http_header_bytes_max} bytes "
        "(http_header_bytes_max)",
        status=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    )


def head_late(limits: IngressLimits) -> Refusal:
    return refuse(
        Reason.INVALID,
        f"the head was not complete {limits.http_head_timeout_ms} ms after its "
        "beginning (http_head_timeout_ms)",
        status=HTTPStatus.REQUEST_TIMEOUT,
    )


def message_too_large(limits: IngressLimits) -> Refusal:
    return refuse(
        Reason.TOO_LARGE,
        f"the body with its framing takes more than {FRAMING_FACTOR_MAX} times "
        f"{limits.http_body_bytes_max} bytes (http_body_bytes_max)",
    )


def is_over(since_us: int | None, limit_ms: int, now_us: int) -> bool:
    """``since_us``: of what is waited for; None: of nothing."""
    return since_us is not None and now_us - since_us > limit_ms * 1000
