"""When heads of a queue are given up so that those behind them run in full batches."""

from __future__ import annotations

from headrace.domain import Dispatch, Priority
from headrace.scheduling.estimate import RunTimes
from headrace.scheduling.fairness import TenantClocks
from headrace.scheduling.queue import Band, Entry
from headrace.scheduling.selection import Selection, Terms, select
from tests.scheduling.scenes import MS, Desk, a_request, a_version, keys

TIMES = RunTimes(4, {1: 2 * MS, 2: 3 * MS, 4: 5 * MS}, quantile=0.95)
"""Untrusted, so deadlines are judged by 1.25 times these."""


def choose(
    *limits_ms: float,
    gate: float = 0.6,
    target_rows: int = 4,
    tenants: TenantClocks | None = None,
    names: str = "",
) -> tuple[list[int], list[int]]:
    """Places of the members and of the victims among requests with these limits."""
    tenants = tenants or TenantClocks({}, burst_us=1 * MS)
    band = Band()
    for place, limit_ms in enumerate(limits_ms):
        tenant = names[place] if names else "t"
        request = a_request(limit_us=int(limit_ms * MS), tenant=tenant)
        tenants.enqueued(tenant)
        band.push(Entry(int(limit_ms * MS), place, request))
    terms = Terms(
        start_us=0,
        response_us=0,
        target_rows=target_rows,
        rows_max=4,
        bytes_max=1 << 20,
        gate=gate,
        gate_light=0.6,
    )
    chosen = select(band.first(8, tenants), TIMES, tenants, terms)
    assert chosen is not None
    return places(chosen)


def places(chosen: Selection) -> tuple[list[int], list[int]]:
    return (
        [entry.seq for entry in chosen.members],
        [entry.seq for entry in chosen.victims],
    )


def test_a_head_that_would_force_a_small_batch_is_given_up() -> None:
    assert choose(3, 100, 100, 100, 100) == ([1, 2, 3, 4], [0])


def test_a_head_is_kept_when_its_batch_is_large_enough() -> None:
    # Three rows are bounded at 5 ms: 3 >= 0.6 * 4.
    assert choose(5.1, 100, 100, 100, 100) == ([0, 1, 2], [])


def test_a_head_is_kept_when_few_wait_behind_it() -> None:
    assert choose(2.6, gate=1.0) == ([0], [])


def test_a_lower_gate_keeps_more_heads() -> None:
    assert choose(3, 100, 100, 100, 100, gate=0.25) == ([0], [])


def test_a_small_target_keeps_heads_since_small_batches_keep_up() -> None:
    assert choose(3, 100, 100, 100, 100, target_rows=1) == ([0], [])


def test_given_up_heads_that_fit_the_smaller_batch_are_taken_back() -> None:
    # Four rows do not fit 5.1 ms; the three that remain behind the head do.
    assert choose(2.6, 5.1, 5.1, 5.1) == ([1, 2, 3], [0])


def a_contest() -> TenantClocks:
    """``a`` has had all of the device time of late, ``b`` hardly any."""
    tenants = TenantClocks({}, burst_us=1 * MS)
    for tenant, used_us in (("a", 100 * MS), ("b", 1 * MS)):
        tenants.enqueued(tenant)
        tenants.charge(tenant, used_us, 0)
    return tenants


def test_a_head_of_a_tenant_below_his_share_is_spared_at_the_batchs_cost() -> None:
    # Three rows are bounded at 5 ms: 3 >= 0.6 * 4, but not at a gate of 1.
    limits = (5.1, 100, 100, 100, 100)

    assert choose(*limits, gate=1.0, tenants=a_contest(), names="aabab")[1] == [0]
    members, victims = choose(*limits, gate=1.0, tenants=a_contest(), names="baaba")
    assert 0 in members
    assert (len(members), victims) == (3, [])


def test_a_head_that_costs_most_of_the_batch_is_not_spared() -> None:
    _, victims = choose(3, 100, 100, 100, 100, tenants=a_contest(), names="baaaa")

    assert victims == [0]


def test_who_rides_along_is_in_time() -> None:
    """Of 1 ms and 1 ms a row, bounded a quarter higher: two rows fit 5 ms, not ten."""
    desk = Desk(a_version(max_batch=32))
    urgent = [a_request(priority=Priority.INTERACTIVE) for _ in range(10)]
    desk.arrive(*urgent, a_request(key="tight", limit_us=5 * MS))

    first, *_ = desk.tick()

    assert isinstance(first, Dispatch)
    assert sorted(keys(first)) == sorted(each.key for each in urgent)


def test_a_head_that_would_keep_others_from_riding_along_is_left() -> None:
    desk = Desk(a_version(max_batch=32))
    behind = [a_request() for _ in range(31)]
    urgent = a_request(priority=Priority.REALTIME)
    desk.arrive(urgent, a_request(key="tight", limit_us=7 * MS), *behind)

    first, *_ = desk.tick()

    assert isinstance(first, Dispatch)
    assert sorted(keys(first)) == sorted(each.key for each in [urgent, *behind])


def test_a_head_that_costs_few_others_their_seats_rides_along() -> None:
    desk = Desk(a_version(max_batch=32))
    behind = [a_request() for _ in range(31)]
    urgent = a_request(priority=Priority.REALTIME)
    desk.arrive(urgent, a_request(key="tight", limit_us=32 * MS), *behind)

    first, *_ = desk.tick()

    assert "tight" in keys(first)
