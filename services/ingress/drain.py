"""The last seconds of an ingress."""

from __future__ import annotations

from headrace.domain import Reason
from services.ingress.refusal import Refusal, refuse
from services.ingress.settings import IngressLimits

__all__ = ["Drain"]


class Drain:
    """What comes on connections that are open already is taken in: most of it is
    answered long before its time limit, and before the process ends."""

    def __init__(self, limits: IngressLimits) -> None:
        self._limits = limits
        self._ends_us: int | None = None
        self._why = ""

    @property
    def is_on(self) -> bool:
        """Each connection ends with its next answer."""
        return self._ends_us is not None

    def begin(self, now_us: int, *, has_successor: bool = False) -> None:
        """With a successor nobody waits for the end of this process: who asked it last
        has the time that he wants."""
        if has_successor:
            limit_ms, name = self._limits.drain_succeeded_ms, "drain_succeeded_ms"
        else:
            limit_ms, name = self._limits.drain_ms, "drain_ms"
        self._ends_us = now_us + limit_ms * 1000
        self._why = f"{limit_ms} ms of draining are over ({name})"

    def hasten(self, now_us: int) -> None:
        """Somebody waits for the end by now."""
        ends_us = self._ends_us
        if ends_us is not None and now_us + self._limits.drain_ms * 1000 < ends_us:
            self.begin(now_us)

    def over_us(self, now_us: int) -> int | None:
        """Since when nothing is waited for any more; None: not yet."""
        if self._ends_us is None or now_us < self._ends_us:
            return None
        return now_us - self._ends_us

    def last_refusal(self) -> Refusal:
        """For what is unanswered at its end."""
        text = f"this ingress ends: {self._why} and no answer has come"
        return refuse(Reason.DRAINING, text)
