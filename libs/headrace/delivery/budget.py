"""How much of its capacity a lane spends on runs that are not the first.

When a model or a worker fails for good, retries double the load at the worst moment. So
first runs earn what retries spend: a steady part of them, and a burst for the loss of
many workers at once.
"""

from __future__ import annotations

from headrace.delivery.limits import LaneLimits

__all__ = ["RetryBudget"]

WHOLE = 100
"""Of what a retry costs, a first run earns so many hundredths (``retry_percent``)."""


class RetryBudget:
    """Of each model version of a lane, full at its start."""

    def __init__(self, limits: LaneLimits) -> None:
        self._limits = limits
        self._full = limits.retry_burst * WHOLE
        self._left: dict[tuple[str, str], int] = {}

    def earn(self, model: str, version: str) -> None:
        """A request flies for the first time."""
        left = self._left.get((model, version))
        if left is not None:
            earned = left + self._limits.retry_percent
            if earned < self._full:
                self._left[model, version] = earned
            else:
                del self._left[model, version]

    def spend(self, model: str, version: str) -> bool:
        """Take one retry; False: there is none left."""
        left = self._left.get((model, version), self._full)
        if left < WHOLE:
            return False
        self._left[model, version] = left - WHOLE
        return True
