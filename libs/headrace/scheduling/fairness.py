"""Shares of device time between tenants, by virtual time (VTC, OSDI 2024).

Each tenant's clock advances by the device microseconds charged to him over his
weight. Whoever is behind goes first; a tenant who returns is lifted to the least
clock of those who work, so that idling earns nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from heapq import nlargest
from typing import Generic, TypeVar

__all__ = ["TenantClocks", "Used"]

USED_HALVED_US = 250_000
"""Time in which half of what was used is forgotten."""
HEAVY_TOLD_MAX = 64


Name = TypeVar("Name", bound=Hashable)


class Used(Generic[Name]):
    """Device time that each had lately, in µs."""

    def __init__(self) -> None:
        self.by_name: dict[Name, float] = {}
        self.total_us = 0.0
        """Kept, since a thousand names are each compared with it."""
        self._forgot_at_us = 0

    def add(self, name: Name, device_us: float, now_us: int) -> None:
        if now_us - self._forgot_at_us >= USED_HALVED_US:
            self._forget(now_us)
        self.by_name[name] = self.by_name.get(name, 0.0) + device_us
        self.total_us += device_us

    def part(self, name: Name) -> float:
        """Of what all had; 0 of nothing."""
        used_us = self.by_name.get(name, 0.0)
        return used_us and used_us / self.total_us

    def _forget(self, now_us: int) -> None:
        halvings = min((now_us - self._forgot_at_us) // USED_HALVED_US, 60)
        self._forgot_at_us = now_us
        kept = ((name, us / 2**halvings) for name, us in self.by_name.items())
        self.by_name = {name: us for name, us in kept if us >= 1.0}
        self.total_us = sum(self.by_name.values())


class TenantClocks:
    """Virtual time of every tenant with queued work, in weighted device µs."""

    def __init__(self, weights: Mapping[str, float], *, burst_us: int) -> None:
        self._weights = dict(weights)
        self._burst_us = burst_us
        self._clock: dict[str, float] = {}
        self._furthest = 0.0
        self._queued: dict[str, int] = {}
        self._used = Used[str]()

    def enqueued(self, tenant: str) -> None:
        queued = self._queued.get(tenant, 0)
        if not queued:
            floor = self.least()
            self._clock[tenant] = max(self._clock.get(tenant, 0.0), floor)
        self._queued[tenant] = queued + 1

    def dequeued(self, tenant: str, count: int) -> None:
        queued = self._queued[tenant] - count
        if queued:
            self._queued[tenant] = queued
            return
        del self._queued[tenant]
        if not self._queued:
            # Nobody to be compared with: all start anew from the same clock.
            self._clock.clear()
            self._furthest = 0.0

    def charge(self, tenant: str, device_us: float, now_us: int) -> None:
        self._used.add(tenant, device_us, now_us)
        weighted = device_us / self._weights.get(tenant, 1.0)
        clock = self._clock[tenant] = self.clock(tenant) + weighted
        self._furthest = max(self._furthest, clock)

    def clock(self, tenant: str) -> float:
        """Nobody is further behind than a burst: who asks for little is behind for
        ever, and must not have it all when he asks for much."""
        return max(self._clock.get(tenant, 0.0), self._furthest - self._burst_us)

    def weight(self, tenant: str) -> float:
        return self._weights.get(tenant, 1.0)

    def is_heavy(self, tenant: str) -> bool:
        """Whether he lately took more than an equal part, by weights, of the device
        time. Clocks do not tell: whoever's queue is empty for a moment is lifted."""
        used = self._used.by_name
        if len(used) < 2:
            return False
        part = self.weight(tenant) / sum(map(self.weight, used))
        return used.get(tenant, 0.0) > part * sum(used.values())

    def heavy(self) -> list[str]:
        """Those tenants, of :data:`HEAVY_TOLD_MAX` the ones who took most."""
        used = self._used.by_name
        largest = nlargest(HEAVY_TOLD_MAX, used, key=used.__getitem__)
        return [tenant for tenant in largest if self.is_heavy(tenant)]

    @property
    def contended(self) -> bool:
        """Whether more than one tenant has queued work."""
        return len(self._queued) > 1

    def least(self) -> float:
        """The least clock of the tenants with queued work; 0 without any."""
        if not self._queued:
            return 0.0
        return min(map(self.clock, self._queued))
