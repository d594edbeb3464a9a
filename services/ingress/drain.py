"""The last seconds of an ingress."""

from __future__ import annotations

from headrace.domain import Reason
from services.ingress.refusal import Refusal, refuse

__all__ = ["Drain"]


class Drain:
    """What comes on connections that are open already is taken in for as long as it
    can end before the process does."""

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        self._ends_us: int | None = None

    @property
    def is_on(self) -> bool:
        """Each connection ends with its next answer."""
        return self._ends_us is not None

    def begin(self, now_us: int) -> None:
        self._ends_us = now_us + self._limit_ms * 1000

    def over_us(self, now_us: int) -> int | None:
        """Since when nothing is waited for any more; None: not yet."""
        if self._ends_us is None or now_us < self._ends_us:
            return None
        return now_us - self._ends_us

    def refusal_of(self, waits_to_us: int) -> Refusal | None:
        """For a request that may have to wait until ``waits_to_us``."""
        if self._ends_us is None or waits_to_us <= self._ends_us:
            return None
        late_ms = (waits_to_us - self._ends_us) // 1000
        text = f"this ingress ends {late_ms} ms before the request's time limit"
        return refuse(Reason.DRAINING, text)

    def last_refusal(self) -> Refusal:
        """For what is unanswered at its end."""
        text = (
            f"this ingress ends: {self._limit_ms} ms of draining are over (drain_ms) "
            "and no answer has come"
        )
        return refuse(Reason.DRAINING, text)
