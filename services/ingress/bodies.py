"""How much memory bodies take while they are being received."""

from __future__ import annotations

from headrace.domain import Reason
from services.ingress.exchange import Exchange
from services.ingress.refusal import Refusal, refuse

__all__ = ["RESERVED_FROM_BYTES", "Bodies", "body_too_large"]

RESERVED_FROM_BYTES = 64 * 1024
"""Smaller bodies arrive with their head and are not counted."""


class Bodies:
    """The announced bytes of all of them, up to ``bytes_max``."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max

    def reserve(self, exchange: Exchange, size: int) -> Refusal | None:
        """Count a body of ``size`` in place of what was counted for it so far; a
        refusal when the bodies together are too many."""
        more = size - exchange.reserved_bytes
        if self.bytes + more > self._bytes_max:
            return refuse(
                Reason.OVERLOADED,
                f"bodies of {self.bytes} bytes are being received; with {more} more "
                f"they would pass {self._bytes_max} (bodies_bytes_max)",
            )
        self.bytes += more
        exchange.reserved_bytes = size
        return None

    def release(self, exchange: Exchange) -> None:
        self.bytes -= exchange.reserved_bytes
        exchange.reserved_bytes = 0


def body_too_large(bytes_max: int, size: int) -> Refusal:
    return refuse(
        Reason.TOO_LARGE,
        f"the body has {size} bytes or more, at most {bytes_max} are allowed "
        "(http_body_bytes_max)",
    )
