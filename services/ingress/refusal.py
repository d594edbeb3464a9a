"""How a request ends without a result, in the words of HTTP."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from headrace.domain import HTTP_STATUS, RETRY_AFTER, Reason

__all__ = ["OWN_FAULT", "Refusal", "log_unavailable", "refuse", "unreadable"]

OWN_FAULT = "an error of this server, see its log"
"""All that a client is told of a fault of ours; its reason is ``crash``."""

_AT_THE_DOOR = {
    Reason.EXPIRED: HTTPStatus.SERVICE_UNAVAILABLE,
    Reason.DEADLINE_UNATTAINABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""Nothing was accepted yet: the sender may try again."""

_SECOND_US = 1_000_000


class Refusal(msgspec.Struct, frozen=True, cache_hash=True):
    """An answer other than 200; ``text`` says what was wrong, expected and got."""

    status: int
    reason: Reason
    text: str
    retry_after_s: int | None
    fields: bytes = b""
    """More header lines, each with its CR LF."""
    logged: str | None = None
    """In place of ``text`` for others than the sender, where that shows his data."""


def refuse(  # noqa: PLR0913 - what an answer is made of
    reason: Reason,
    text: str,
    *,
    status: int | None = None,
    admitted: bool = False,
    retry_after_us: int | None = None,
    fields: bytes = b"",
    logged: str | None = None,
) -> Refusal:
    """The refusal for ``reason``. ``admitted``: the request had entered the log."""
    if status is None:
        status = HTTP_STATUS[reason]
        if not admitted:
            status = _AT_THE_DOOR.get(reason, status)
    retry_after_s = None
    if status in RETRY_AFTER:
        # Whole seconds is all that the header can say.
        retry_after_s = max(1, -(-(retry_after_us or 0) // _SECOND_US))
    return Refusal(status, reason, text, retry_after_s, fields, logged)


def log_unavailable(why: object) -> Refusal:
    return refuse(Reason.LOG_UNAVAILABLE, f"the log refuses the request: {why}")


def unreadable(text: str) -> Refusal:
    return refuse(Reason.INVALID, text)
