"""Versions stay where they ran, as far as that makes nobody wait too long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain import Dispatch, Priority
from tests.scheduling.scenes import MS, Desk, a_request, a_version

LIMIT_US = 100 * MS
FOUR = frozenset(range(4))
ONE = frozenset({0})


def a_desk(slots: frozenset[int]) -> Desk:
    return Desk(
        a_version("a", slots=slots), a_version("b", slots=slots), slots=len(slots)
    )


def sent(desk: Desk, now_us: int) -> list[tuple[str, int]]:
    """Models and slots of what leaves now."""
    decisions = desk.tick(now_us)
    assert all(isinstance(each, Dispatch) for each in decisions)
    return [
        (each.requests[0].model, each.slot)
        for each in decisions
        if isinstance(each, Dispatch)
    ]


def arrive(desk: Desk, model: str, now_us: int, **how: Priority | int | None) -> None:
    limit_us = None if how else LIMIT_US
    priority = Priority.BULK if how else Priority.STANDARD
    request = a_request(model=model, at_us=now_us, limit_us=limit_us, priority=priority)
    desk.arrive(request, now_us=now_us)


def test_versions_that_take_turns_have_an_idle_slot_each() -> None:
    desk = a_desk(FOUR)
    places = []
    for turn in range(8):
        now_us = turn * 10 * MS
        arrive(desk, "ab"[turn % 2], now_us)
        ((model, slot),) = sent(desk, now_us)
        places.append((model, slot))
        desk.finish(slot, now_us=now_us + 5 * MS)

    assert len(set(places)) == 2
    assert len({slot for _, slot in places}) == 2


def test_nobody_waits_for_the_slot_where_his_version_ran() -> None:
    desk = a_desk(frozenset({0, 1}))
    arrive(desk, "a", 0)
    assert sent(desk, 0) == [("a", 0)]

    arrive(desk, "a", 1)

    assert sent(desk, 1) == [("a", 1)]


@given(
    a_at_us=st.integers(0, 40 * MS),
    b_at_us=st.integers(0, 40 * MS),
    a_limit_us=st.integers(60 * MS, 5_000 * MS),
)
def test_a_version_passes_more_urgent_ones_by_a_tenth_of_the_least_limit_at_most(
    a_at_us: int, b_at_us: int, a_limit_us: int
) -> None:
    desk = a_desk(ONE)
    arrive(desk, "b", 0)
    assert sent(desk, 0) == [("b", 0)]
    desk.finish(now_us=5 * MS)
    desk.arrive(
        a_request(model="a", at_us=50 * MS, limit_us=a_limit_us), now_us=50 * MS
    )
    assert sent(desk, 50 * MS) == [("a", 0)]
    for at_us, model, limit_us in sorted(
        [(a_at_us, "a", a_limit_us), (b_at_us, "b", LIMIT_US)]
    ):
        desk.arrive(
            a_request(model=model, at_us=50 * MS + at_us, limit_us=limit_us),
            now_us=50 * MS + at_us,
        )
    desk.finish(now_us=95 * MS, run_us=2 * MS)

    (first, *_) = sent(desk, 95 * MS)

    passes_us = a_at_us + a_limit_us - b_at_us - LIMIT_US
    near_us = min(a_limit_us, LIMIT_US) // 10
    if passes_us != near_us:
        assert first == ("a" if passes_us < near_us else "b", 0)


def test_bulk_work_of_one_version_does_not_keep_out_anothers() -> None:
    desk = a_desk(ONE)
    for number in range(6):
        arrive(desk, "ab"[number % 2], number, bulk=1)
        arrive(desk, "ab"[number % 2], number, bulk=1)
    models = []
    for turn in range(2):
        now_us = 10 * MS * (turn + 1)
        ((model, slot),) = sent(desk, now_us)
        models.append(model)
        desk.finish(slot, now_us=now_us + 5 * MS)

    assert models == ["a", "b"]


@pytest.mark.parametrize("avoided", [0, 1])
def test_a_slot_that_is_avoided_is_no_home(avoided: int) -> None:
    desk = a_desk(frozenset({0, 1}))
    arrive(desk, "a", 0)
    ((_, slot),) = sent(desk, 0)
    desk.finish(slot, now_us=5 * MS)
    desk.arrive(a_request(model="a", at_us=6 * MS, avoid=avoided), now_us=6 * MS)

    assert sent(desk, 6 * MS) == [("a", 1 - avoided)]
