"""Slots whose memory holds fewer rows than the version takes."""

from __future__ import annotations

from headrace.domain import (
    Dispatch,
    Priority,
)
from tests.scheduling.scenes import MS, Desk, a_request, a_version, keys


def test_a_slot_gets_no_more_rows_than_its_memory_holds() -> None:
    both = frozenset({0, 1})
    desk = Desk(a_version(slots=both, max_batch=8, rows_fit={0: 2}), slots=2)
    desk.arrive(*(a_request(priority=Priority.REALTIME) for _ in range(8)))
    desk.arrive(a_request(key="rides along"))

    first, second = desk.tick()

    assert isinstance(first, Dispatch)
    assert isinstance(second, Dispatch)

    assert (first.slot, len(first.requests)) == (0, 2)
    assert (second.slot, len(second.requests)) == (1, 7)


def test_a_request_larger_than_any_slots_memory_goes_alone() -> None:
    desk = Desk(a_version(max_batch=8, rows_fit={0: 2}))
    desk.arrive(a_request(key="a", rows=4, limit_us=100 * MS), a_request(key="b"))

    (dispatch,) = desk.tick()

    assert isinstance(dispatch, Dispatch)

    assert keys(dispatch) == ["a"]
