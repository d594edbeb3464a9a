"""Other systems' batching, by what is known of each."""

from __future__ import annotations

from itertools import count

import pytest

from headrace.domain import (
    Arrived,
    Dispatch,
    HopsMeasured,
    Priority,
    Refuse,
    Request,
    SchedulerDecision,
    SlotChanged,
    Ticked,
)
from headrace.simulation.peer import Peer, Rule
from headrace.simulation.rules import (
    RULES,
    Clipper,
    Clockwork,
    FifoDelay,
    Nexus,
    Symphony,
    TritonLike,
)
from tests.scheduling.scenes import MS, a_request, keys

RUN_US = [0, *(10 * MS + rows * MS for rows in range(1, 9))]
"""11 to 18 ms for 1 to 8 rows."""


def a_peer(rule: Rule, *requests: Request) -> Peer:
    """One idle slot, no hops, and these requests."""
    peer = Peer(rule, {"m": RUN_US})
    peer.handle(HopsMeasured(0, 0), 0)
    peer.handle(SlotChanged(0, 1, ()), 0)
    for request in requests:
        peer.handle(Arrived(request), 0)
    return peer


def tick(peer: Peer, now_us: int = 0) -> tuple[list[str], list[str]]:
    """Who was sent, and who was dropped."""
    decisions: list[SchedulerDecision] = peer.handle(Ticked(), now_us)
    sent = [
        key for each in decisions if isinstance(each, Dispatch) for key in keys(each)
    ]
    dropped = [
        key for each in decisions if isinstance(each, Refuse) for key in keys(each)
    ]
    return sent, dropped


def waiting(number: int, limit_ms: int = 100) -> list[Request]:
    return [a_request(key=f"{n}", limit_us=limit_ms * MS) for n in range(number)]


def test_fifo_waits_for_its_delay_or_a_full_batch() -> None:
    peer = a_peer(FifoDelay(delay_us=5 * MS), *waiting(3))
    assert tick(peer, 4 * MS) == ([], [])
    assert peer.wakeup_at_us() == 5 * MS
    assert tick(peer, 5 * MS) == (["0", "1", "2"], [])

    assert len(tick(a_peer(FifoDelay(), *waiting(9)))[0]) == 8


def test_fifo_sends_what_is_late_already() -> None:
    assert tick(a_peer(FifoDelay(), *waiting(2, limit_ms=1)), 900 * MS)[0] == ["0", "1"]


def test_triton_has_strict_levels_and_rejects_after_a_timeout() -> None:
    urgent = a_request(key="urgent", priority=Priority.REALTIME, at_us=9 * MS)
    peer = a_peer(TritonLike(timeout_us=10 * MS), *waiting(1), urgent)

    assert tick(peer, 11 * MS) == (["urgent", "0"], [])
    peer = a_peer(TritonLike(timeout_us=10 * MS), *waiting(2), urgent)
    peer.handle(SlotChanged(0, 1, ()), 0)
    assert tick(peer, 11 * MS)[0][0] == "urgent"

    peer = a_peer(TritonLike(timeout_us=10 * MS), *waiting(2))
    assert tick(peer, 11 * MS) == ([], ["0", "1"])


def test_clipper_grows_by_one_and_shrinks_by_a_tenth() -> None:
    rule = Clipper()
    sizes = []
    for run_us in [20 * MS] * 6 + [200 * MS]:
        sent, _ = tick(a_peer(rule, *waiting(8)))
        sizes.append(len(sent))
        rule.ended(waiting(len(sent)), run_us)
    sizes.append(len(tick(a_peer(rule, *waiting(8)))[0]))

    assert sizes == [1, 2, 3, 4, 5, 6, 7, 6]


def test_nexus_drops_heads_that_the_planned_window_would_miss() -> None:
    # Two runs of six rows take 32 ms, of seven 34: six are planned for 33 ms.
    requests = waiting(8, limit_ms=33)
    assert tick(a_peer(Nexus(), *requests)) == ([str(n) for n in range(6)], [])

    tight = a_request(key="tight", limit_us=15 * MS)
    old = a_request(key="old", at_us=-18 * MS, limit_us=33 * MS)
    sent, dropped = tick(a_peer(Nexus(), old, *requests))
    assert dropped == ["old"]
    assert sent == [str(n) for n in range(6)]
    # Planned for what is in front: two runs of one row do not fit 15 ms.
    assert tick(a_peer(Nexus(), tight, *waiting(2)))[0] == ["tight"]


def test_clockwork_shrinks_the_batch_to_what_its_head_makes() -> None:
    tight = a_request(key="tight", limit_us=12 * MS)
    lost = a_request(key="lost", limit_us=10 * MS)

    assert tick(a_peer(Clockwork(), *waiting(5), tight, lost)) == (
        ["tight", "0"],
        ["lost"],
    )


def test_symphony_waits_until_one_more_would_make_its_head_late() -> None:
    peer = a_peer(Symphony(), *waiting(3))

    # Four rows run 14 ms: at 86 ms they just make it, a moment later three do.
    assert tick(peer, 86 * MS) == ([], [])
    assert peer.wakeup_at_us() == 86 * MS + 1
    assert tick(peer, 86 * MS + 1) == (["0", "1", "2"], [])


@pytest.mark.parametrize("name", RULES)
def test_nothing_leaves_without_a_free_slot(name: str) -> None:
    peer = a_peer(RULES[name](), *waiting(20))
    peer.handle(SlotChanged(0, 0, ("b",)), 0)

    assert tick(peer, 50 * MS)[0] == []


@pytest.mark.parametrize("name", RULES)
def test_everything_that_came_leaves_or_is_dropped(name: str) -> None:
    peer = a_peer(RULES[name](), *waiting(20))
    numbers = count()
    seen: list[str] = []
    for now_ms in range(0, 400, 20):
        peer.handle(SlotChanged(0, 1, ()), now_ms * MS)
        sent, dropped = tick(peer, now_ms * MS + next(numbers) % 2)
        seen += sent + dropped

    assert sorted(seen, key=int) == [str(n) for n in range(20)]
