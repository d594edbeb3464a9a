"""A limit on requests in flight that follows their latency.

The gradient limit of Netflix's concurrency-limits (``Gradient2Limit``): while recent
latency stays near the long-term one the limit grows by the square root of itself;
when it rises, the limit shrinks in proportion. It needs nothing but the requests, so
it stands in where no lane says how much it has to do.
"""

from __future__ import annotations

from math import sqrt

__all__ = ["GradientLimit"]

TOLERANCE = 1.5
SMOOTHING = 0.2
LONG_WINDOW = 600
GRADIENT_MIN = 0.5
LIMIT_MIN = 4


class GradientLimit:
    """Fed with the latency of every answered request."""

    def __init__(self, *, initial: int, limit_max: int) -> None:
        self._limit = float(min(initial, limit_max))
        self._limit_max = limit_max
        self._long_us = 0.0
        self._answered = 0

    @property
    def limit(self) -> int:
        """Most requests in flight."""
        return int(self._limit)

    def answered(self, latency_us: int, in_flight: int) -> None:
        latency = float(max(latency_us, 1))
        self._answered = min(self._answered + 1, LONG_WINDOW)
        self._long_us += (latency - self._long_us) / self._answered
        if self._long_us > 2 * latency:
            # A long slow spell must not license a queue of its length afterwards.
            self._long_us *= 0.95
        if in_flight < self._limit / 2:
            return
        gradient = TOLERANCE * self._long_us / latency
        gradient = max(GRADIENT_MIN, min(1.0, gradient))
        wanted = self._limit * gradient + sqrt(self._limit)
        self._limit += (wanted - self._limit) * SMOOTHING
        self._limit = max(min(self._limit, self._limit_max), LIMIT_MIN)
