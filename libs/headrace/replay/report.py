"""A replay as it is printed: one document."""

from __future__ import annotations

import msgspec

from headrace.replay.differences import Differences
from headrace.replay.joining import JoinCounts
from headrace.replay.verdict import Gate, Verdict

__all__ = ["Report"]


class Report(msgspec.Struct, frozen=True):
    """``verdict`` None: it was not asked for. ``from_`` and ``to`` are as they were
    given, ``at`` is when it began, in UTC."""

    verdict: Verdict | None
    against: list[str]
    """What speaks against it."""

    compared: int
    model: str
    into: str
    """The version that ran them, as MODEL/VERSION."""

    from_: str = msgspec.field(name="from")
    to: str
    at: str
    elapsed_s: float
    passed_over: JoinCounts
    warnings: list[str]
    """What retention has taken of the range, and what could not be read."""

    gate: Gate
    differences: Differences
