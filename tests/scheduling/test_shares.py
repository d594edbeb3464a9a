"""Whom the device time goes to when there is not enough of it.

The numbers are those of ``libs/headrace/scheduling/README.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from headrace.domain import (
    Dispatch,
    Priority,
    ReleaseReason,
    ServedVersion,
    Withdrawn,
)
from headrace.scheduling import SchedulingSettings
from headrace.scheduling.charging import charge
from headrace.scheduling.choice import Choice
from headrace.scheduling.estimate import RunTimes
from headrace.scheduling.fairness import TenantClocks
from headrace.scheduling.line import Line
from headrace.scheduling.queue import Entry, QueueKey
from headrace.scheduling.selection import Selection
from headrace.scheduling.shares import Shares
from headrace.scheduling.slots import Slot
from tests.scheduling.room import Room
from tests.scheduling.scenes import MS, Desk, a_request, a_version, keys

NO_HOPS = SchedulingSettings(control_hop_us=0, response_hop_us=0)
EXAMPLES = hypothesis_settings(max_examples=40, deadline=None)


def a_room(*versions: ServedVersion, settings: SchedulingSettings = NO_HOPS) -> Room:
    return Room(*versions, slots=1, settings=settings)


def worst_shortfall(taken: Sequence[float], others: Sequence[float]) -> float:
    """Over all runs of consecutive batches: the most by which ``taken`` falls behind
    ``others``, each a batch's part."""
    gaps = [b - a for a, b in zip(taken, others, strict=True)]
    sums = list(accumulate(gaps, initial=0.0))
    lows = accumulate(sums, min)
    return max(at - low for at, low in zip(sums, lows, strict=True))


def test_a_backlog_that_is_gone_has_no_claim() -> None:
    settings = NO_HOPS.model_copy(update={"shares": (0.0, 0.0, 0.0, 0.5)})
    nowhere = a_version("nowhere", slots=frozenset({9}))
    desk = Desk(a_version(), a_version("n"), nowhere, credits_each=1, settings=settings)
    bulk = {"priority": Priority.BULK, "limit_us": None}
    desk.arrive(a_request(key="gone", model="nowhere", **bulk))
    for turn in range(7):
        if turn == 6:
            desk.former.handle(Withdrawn("gone"), turn * 5 * MS)
        desk.arrive(*(a_request() for _ in range(4)), now_us=turn * 5 * MS)
        assert len(desk.tick(turn * 5 * MS)) == 1
        desk.finish(now_us=(turn + 1) * 5 * MS)
    now_us = 35 * MS
    desk.arrive(a_request(model="n", **bulk), a_request(key="online"), now_us=now_us)

    assert [keys(each) for each in desk.tick(now_us)] == [["online"]]


def test_who_was_alone_owes_nothing_to_who_comes() -> None:
    desk = Desk(credits_each=1, settings=NO_HOPS)
    now_us = 0
    for _ in range(30):
        desk.arrive(*(a_request(tenant="a") for _ in range(4)), now_us=now_us)
        desk.tick(now_us)
        now_us += 5 * MS
        desk.finish(now_us=now_us)
    for tenant in "ba":
        requests = (a_request(tenant=tenant, limit_us=None) for _ in range(16))
        desk.arrive(*requests, now_us=now_us)
    served = []
    for _ in range(4):
        (sent,) = desk.tick(now_us)
        assert isinstance(sent, Dispatch)
        served += [request.tenant for request in sent.requests]
        now_us += 5 * MS
        desk.finish(now_us=now_us)

    # But for the last batch, which is the present.
    assert served.count("a") >= 6


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), min_size=4, max_size=4),
    st.tuples(*[st.sampled_from([0.0, 0.05, 0.1, 0.2])] * 3),
)
@example([(1, 1), (5, 4), (1, 4), (5, 1)], (0.1, 0.1, 0.05))
@EXAMPLES
def test_every_priority_gets_its_share_of_any_span(
    models: list[tuple[int, int]], shares: tuple[float, float, float]
) -> None:
    """I11: while it has work, but for a run of its own, which waits for what is under
    way and for what is owed to the others. Models of their own keep the priorities
    from riding along."""
    settings = NO_HOPS.model_copy(update={"shares": (0.0, *shares)})
    versions = [
        a_version(f"m{priority}", alpha_us=alpha_ms * MS, max_batch=max_batch)
        for priority, (alpha_ms, max_batch) in zip(Priority, models, strict=True)
    ]
    room = a_room(*versions, settings=settings)
    runs_us = [max(served.run_us.values()) for served in versions]
    room.run(
        (
            a_request(model=f"m{priority}", priority=priority, limit_us=None)
            for priority in Priority
            for _ in range(200)
        ),
        until_us=50 * max(runs_us),
    )

    for priority, share in zip(Priority, settings.shares, strict=True):
        taken = [
            sent.run_us if sent.priority == priority else 0.0 for sent in room.sent
        ]
        wanted = [share * sent.run_us for sent in room.sent]
        behind_us = worst_shortfall(taken, wanted)
        assert behind_us <= runs_us[priority] + share * sum(runs_us) + 1


@given(
    st.sampled_from([1.0, 2.0, 3.0, 0.5]),
    st.integers(1, 4),
    st.lists(st.integers(1, 3), min_size=40, max_size=40),
)
@EXAMPLES
def test_tenants_with_work_are_served_by_their_weights(
    weight: float, max_batch: int, rows: list[int]
) -> None:
    """I13: two of them never come further apart than twice the largest charge."""
    settings = NO_HOPS.model_copy(update={"tenant_weights": {"a": weight}})
    served = a_version(max_batch=max(max_batch, 3))
    room = a_room(served, settings=settings)
    backlog = (
        a_request(tenant=tenant, rows=each, limit_us=None)
        for each in rows * 4
        for tenant in "ab"
    )
    room.run(backlog, until_us=120 * MS)

    largest = 0.0
    given_us: list[dict[str, float]] = []
    for sent in room.sent:
        requests = sent.dispatch.requests
        row_us = sent.run_us / sum(request.rows for request in requests)
        batch = {"a": 0.0, "b": 0.0}
        for request in requests:
            charge = row_us * request.rows
            charge /= weight if request.tenant == "a" else 1.0
            batch[request.tenant] += charge
            largest = max(largest, charge)
        given_us.append(batch)
    a, b = ([batch[tenant] for batch in given_us] for tenant in "ab")
    # A batch is filled by its planned cost per row, which an unfilled row changes.
    assert worst_shortfall(a, b) <= 2.5 * largest
    assert worst_shortfall(b, a) <= 2.5 * largest


@given(st.integers(5, 60), st.integers(2, 20), st.booleans())
@EXAMPLES
def test_who_was_away_catches_up_by_a_burst_at_most(
    away_ms: int,
    burst_ms: int,
    waits: bool,  # noqa: FBT001 - drawn
) -> None:
    """I14: by nothing, if nothing of his waited meanwhile."""
    settings = NO_HOPS.model_copy(update={"burst_us": burst_ms * MS})
    served = a_version(max_batch=4)
    nowhere = a_version("nowhere", slots=frozenset({9}))
    room = a_room(served, nowhere, settings=settings)
    back_us = away_ms * MS
    room.run(
        [
            a_request(tenant="b", limit_us=None),
            *(
                a_request(tenant="b", model="nowhere", limit_us=None)
                for _ in "w" * waits
            ),
            *(a_request(tenant="a", limit_us=None) for _ in range(400)),
            *(a_request(tenant="b", at_us=back_us, limit_us=None) for _ in range(150)),
        ],
        until_us=back_us + 150 * MS,
    )

    ahead, furthest = 0.0, 0.0
    for sent in room.sent:
        if sent.at_us < back_us:
            continue
        requests = sent.dispatch.requests
        charge = sent.run_us / len(requests)
        ahead += sum(charge if each.tenant == "b" else -charge for each in requests)
        furthest = max(furthest, ahead)
    batch_us = max(served.run_us.values())
    assert furthest <= batch_us + (burst_ms * MS if waits else 0)


def test_who_rides_along_pays_a_quarter_of_his_part() -> None:
    key = QueueKey("m", "1", "x:FP32:1")
    served = a_version()
    times = RunTimes(served.max_batch, served.run_us, quantile=0.95)
    line = Line(key, key, served, times, 0)
    urgent, rider = (
        Entry(MS, place, a_request(tenant=tenant, priority=priority))
        for place, (tenant, priority) in enumerate(
            [("a", Priority.REALTIME), ("b", Priority.STANDARD)]
        )
    )
    chosen = Selection([urgent], [], 1, MS, leaves_some=False)
    choice = Choice(line, 0, Slot(0), times, chosen, ReleaseReason.IDLE, 0)
    tenants = TenantClocks({}, burst_us=1000 * MS)
    shares = Shares((0.0, 0.1, 0.1, 0.05))

    for tenant in "ab":
        tenants.enqueued(tenant)
    charge(
        choice,
        [urgent, rider],
        8.0 * MS,
        busy=[{} for _ in Priority],
        tenants=tenants,
        shares=shares,
        now_us=0,
    )

    assert (tenants.clock("a"), tenants.clock("b")) == (8 * MS, 2 * MS)
