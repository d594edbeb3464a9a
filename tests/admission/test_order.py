"""Whom a request waits for, whom it may pass, and what a share is worth."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headrace.admission import Admitted, Denied
from headrace.domain import Priority, Reason
from tests.admission.scenes import MS, a_door, a_load, admit, ask, due


def test_work_that_is_due_later_is_not_waited_for() -> None:
    door = a_door(due(a_load(), within_90=20, within_5000=2500))

    assert ask(door) == Admitted(0)
    assert ask(door, limit_ms=5000) == Admitted(0)
    door = a_door(due(a_load(), within_90=51, within_5000=2500))
    assert ask(door) == Denied(
        Reason.OVERLOADED,
        "51 ms of work are ahead and a batch takes 10 ms: 61 ms, more than 0.6 (fill) "
        "of the time limit of 100 ms",
        1 * MS,
    )
    door = a_door(due(a_load(), within_90=51, within_5000=3000))
    assert isinstance(ask(door, limit_ms=5000), Denied)


def test_work_that_never_is_due_is_passed_however_much_it_is() -> None:
    assert ask(a_door(due(a_load(), within_900000=800_000))) == Admitted(0)


def test_what_was_let_in_counts_by_its_deadline() -> None:
    door = a_door(a_load(standard=10))
    admit(door, rows=5000, limit_ms=5000)
    assert ask(door) == Admitted(0)
    assert ask(door, limit_ms=5000) == Admitted(0)

    admit(door, rows=82, limit_ms=100)
    assert isinstance(ask(door), Denied)
    assert ask(door, limit_ms=5000) == Admitted(0)
    admit(door, rows=880, limit_ms=100)
    assert isinstance(ask(door, limit_ms=5000), Denied)


def test_deadlines_count_from_when_the_load_was_heard() -> None:
    # Due more than 200 ms after the load, as is whoever asks 10 ms later.
    door, load, now_us = a_door(), due(a_load(), within_250=160), 777_000 * MS
    door.heard(0, load, request_us=1 * MS, rest_us=2 * MS, now_us=now_us)

    assert ask(door, limit_ms=200, now_us=now_us) == Admitted(0)
    assert isinstance(ask(door, limit_ms=200, now_us=now_us + 10 * MS), Denied)


def test_nobody_passes_work_that_would_be_late_for_it() -> None:
    # Due between 1131 and 1600 ms; a batch takes 10 and the hops 3 ms.
    assert ask(a_door(due(a_load(), within_1600=1118))) == Admitted(0)
    assert ask(a_door(due(a_load(), within_1600=1119))) == Denied(
        Reason.OVERLOADED,
        "it would pass work that is due in 1131 ms and would then be done in 1132 ms",
        1 * MS,
    )


def test_to_choose_from_more_is_let_in_than_can_be_in_time() -> None:
    # Less than three batches fit 25 ms: four times that may be ahead.
    door = a_door(due(a_load(), within_25=20, within_50=77))
    assert ask(door, limit_ms=25) == Admitted(0)
    door = a_door(due(a_load(), within_25=20, within_50=78))
    assert isinstance(ask(door, limit_ms=25), Denied)


@given(
    limit_ms=st.integers(20, 3000),
    sent=st.lists(st.tuples(st.integers(0, 90), st.integers(1, 40)), max_size=8),
    waiting_ms=st.integers(0, 80),
    after_ms=st.integers(0, 100),
)
def test_with_one_time_limit_who_came_first_goes_first(
    limit_ms: int, sent: list[tuple[int, int]], waiting_ms: int, after_ms: int
) -> None:
    door = a_door(due(a_load(), **{f"within_{limit_ms}": waiting_ms}))
    plain = a_door(a_load(standard=waiting_ms))
    for at_ms, rows in sorted(sent):
        admit(door, rows=rows, limit_ms=limit_ms, now_us=at_ms * MS)
        admit(plain, rows=rows, limit_ms=0)

    now_us = max([after_ms, *(at_ms for at_ms, _ in sent)]) * MS

    assert ask(door, limit_ms=limit_ms, now_us=now_us) == ask(
        plain, limit_ms=limit_ms, now_us=now_us
    )


def test_what_was_let_in_delays_the_less_urgent_whenever_it_is_due() -> None:
    door = a_door(a_load())
    admit(door, rows=200, priority=Priority.INTERACTIVE, limit_ms=60_000)

    assert ask(door, priority=Priority.REALTIME) == Admitted(0)
    assert ask(door, priority=Priority.INTERACTIVE) == Admitted(0)
    assert isinstance(ask(door, priority=Priority.STANDARD), Denied)
    assert isinstance(ask(door, priority=Priority.BULK), Denied)


def test_a_guaranteed_share_is_let_in_behind_any_urgent_work() -> None:
    shares = [0.0, 0.1, 0.1, 0.05]
    load = msgspec.structs.replace(a_load(realtime=5000, standard=8), shares=shares)
    door = a_door(load)
    assert ask(door) == Admitted(0)
    # It may have two batches of 10 ms waiting.
    admit(door, rows=23)
    assert ask(door) == Admitted(0)
    admit(door, rows=1)
    assert isinstance(ask(door), Denied)
    assert isinstance(ask(door, priority=Priority.REALTIME), Denied)

    # Of eight workers it has 0.8: 48 ms of 60.
    load = msgspec.structs.replace(load, slots=8)
    door = a_door(load)
    admit(door, rows=79)
    assert ask(door) == Admitted(0)
    admit(door, rows=1)
    assert isinstance(ask(door), Denied)


def test_a_share_helps_nobody_through_a_queue_of_his_own() -> None:
    shares = [0.0, 0.1, 0.1, 0.05]
    load = a_load(running_ms=45, standard=6)
    load = msgspec.structs.replace(load, shares=shares)

    assert isinstance(ask(a_door(load)), Denied)
