"""Answers that came after their deadline, and whether anybody waited for them.

An ingress ends what waits by its own timer, and its client has that answer in time
whatever the log does. So an answer that comes later is seen by nobody, provided that
the process which took the request in was running when its time was over.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.audit.events import Asked
from headrace.audit.findings import Findings
from headrace.audit.report import Kind

__all__ = ["LateAnswers", "Lives"]

BEAT_US = 300_000
"""A process that was running is heard within this, once a heartbeat's period."""

SILENT_US = 1_000_000
"""Unheard for longer while others were, a process may have stood still."""

PAUSE_US = 500_000
"""Nobody at all is heard for so long: it is the log that stood still."""


@dataclass(slots=True)
class _Span:
    """A time in which a process did not stand still. ``told_us`` is that of its last
    heartbeat, on a clock that stands still with the log."""

    instance: str
    first_us: int
    last_us: int
    told_us: int


class Lives:
    """Which ingress lived when: fed with every heartbeat, in the order of the log."""

    def __init__(self) -> None:
        self._spans: dict[int, list[_Span]] = {}
        self._newest_us: int | None = None
        self._paused_us = 0

    def heard(self, at_us: int, ingress: int | None, instance: str = "") -> None:
        """``ingress``: the slot of the one that was heard; None: another process."""
        if self._newest_us is not None and at_us - self._newest_us > PAUSE_US:
            self._paused_us += at_us - self._newest_us
        self._newest_us = at_us
        if ingress is None:
            return
        told_us = at_us - self._paused_us
        spans = self._spans.setdefault(ingress, [])
        for span in reversed(spans):
            if span.instance == instance:
                if told_us - span.told_us > SILENT_US:
                    break
                span.last_us, span.told_us = at_us, told_us
                return
        spans.append(_Span(instance, at_us, at_us, told_us))

    def lived(self, ingress: int, from_us: int, to_us: int) -> bool:
        """Whether one process ran from the first instant to the second."""
        return any(
            span.first_us <= from_us + BEAT_US and to_us <= span.last_us
            for span in self._spans.get(ingress, ())
        )


class LateAnswers:
    """Those of a range, judged at its end: heartbeats from after a deadline may lie
    behind the answer."""

    def __init__(self) -> None:
        self.lives = Lives()
        self._answers: list[tuple[Asked, int, int]] = []

    def add(self, asked: Asked, deadline_us: int, at_us: int) -> None:
        """Its first answer was appended at ``at_us``."""
        self._answers.append((asked, deadline_us, at_us))

    def judge(self, findings: Findings) -> int:
        """How many came when their ingress had long ended what they answer."""
        overtaken = 0
        for asked, deadline_us, at_us in self._answers:
            if self._had_ended(asked, deadline_us):
                overtaken += 1
            else:
                late_ms = (at_us - deadline_us) / 1000
                text = f"answered {late_ms:.0f} ms after its deadline"
                findings.add(Kind.LATE, asked, text)
        return overtaken

    def _had_ended(self, asked: Asked, deadline_us: int) -> bool:
        address = asked.address
        if not asked.made_by_us or address is None or address.partition is None:
            return False  # what is kept can be asked for at any time
        return self.lives.lived(address.partition, asked.at_us, deadline_us)
