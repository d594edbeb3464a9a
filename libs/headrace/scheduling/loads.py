"""What admission is told of a lane."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.domain import Load
from headrace.scheduling.backlog import Backlog
from headrace.scheduling.fairness import TenantClocks
from headrace.scheduling.slots import Slots

__all__ = ["load_of"]

FREE_TOLD_MAX = 16
"""Slots whose end of work is published; of more, as many evenly spaced ones."""


def load_of(
    slots: Slots,
    backlog: Backlog,
    tenants: TenantClocks,
    *,
    shares: Sequence[float],
    now_us: int,
) -> Load:
    """What waits and runs, and what a row costs."""
    free_us = sorted(slot.free_at_us(now_us) - now_us for slot in slots if slot.usable)
    count = len(free_us)
    told = min(count, FREE_TOLD_MAX)
    queues, prices = backlog.load(now_us)
    return Load(
        slots=count,
        free_us=[free_us[(2 * n + 1) * count // (2 * told)] for n in range(told)],
        heavy=tenants.heavy(),
        shares=list(shares),
        queues=queues,
        prices=prices,
    )
