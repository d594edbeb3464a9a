"""How a request record is read, and how a request ends without a result."""

from __future__ import annotations

import msgspec

from headrace.domain.reason import Reason
from headrace.domain.request import ReplyAddress, Request, Source

__all__ = ["CancelRead", "DeadLetter", "RequestRead", "RequestRejected", "Terminal"]


class RequestRead(msgspec.Struct, frozen=True, gc=False):
    """A request record, decoded. ``overdue``: D2, expired on arrival."""

    request: Request
    overdue: bool = False


class CancelRead(msgspec.Struct, frozen=True):
    """A record that ends the request with the identity ``key``, wherever it stands;
    under an idempotency key only one whose body was this one."""

    source: Source
    key: str
    body_sha256: str = ""


class RequestRejected(msgspec.Struct, frozen=True):
    """A record that can never run: undecodable, unknown version or schema, bad
    address. ``reply_to`` None: there is nobody to tell; the dead letter stays."""

    source: Source
    id: str
    tenant: str
    model: str
    reply_to: ReplyAddress | None
    reason: Reason
    text: str
    client_id: str = ""


class Terminal(msgspec.Struct, frozen=True):
    """The end of one request without a result."""

    id: str
    tenant: str
    model: str
    version: str
    reply_to: ReplyAddress
    attempt: int
    reason: Reason
    text: str
    retry_after_us: int | None
    client_id: str
    source: Source


class DeadLetter(msgspec.Struct, frozen=True):
    """The record at ``source`` is copied with the reason; the shell reads its bytes
    from where it kept them, or from the log."""

    source: Source
    id: str
    tenant: str
    model: str
    reason: Reason
    text: str
    attempts: int
