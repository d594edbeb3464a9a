"""Shares of device time between tenants, by virtual time (VTC, OSDI 2024).

Each tenant's clock advances by the device microseconds charged to him over his
weight. Whoever is behind goes first; a tenant who returns is lifted to the least
clock of those who work, so that idling earns nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["TenantClocks"]


class TenantClocks:
    """Virtual time of every tenant with queued work, in weighted device µs."""

    def __init__(self, weights: Mapping[str, float], *, burst_us: int) -> None:
        self._weights = dict(weights)
        self._burst_us = burst_us
        self._clock: dict[str, float] = {}
        self._queued: dict[str, int] = {}

    def enqueued(self, tenant: str) -> None:
        queued = self._queued.get(tenant, 0)
        if not queued:
            floor = self.least()
            self._clock[tenant] = max(self._clock.get(tenant, 0.0), floor)
        self._queued[tenant] = queued + 1

    def dequeued(self, tenant: str) -> None:
        queued = self._queued[tenant] - 1
        if queued:
            self._queued[tenant] = queued
            return
        del self._queued[tenant]
        if not self._queued:
            # Nobody to be compared with: all start anew from the same clock.
            self._clock.clear()

    def charge(self, tenant: str, device_us: float) -> None:
        weighted = device_us / self._weights.get(tenant, 1.0)
        self._clock[tenant] = self._clock.get(tenant, 0.0) + weighted

    def clock(self, tenant: str) -> float:
        return self._clock.get(tenant, 0.0)

    def weight(self, tenant: str) -> float:
        return self._weights.get(tenant, 1.0)

    @property
    def contended(self) -> bool:
        """Whether more than one tenant has queued work."""
        return len(self._queued) > 1

    def least(self) -> float:
        """The least clock of the tenants with queued work; 0 without any."""
        if not self._queued:
            return 0.0
        return min(self._clock[tenant] for tenant in self._queued)

    def is_out_of_profile(self, tenant: str) -> bool:
        """Whether he is more than a burst ahead of the least served tenant."""
        return (
            len(self._queued) > 1
            and self._clock.get(tenant, 0.0) - self.least() > self._burst_us
        )
