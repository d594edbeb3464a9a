"""Which requests of one queue would go together if a batch started at an instant.

The gated window drop: heads of the queue are given up only when serving them would
force a batch far below what the queue could fill, since then every later request
pays for them. Without the gate an overloaded earliest-deadline queue shrinks its
batches to one and serves a quarter of what the device could.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from headrace.scheduling.estimate import PacedTimes, RunTimes
from headrace.scheduling.fairness import TenantClocks
from headrace.scheduling.queue import NEVER_US, Entry

__all__ = ["Selection", "Terms", "Times", "select"]

Times = RunTimes | PacedTimes


class Terms(NamedTuple):
    """Under which a batch would start."""

    start_us: int
    """When it would start on the worker."""
    response_us: int
    """From its end to the client."""
    target_rows: int
    """The size that keeps up with the arrivals within their time limits."""
    rows_max: int
    bytes_max: int
    gate: float
    gate_light: float
    """The same for the heads of tenants who take less than their share."""
    pressure: float = 0.0
    """How far the queue, or one that shares its slots, is from serving what it is asked
    for, from 0 to 1."""
    is_group: bool = False
    """Requests that go by themselves to be tried: how many runs find a bad one among
    them must not depend on what sizes cost."""


class Selection(NamedTuple):
    """A batch that could leave. ``victims`` are given up if, and only if, it does."""

    members: list[Entry]
    """In order of deadline."""
    victims: list[Entry]
    rows: int
    deadline_us: int
    """The earliest of the members'."""
    leaves_some: bool
    """Requests of the same priority that would have fitted its deadline stay."""


def select(
    band: Sequence[Entry], times: Times, tenants: TenantClocks, terms: Terms
) -> Selection | None:
    """The best batch from ``band``, entries of one priority in order of deadline.

    Every member fits: ``start + bound(rows) + response <= deadline``. None: not even
    the first entries fit alone (the caller has dropped what certainly misses, so
    that is a matter of a batch's size, never of a single request).
    """
    window = _window(band, tenants, terms)
    pool = band if window >= len(band) else band[:window]
    rows = _rows_available(pool, terms)
    fitting = _rows_fitting(pool[0].deadline_us, times, terms)
    victims: list[Entry] = []
    if fitting < terms.gate * min(rows, terms.target_rows):
        pool, victims = _through_the_gate(band, times, tenants, terms)
        rows = _rows_available(pool, terms)
        fitting = _rows_fitting(pool[0].deadline_us, times, terms)
    rows = min(rows, fitting)
    members = _fill(pool, rows, times, tenants, terms)
    if not members:
        return None
    taken = sum(entry.request.rows for entry in members)
    cheaper = 0 if terms.is_group else _cheaper_size(taken, times)
    if cheaper and not _anyone_urgent(pool, cheaper, times, terms):
        members = _fill(pool, cheaper, times, tenants, terms) or members
        taken = sum(entry.request.rows for entry in members)
    return Selection(
        members=members,
        victims=victims,
        rows=taken,
        deadline_us=members[0].deadline_us,
        leaves_some=len(members) < len(pool),
    )


def _rows_available(pool: Sequence[Entry], terms: Terms) -> int:
    rows = 0
    for entry in pool:
        rows += entry.request.rows
        if rows >= terms.rows_max:
            return terms.rows_max
    return rows


def _rows_fitting(deadline_us: int, times: Times, terms: Terms) -> int:
    if deadline_us == NEVER_US:
        return terms.rows_max
    return times.rows_within(deadline_us - terms.start_us - terms.response_us)


def _through_the_gate(
    band: Sequence[Entry], times: Times, tenants: TenantClocks, terms: Terms
) -> tuple[Sequence[Entry], list[Entry]]:
    """Give heads up, so that what is behind them makes a full batch."""
    window = _window(band, tenants, terms)
    late_us = terms.start_us + terms.response_us
    for size in _sizes_behind(band, times, terms):
        first = bisect_left(band, (late_us + times.bound(size),))
        pool = band[first : first + window]
        if _rows_available(pool, terms) >= size:
            if tenants.contended:
                first = _first_spared(band[:first], size, times, tenants, terms)
            return band[first : first + window], list(band[:first])
    return band[:window], []


def _first_spared(
    victims: Sequence[Entry],
    size: int,
    times: Times,
    tenants: TenantClocks,
    terms: Terms,
) -> int:
    """How many of ``victims`` are given up all the same: not those behind a request
    of a tenant who takes less than his share, unless it shrinks the batch too far."""
    names = {entry.request.tenant for entry in victims}
    light = {name for name in names if not tenants.is_heavy(name)}
    for place, entry in enumerate(victims):
        if entry.request.tenant in light:
            fitting = _rows_fitting(entry.deadline_us, times, terms)
            if fitting >= terms.gate_light * size:
                return place
    return len(victims)


def _window(band: Sequence[Entry], tenants: TenantClocks, terms: Terms) -> int:
    """How many entries are looked at: of a sole tenant, two batches' worth."""
    return len(band) if tenants.contended else 2 * terms.rows_max


def _sizes_behind(band: Sequence[Entry], times: Times, terms: Terms) -> Iterator[int]:
    """The target, then what remains behind each of the last entries that would fit
    in a batch of just that: skipping heads one by one, without visiting those that
    have a whole target behind them."""
    yield terms.target_rows
    tail = band[-terms.target_rows :]
    remaining = sum(entry.request.rows for entry in tail)
    for entry in tail:
        size = min(remaining, terms.target_rows)
        if _rows_fitting(entry.deadline_us, times, terms) >= size:
            yield size
        remaining -= entry.request.rows


def _fill(
    pool: Sequence[Entry],
    rows: int,
    times: Times,
    tenants: TenantClocks,
    terms: Terms,
) -> list[Entry]:
    """Entries of ``pool`` up to ``rows`` rows and the byte limit."""
    if not tenants.contended or sum(entry.request.rows for entry in pool) <= rows:
        return _take(pool, rows, terms.bytes_max)
    urgent_before = _urgent_before(rows, times, terms)
    split = bisect_left(pool, (urgent_before,))
    cost = times.bound(rows) / max(rows, 1)
    order = [
        *_by_share(pool[:split], tenants, cost),
        *_by_share(pool[split:], tenants, cost),
    ]
    return sorted(_take(order, rows, terms.bytes_max))


def _take(order: Sequence[Entry], rows: int, bytes_max: int) -> list[Entry]:
    """The first entries within both limits; one entry always fits the bytes."""
    taken: list[Entry] = []
    room, space = rows, bytes_max
    for entry in order:
        request = entry.request
        if request.rows > room or (taken and request.size_bytes > space):
            break
        taken.append(entry)
        room -= request.rows
        space -= request.size_bytes
        if not room:
            break
    return taken


def _by_share(
    entries: Sequence[Entry], tenants: TenantClocks, cost_us: float
) -> list[Entry]:
    """By deadline within a tenant, the least served tenant first."""
    by_tenant: dict[str, list[Entry]] = {}
    for entry in entries:
        by_tenant.setdefault(entry.request.tenant, []).append(entry)
    if len(by_tenant) < 2:
        return list(entries)
    turns = [(tenants.clock(tenant), tenant, 0) for tenant in by_tenant]
    heapify(turns)
    order: list[Entry] = []
    while turns:
        clock, tenant, place = heappop(turns)
        own = by_tenant[tenant]
        order.append(own[place])
        if place + 1 < len(own):
            step = cost_us * own[place].request.rows / tenants.weight(tenant)
            heappush(turns, (clock + step, tenant, place + 1))
    return order


def _urgent_before(rows: int, times: Times, terms: Terms) -> int:
    """Whoever's deadline is earlier cannot wait for one more batch."""
    return (
        terms.start_us
        + times.bound(rows)
        + times.bound(terms.target_rows)
        + terms.response_us
    )


def _cheaper_size(rows: int, times: Times) -> int:
    """A smaller ladder step that costs less per row, or 0 (a stepped profile)."""
    down = times.ladder_down(rows)
    if down and times.expected(down) * rows < times.expected(rows) * down:
        return down
    return 0


def _anyone_urgent(
    pool: Sequence[Entry], rows: int, times: Times, terms: Terms
) -> bool:
    """Whether someone whom a batch of ``rows`` would leave behind cannot wait."""
    left = rows
    for entry in pool:
        left -= entry.request.rows
        if left < 0:
            return entry.deadline_us < _urgent_before(rows, times, terms)
    return False
