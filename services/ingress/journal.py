"""One log line per request that got no result, without its payload."""

from __future__ import annotations

from headrace.clock import Clock
from headrace.telemetry import get_log
from services.ingress.exchange import Exchange
from services.ingress.refusal import Refusal

__all__ = ["Journal"]

LINES_AT_ONCE_MAX = 50
LINES_PER_S = 10
"""Failures are logged one by one up to so many at once, and so many a second in the
long run; what is above is counted, in one line a second. Under overload a line takes
longer than a refusal, and buries what else is to be read."""

_SECOND_US = 1_000_000
_LINE_US = _SECOND_US // LINES_PER_S


class Journal:
    """Writes down failures, at most so many a second."""

    def __init__(self, clock: Clock) -> None:
        self._log = get_log()
        self._clock = clock
        self._room = float(LINES_AT_ONCE_MAX)
        self._looked_us = 0
        self._room_at_us = 0
        """Before this instant there is no room again."""
        self._untold = 0
        self._untold_since_us = 0

    def refused(self, exchange: Exchange, refusal: Refusal, total_us: int) -> None:
        """A request ended without a result, ``total_us`` after it began."""
        now_us = exchange.started_us + total_us
        if self.counts(now_us) or not self._has_room(now_us):
            return
        served = exchange.served
        self._log.info(
            "request.failed",
            request_id=exchange.request_id,
            x_request_id=exchange.head.x_request_id.decode("latin-1"),
            client_id=exchange.client_id[:256],
            tenant=exchange.tenant,
            model=None if served is None else served.model,
            version=None if served is None else served.version,
            status=refusal.status,
            reason=refusal.reason,
            text=_told(refusal),
            total_us=total_us,
        )

    def counts(self, now_us: int) -> bool:
        """Whether one more failure is counted, and not to be written down."""
        if now_us >= self._room_at_us:
            return False
        self._untold += 1
        return True

    def unread(self, request_id: str, x_request_id: bytes, refusal: Refusal) -> None:
        """Something was refused before it was a request of a model."""
        if self._has_room(self._clock.now_us()):
            self._log.info(
                "request.failed",
                request_id=request_id,
                x_request_id=x_request_id.decode("latin-1"),
                status=refusal.status,
                reason=refusal.reason,
                text=_told(refusal),
            )

    def crashed(self, request_id: str, error: Exception) -> None:
        """A fault of our own ended a request."""
        self._log.error("http.failed", request_id=request_id, exc_info=error)

    def _has_room(self, now_us: int) -> bool:
        grown = (now_us - self._looked_us) * LINES_PER_S / _SECOND_US
        self._room = min(self._room + grown, LINES_AT_ONCE_MAX)
        self._looked_us = now_us
        if self._untold and now_us - self._untold_since_us >= _SECOND_US:
            self._log.warning("request.failed", unlogged=self._untold)
            self._untold = 0
        if self._room < 1:
            if not self._untold:
                self._untold_since_us = now_us
            self._untold += 1
            self._room_at_us = now_us + int((1 - self._room) * _LINE_US) + 1
            return False
        self._room -= 1
        return True


def _told(refusal: Refusal) -> str:
    return refusal.text if refusal.logged is None else refusal.logged
