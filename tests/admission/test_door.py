"""Who may enter, by the load that lanes publish."""

from __future__ import annotations

import math
import re
from decimal import Decimal

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headrace.admission import AdmissionSettings, Admitted, Denied, Door
from headrace.domain import Load, Price, Priority, Reason
from tests.admission.scenes import MS, PRICE, a_door, a_load, admit, ask


def test_a_request_enters_an_idle_lane() -> None:
    assert ask(a_door(a_load())) == Admitted(0)


def test_a_full_batch_may_wait_behind_one_that_runs_though_it_be_more_than_fill() -> (
    None
):
    # 0.6 of 40 ms leave 14 beside a batch of 10; two batches are 20.
    assert ask(a_door(a_load(standard=20)), limit_ms=40) == Admitted(0)

    denied = ask(a_door(a_load(standard=21)), limit_ms=40)
    assert isinstance(denied, Denied)
    assert denied.text.endswith(
        "31 ms, more than 0.75 (batches_within_limit_min) of the time limit of 40 ms"
    )


def test_what_waits_so_has_to_end_in_time_with_the_hops() -> None:
    # Of 31 ms the hops take 3.
    assert ask(a_door(a_load(standard=18)), limit_ms=31) == Admitted(0)

    assert isinstance(ask(a_door(a_load(standard=19)), limit_ms=31), Denied)


def test_versions_that_share_a_slot_each_gather_a_batch() -> None:
    def waits(ms: int, versions: int, slots: int = 1) -> Admitted | Denied:
        load = a_load(standard=ms * slots, slots=slots)
        prices = [PRICE, *(_another(number) for number in range(1, versions))]
        return ask(a_door(msgspec.structs.replace(load, prices=prices)))

    # 100 ms hold ten batches: one of them runs, one is the request's own.
    assert waits(70, versions=6) == Admitted(0)
    assert waits(100, versions=9) == Admitted(0)
    for ms, versions, slots in ((71, 6, 1), (51, 3, 1), (101, 9, 1), (71, 12, 2)):
        assert isinstance(waits(ms, versions, slots), Denied), (ms, versions, slots)


def _another(number: int) -> Price:
    return msgspec.structs.replace(PRICE, version=str(number + 1))


def test_a_request_enters_up_to_a_part_of_its_time_limit() -> None:
    # 10 ms of run leave 50 of the 60 ms that are allowed.
    assert ask(a_door(a_load(standard=50))) == Admitted(0)

    assert ask(a_door(a_load(standard=51))) == Denied(
        Reason.OVERLOADED,
        "51 ms of work are ahead and a batch takes 10 ms: 61 ms, more than 0.6 (fill) "
        "of the time limit of 100 ms",
        1 * MS,
    )


def test_hops_have_what_the_queue_may_not_fill() -> None:
    door = a_door()
    door.heard(0, a_load(standard=40), request_us=0, rest_us=50 * MS, now_us=0)
    assert ask(door) == Admitted(0)
    door.heard(0, a_load(standard=41), request_us=0, rest_us=50 * MS, now_us=0)
    assert isinstance(ask(door), Denied)


def test_what_hops_make_late_is_told_with_them() -> None:
    door = a_door()
    door.heard(0, a_load(standard=41), request_us=0, rest_us=50 * MS, now_us=0)
    assert ask(door) == Denied(
        Reason.OVERLOADED,
        "41 ms of work are ahead and a batch takes 10 ms, the hops 50 ms: 101 ms, more "
        "than the time limit of 100 ms",
        1 * MS,
    )


@given(
    waits_us=st.integers(1, 500_000),
    batch_us=st.integers(1, 300_000),
    hops_us=st.integers(0, 200_000),
    limit_us=st.integers(1, 10**6),
    lag_us=st.integers(0, 10**5),
    heavy=st.booleans(),
)
def test_the_figures_of_a_refusal_add_up_to_it(
    *,
    waits_us: int,
    batch_us: int,
    hops_us: int,
    limit_us: int,
    lag_us: int,
    heavy: bool,
) -> None:
    door = Door(AdmissionSettings(loop_lag_part=1))
    door.loop_lag_us = lag_us
    price = msgspec.structs.replace(PRICE, batch_us=batch_us, one_us=batch_us // 2)
    load = Load(
        slots=1, free_us=[waits_us], prices=[price], heavy=["t"] if heavy else []
    )
    door.heard(0, load, request_us=hops_us, rest_us=0, now_us=0)

    verdict = door.decide(
        (0,),
        price,
        Priority.STANDARD,
        tenant="t",
        limit_us=limit_us,
        in_flight=0,
        now_us=0,
    )

    if isinstance(verdict, Admitted):
        return
    needed, _, allowed = verdict.text.partition(", more than ")
    *parts, total = figures(needed)
    assert total == sum(parts[1:], parts[0]) if len(parts) > 1 else parts == []
    *factor, limit = figures(allowed.partition(" less ")[0])
    less = sum(figures(allowed.partition(" less ")[2]))
    assert limit == Decimal(limit_us) / 1000
    assert total > math.prod(factor) * (limit - less) - Decimal("0.001")


def figures(text: str) -> list[Decimal]:
    return [Decimal(each) for each in re.findall(r"[0-9]+(?:\.[0-9]+)?", text)]


def test_a_limit_that_no_run_keeps_is_no_matter_of_load() -> None:
    door = a_door(a_load())
    door.loop_lag_us = 1_900

    verdict = door.decide(
        (0,),
        PRICE,
        Priority.STANDARD,
        tenant="t",
        limit_us=1,
        in_flight=0,
        now_us=0,
    )

    assert isinstance(verdict, Denied)
    assert verdict.reason is Reason.DEADLINE_UNATTAINABLE
    assert verdict.text == (
        "a run alone takes up to 3 ms, as those of late tell, more than the time limit "
        "of 0.001 ms less the 1 ms that this ingress is behind"
    )


def test_long_hops_shut_no_door_behind_which_nothing_waits() -> None:
    door = a_door()
    door.heard(0, a_load(), request_us=0, rest_us=5_000 * MS, now_us=0)

    assert ask(door) == Admitted(0)


def test_what_runs_counts_as_what_waits() -> None:
    assert isinstance(ask(a_door(a_load(running_ms=30, standard=21))), Denied)


def test_a_slot_that_is_free_earlier_begins_earlier() -> None:
    load = a_load(slots=4, standard=70)
    busy = msgspec.structs.replace(load, free_us=[10 * MS, 40 * MS])

    # Two slots work from 10 ms on, all four from 40: 10 ms later 70 are done.
    assert ask(a_door(busy)) == Admitted(0)
    busy = msgspec.structs.replace(load, free_us=[10 * MS, 60 * MS])
    # Now two do it all, by 45 ms.
    assert ask(a_door(busy)) == Admitted(0)
    busy = msgspec.structs.replace(busy, free_us=[16 * MS, 60 * MS])
    assert isinstance(ask(a_door(busy)), Denied)


def test_more_slots_drain_a_backlog_faster() -> None:
    assert ask(a_door(a_load(slots=2, standard=94))) == Admitted(0)


def test_less_urgent_work_is_not_waited_for() -> None:
    assert ask(a_door(a_load(bulk=5000)), priority=Priority.STANDARD) == Admitted(0)
    assert isinstance(ask(a_door(a_load(realtime=5000))), Denied)


def test_what_was_sent_since_counts_until_the_next_load() -> None:
    door = a_door(a_load(standard=40))
    admit(door, rows=20)
    assert ask(door) == Admitted(0)
    admit(door, rows=2)
    assert isinstance(ask(door), Denied)

    door.heard(0, a_load(standard=40), request_us=1 * MS, rest_us=2 * MS, now_us=0)
    assert ask(door) == Admitted(0)


def test_other_ingresses_are_thought_to_send_as_much() -> None:
    door = a_door(a_load(standard=40))
    door.ingresses = 4
    admit(door, rows=6)

    assert isinstance(ask(door), Denied)


def test_time_since_the_load_was_published_is_taken_off() -> None:
    door = a_door(a_load(standard=60))

    assert isinstance(ask(door), Denied)
    assert ask(door, now_us=13 * MS) == Admitted(0)


def test_the_lane_with_the_earliest_finish_is_chosen() -> None:
    door = a_door(a_load(standard=30), a_load(standard=10), a_load(standard=20))

    assert ask(door, 0, 1, 2) == Admitted(1)


def test_a_limit_with_no_room_for_a_queue_lets_in_more_to_choose_from() -> None:
    # Three batches take 30 ms. 3 ms of a row leave 97 of four times 25.
    assert ask(a_door(a_load(standard=97)), limit_ms=25) == Admitted(0)
    denied = ask(a_door(a_load(standard=98)), limit_ms=25)
    assert isinstance(denied, Denied)
    assert denied.retry_after_us == 1 * MS


def test_a_limit_below_a_run_of_one_row_is_unattainable() -> None:
    assert ask(a_door(a_load()), limit_ms=3) == Admitted(0)
    denied = ask(a_door(a_load()), limit_ms=2)

    assert isinstance(denied, Denied)
    assert denied.reason == Reason.DEADLINE_UNATTAINABLE


def test_a_late_loop_refuses_everything() -> None:
    door = a_door(a_load())
    door.loop_lag_us = 51 * MS

    assert ask(door) == Denied(
        Reason.OVERLOADED,
        "this ingress is 51 ms behind with its work, more than 0.5 (loop_lag_part) of "
        "100 ms of the time limit",
        51 * MS,
    )


def test_a_lane_without_workers_is_not_entered() -> None:
    denied = ask(a_door(a_load(slots=0)))

    assert isinstance(denied, Denied)
    assert denied.reason == Reason.NO_CAPACITY


def test_a_lane_that_tells_nothing_is_entered_up_to_a_learned_limit() -> None:
    door = Door(AdmissionSettings(concurrency_initial=8))

    assert ask(door, in_flight=7) == Admitted(0)
    assert isinstance(ask(door, in_flight=8), Denied)


def test_an_old_load_is_not_believed() -> None:
    assert ask(a_door(a_load(standard=5000)), now_us=1001 * MS) == Admitted(0)


@given(
    backlog_ms=st.integers(0, 200),
    more_ms=st.integers(0, 200),
    limit_ms=st.integers(1, 300),
    slots=st.integers(1, 4),
)
def test_more_work_ahead_never_opens_the_door(
    backlog_ms: int, more_ms: int, limit_ms: int, slots: int
) -> None:
    less = ask(a_door(a_load(slots=slots, standard=backlog_ms)), limit_ms=limit_ms)
    more = ask(
        a_door(a_load(slots=slots, standard=backlog_ms + more_ms)), limit_ms=limit_ms
    )

    if isinstance(less, Denied):
        assert isinstance(more, Denied)
        assert more.retry_after_us >= less.retry_after_us > 0


@given(limit_ms=st.integers(6, 10_000))
def test_an_idle_lane_takes_whatever_can_be_done(limit_ms: int) -> None:
    assert ask(a_door(a_load()), limit_ms=limit_ms) == Admitted(0)


def test_a_late_loop_refuses_also_those_who_grant_minutes() -> None:
    door = a_door(a_load())
    door.loop_lag_us = 2_600 * MS
    refused = ask(door, limit_ms=600_000)
    assert isinstance(refused, Denied)
    assert refused.reason is Reason.OVERLOADED
    door.loop_lag_us = 2_400 * MS
    assert isinstance(ask(door, limit_ms=600_000), Admitted)


def test_a_lane_of_which_nothing_is_heard_is_not_taken_to_work_on() -> None:
    door = a_door(a_load(standard=90))
    assert isinstance(ask(door, now_us=39 * MS), Denied)
    assert ask(door, now_us=40 * MS) == Admitted(0)
    for number in range(500):
        now_us = 100 * MS + number * MS
        if isinstance(ask(door, now_us=now_us), Denied):
            break
        admit(door, rows=1, now_us=now_us)
    # 90 ms were ahead, 50 of them count as done: 10 ms of rows of 0.5 ms.
    assert number == 21
