"""How much an audit holds, and how exact clocks are."""

from __future__ import annotations

from pydantic import BaseModel, PositiveInt

__all__ = ["AuditLimits"]


class AuditLimits(BaseModel, frozen=True, extra="forbid"):
    """Defaults hold an audit below about a gigabyte."""

    grace_us: PositiveInt = 250_000
    """After its deadline, an answer is on time for so long."""

    skew_us: PositiveInt = 50_000
    """Brokers' clocks agree within this."""

    unsettled_max: PositiveInt = 500_000
    """Requests without evidence, at any one time. Reached: the range ends there, the
    report says so, and it is a finding of its own that nothing settles."""

    remember_us: PositiveInt = 660_000_000
    """How long a settled id is remembered for a second answer: longer than any
    request may be in flight, and than an idempotency key is remembered."""

    remembered_max: PositiveInt = 200_000
    """Beyond, the oldest is forgotten early and counted."""

    findings_max: PositiveInt = 1_000
    """Listed of each kind; all are counted."""
