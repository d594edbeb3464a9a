"""What HTTP itself asks of a request's head, whatever it is for."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from headrace.domain import Reason
from services.ingress.head import SHOWN_MAX
from services.ingress.refusal import Refusal, refuse

__all__ = ["broken_rule"]

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
