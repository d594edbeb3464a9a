"""A device that is asked in bursts: more may be ahead, and is worked off after them."""

from __future__ import annotations

from headrace.admission import Admitted, Denied
from headrace.domain import Reason
from tests.admission.scenes import MS, a_door, a_load, ask

FILLED = a_load(standard=58)
"""With the 10 ms of a request's own batch more than 0.6 of 100 ms, and in time."""


def after(short: int, filled: int, *, lag_us: int = 0) -> Admitted | Denied:
    """What is said when a lane was heard every 50 ms, with too little to do for a full
    batch at first, with enough then."""
    door = a_door(a_load())
    for number in range(1, short + filled + 1):
        load = FILLED if number > short else a_load(running_ms=4, standard=5)
        now_us = number * 50 * MS
        door.heard(0, load, request_us=1 * MS, rest_us=2 * MS, now_us=now_us)
    door.loop_lag_us = lag_us
    return ask(door, now_us=(short + filled) * 50 * MS)


def test_what_comes_in_a_burst_may_wait_until_it_is_over() -> None:
    assert after(short=20, filled=1) == Admitted(0)
    assert isinstance(after(short=0, filled=20), Denied)


def test_a_lull_is_forgotten_where_there_is_always_enough_to_do() -> None:
    assert after(short=40, filled=8) == Admitted(0)
    assert isinstance(after(short=40, filled=30), Denied)


def test_a_device_that_ran_dry_beside_refusals_was_in_no_lull() -> None:
    def alternately(*, asked: bool) -> Admitted | Denied:
        door, now_us = a_door(a_load()), 0
        for _ in range(20):
            for load in (FILLED, a_load()):
                now_us += 50 * MS
                door.heard(0, load, request_us=1 * MS, rest_us=2 * MS, now_us=now_us)
                if asked and load is FILLED:
                    assert isinstance(ask(door, now_us=now_us), Denied)
        door.heard(0, FILLED, request_us=1 * MS, rest_us=2 * MS, now_us=now_us)
        return ask(door, now_us=now_us)

    assert isinstance(alternately(asked=True), Denied)
    assert alternately(asked=False) == Admitted(0)


def test_what_ends_too_late_is_refused_after_a_lull_too() -> None:
    door = a_door(a_load())
    door.heard(0, a_load(), request_us=0, rest_us=0, now_us=2_000 * MS)
    load = a_load(standard=88)
    door.heard(0, load, request_us=1 * MS, rest_us=2 * MS, now_us=2_001 * MS)
    assert ask(door, now_us=2_001 * MS) == Denied(
        Reason.OVERLOADED,
        "88 ms of work are ahead and a batch takes 10 ms, the hops 3 ms: 101 ms, more "
        "than the time limit of 100 ms",
        1 * MS,
    )


def test_a_door_says_how_much_a_lull_allows() -> None:
    denied = after(short=40, filled=25)
    assert isinstance(denied, Denied)
    assert "(fill, and more as the device had little to do of late)" in denied.text


def test_an_ingress_that_is_behind_allows_nothing_for_a_lull() -> None:
    assert after(short=40, filled=1, lag_us=1 * MS) == Admitted(0)
    assert isinstance(after(short=40, filled=1, lag_us=2 * MS), Denied)
