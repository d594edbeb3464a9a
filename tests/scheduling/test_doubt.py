"""A device that was slow once is not taken for slow for ever."""

from __future__ import annotations

from headrace.domain import Dispatch, Refuse
from tests.scheduling.scenes import MS, Desk, a_request, a_version, keys


def slowed(desk: Desk) -> int:
    """Ten runs of one row that take 200 ms; when they are over."""
    now_us = 0
    for _ in range(10):
        desk.arrive(a_request(at_us=now_us), now_us=now_us)
        desk.tick(now_us)
        now_us += 200 * MS
        desk.finish(now_us=now_us, run_us=200 * MS)
    return now_us


def test_what_nothing_can_make_is_refused_at_first() -> None:
    desk = Desk()
    now_us = slowed(desk)
    desk.arrive(a_request(at_us=now_us, limit_us=100 * MS), now_us=now_us)

    (refused,) = desk.tick(now_us)

    assert isinstance(refused, Refuse)


def test_after_a_second_of_refusals_one_batch_runs_to_be_measured() -> None:
    desk = Desk()
    now_us = slowed(desk)
    sent: list[Dispatch] = []
    for _ in range(15):
        desk.arrive(a_request(at_us=now_us, limit_us=100 * MS), now_us=now_us)
        sent += [each for each in desk.tick(now_us) if isinstance(each, Dispatch)]
        now_us += 100 * MS

    assert len(sent) >= 1

    while desk.held[0]:
        desk.finish(now_us=now_us, run_us=2 * MS)
    desk.arrive(a_request(key="next", at_us=now_us), now_us=now_us)
    assert [keys(each) for each in desk.tick(now_us)][-1] == ["next"]


def test_a_price_that_nothing_confirms_keeps_nobody_out() -> None:
    desk = Desk(a_version())
    now_us = slowed(desk)
    (price,) = desk.former.load(now_us).prices
    assert price.one_us > 100 * MS

    now_us += 1_000 * MS
    desk.arrive(a_request(at_us=now_us), now_us=now_us)
    (price,) = desk.former.load(now_us).prices
    assert price.one_us == 0


def test_in_doubt_a_request_still_ends_at_its_deadline() -> None:
    desk = Desk()
    now_us = slowed(desk)
    desk.arrive(a_request(at_us=now_us, limit_us=50 * MS), now_us=now_us)
    desk.tick(now_us)
    now_us += 1_500 * MS
    desk.arrive(*(a_request(at_us=now_us, limit_us=50 * MS) for _ in range(9)))
    ended: list[str] = []
    for _ in range(6):
        for each in desk.tick(now_us):
            ended += keys(each)
        now_us += 20 * MS

    assert len(ended) == 9


def test_requests_that_wait_too_long_cast_no_doubt_on_run_times() -> None:
    desk = Desk(a_version(max_batch=1))
    desk.arrive(*(a_request(limit_us=10_000 * MS) for _ in range(2)))
    desk.tick()
    now_us = 5 * MS
    desk.tick(now_us)
    assert len(desk.held[0]) == 2  # the worker stands still with them
    while now_us < 1_500 * MS:
        desk.arrive(a_request(at_us=now_us, limit_us=50 * MS), now_us=now_us)
        now_us += 49 * MS
        (refused,) = desk.tick(now_us)
        assert isinstance(refused, Refuse)
    desk.arrive(a_request(key="late", at_us=now_us, limit_us=50 * MS), now_us=now_us)
    now_us += 49 * MS

    desk.finish(now_us=now_us)

    (decision,) = desk.tick(now_us)
    assert isinstance(decision, Refuse)
    assert keys(decision) == ["late"]


def test_a_few_slow_runs_keep_out_no_one_for_long() -> None:
    """A model whose time follows its data: by the slowest of its runs nobody with a
    shorter time limit could ever make it, and nearly everybody does."""
    desk = Desk(a_version())
    now_us = 0

    def ask(run_ms: int, limit_ms: int) -> bool:
        nonlocal now_us
        now_us += 100 * MS
        prices = desk.former.load(now_us).prices
        if any(price.one_us > limit_ms * MS for price in prices):
            return False  # at the door
        asked = a_request(at_us=now_us, limit_us=limit_ms * MS)
        desk.arrive(asked, now_us=now_us)
        decisions = desk.tick(now_us)
        now_us += run_ms * MS
        if desk.held[0]:
            desk.finish(now_us=now_us, run_us=run_ms * MS)
        return not any(isinstance(each, Refuse) for each in decisions)

    assert all(ask(5, 2_000) for _ in range(40))
    assert all(ask(4_000, 60_000) for _ in range(4))
    answered = [ask(5, 2_000) for _ in range(100)]

    assert all(answered[25:])
