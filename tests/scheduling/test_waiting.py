"""I9: how long a queue that loses requests waits for company beside an idle worker."""

from __future__ import annotations

from headrace.domain import Dispatch, Priority, Refuse, SlotChanged
from headrace.scheduling.demand import Demand
from tests.scheduling.scenes import MS, Desk, a_request, a_version, keys

LOST = 200
LIMIT_MS = 100
PATIENT_MS = 5_000
FULL_RUN_MS = 1.25 * (1 + 32) + 0.01
"""At most, of a full batch: 1 ms and 1 ms per row, by what is not measured yet."""


def a_desk_that_lost_requests(
    models: int = 1, *, beside: str = "beside", priority: Priority = Priority.STANDARD
) -> tuple[Desk, int]:
    """Its worker was away while requests came and expired, and is back; and when."""
    names = [f"m{number}" for number in range(models)]
    desk = Desk(*(a_version(name, max_batch=32) for name in [*names, beside]))
    desk.former.handle(SlotChanged(0, 0, ()), 0)
    lost = 0
    now_us = 0
    for number in range(LOST):
        now_us = number * MS
        for name in names:
            request = a_request(
                model=name, priority=priority, at_us=now_us, limit_us=LIMIT_MS * MS
            )
            desk.arrive(request, now_us=now_us)
        lost += sum(isinstance(each, Refuse) for each in desk.tick(now_us))
    now_us += LIMIT_MS * MS
    lost += sum(isinstance(each, Refuse) for each in desk.tick(now_us))
    assert lost == LOST * models
    desk.tell(0, now_us=now_us)
    return desk, now_us


def leaves_after_ms(desk: Desk, since_us: int) -> float:
    """When the next batch leaves; the desk is woken as it asks for."""
    now_us = since_us
    while now_us < since_us + PATIENT_MS * MS:
        if any(isinstance(each, Dispatch) for each in desk.tick(now_us)):
            return (now_us - since_us) / MS
        wakeup_us = desk.former.wakeup_at_us()
        assert wakeup_us is not None
        now_us = max(now_us + 1, wakeup_us)
    raise AssertionError("nothing left")


def test_after_losses_a_batch_waits_no_longer_than_a_full_one_runs() -> None:
    """Clients who wait for their answers before they ask again send no company."""
    desk, now_us = a_desk_that_lost_requests()

    waited = []
    for _ in range(5):
        request = a_request(model="m0", at_us=now_us, limit_us=PATIENT_MS * MS)
        desk.arrive(request, now_us=now_us)
        waited.append(leaves_after_ms(desk, now_us))
        now_us += int(waited[-1] * MS) + 2 * MS
        desk.finish(now_us=now_us)

    assert 0 < max(waited) <= FULL_RUN_MS


def test_who_is_more_urgent_does_not_wait_for_what_others_lose() -> None:
    desk, now_us = a_desk_that_lost_requests()

    urgent = a_request(model="m0", priority=Priority.INTERACTIVE, at_us=now_us)
    desk.arrive(urgent, now_us=now_us)

    assert leaves_after_ms(desk, now_us) == 0


def test_who_shares_a_worker_with_a_queue_that_loses_requests_waits_as_it_does() -> (
    None
):
    """Small batches would take the worker that the other waits for."""
    desk, now_us = a_desk_that_lost_requests()

    other = a_request(model="beside", at_us=now_us, limit_us=PATIENT_MS * MS)
    desk.arrive(other, now_us=now_us)
    assert desk.tick(now_us) == []

    now_us += 60 * MS
    other = a_request(model="beside", at_us=now_us, limit_us=PATIENT_MS * MS)
    desk.arrive(other, now_us=now_us)
    assert leaves_after_ms(desk, now_us) <= 2 * FULL_RUN_MS


def test_nobody_waits_for_others_losses_by_run_times_that_are_overrun() -> None:
    """Who starts at the last moment and runs for longer comes late."""
    desk, now_us = a_desk_that_lost_requests()

    waited = []
    for run_us in [2 * MS] * 6 + [4 * MS] * 2:
        request = a_request(model="beside", at_us=now_us, limit_us=PATIENT_MS * MS)
        desk.arrive(request, now_us=now_us)
        waited.append(leaves_after_ms(desk, now_us))
        now_us += int(waited[-1] * MS) + run_us
        desk.finish(now_us=now_us, run_us=run_us)

    *patient, overrun = waited
    assert min(patient) > 0
    assert overrun == 0


def test_losses_are_forgotten_more_slowly_than_they_are_noticed() -> None:
    """They end because batches wait, and would be back if the waiting ended with
    them."""
    demand = Demand()
    served, noticed = 0, 0
    while demand.pressure(Priority.STANDARD) < 1:
        demand.settled(Priority.STANDARD, 8, 2)
        noticed += 1
    while demand.pressure(Priority.STANDARD) > 0:
        demand.settled(Priority.STANDARD, 10, 0)
        served += 1
    assert served > 2 * noticed


def test_a_more_urgent_batch_does_not_make_others_wait_anew() -> None:
    desk, since_us = a_desk_that_lost_requests()
    patient = a_request(model="m0", at_us=since_us, limit_us=PATIENT_MS * MS)
    desk.arrive(patient, now_us=since_us)
    assert desk.tick(since_us) == []

    now_us = since_us + 20 * MS
    urgent = a_request(
        model="m0", priority=Priority.REALTIME, at_us=now_us, limit_us=3 * MS
    )
    desk.arrive(urgent, now_us=now_us)
    (sent,) = desk.tick(now_us)
    assert keys(sent) == [urgent.key]
    desk.finish(now_us=now_us + 2 * MS)

    assert 22 + leaves_after_ms(desk, now_us + 2 * MS) <= FULL_RUN_MS


def test_who_waits_for_company_goes_before_a_less_urgent_request() -> None:
    """I10: of another model, for which nobody had to wait."""
    desk, now_us = a_desk_that_lost_requests(priority=Priority.INTERACTIVE)
    waits = a_request(model="m0", priority=Priority.INTERACTIVE, at_us=now_us)
    desk.arrive(waits, now_us=now_us)
    assert desk.tick(now_us) == []

    other = a_request(model="beside", at_us=now_us + MS)
    desk.arrive(other, now_us=now_us + MS)

    (first, *_) = desk.tick(now_us + MS)
    assert keys(first) == [waits.key]


def test_of_several_lines_each_may_wait_for_the_runs_of_all() -> None:
    desk, now_us = a_desk_that_lost_requests(models=3)

    desk.arrive(
        a_request(model="m0", at_us=now_us, limit_us=PATIENT_MS * MS), now_us=now_us
    )

    assert FULL_RUN_MS < leaves_after_ms(desk, now_us) <= 3 * FULL_RUN_MS


def test_a_batch_that_fills_meanwhile_leaves_when_it_is_full() -> None:
    desk, now_us = a_desk_that_lost_requests()
    for number in range(31):
        at_us = now_us + number * MS // 4
        desk.arrive(
            a_request(model="m0", at_us=at_us, limit_us=PATIENT_MS * MS), now_us=at_us
        )
        assert desk.tick(at_us) == []

    at_us = now_us + 8 * MS
    desk.arrive(
        a_request(model="m0", at_us=at_us, limit_us=PATIENT_MS * MS), now_us=at_us
    )

    (dispatch,) = desk.tick(at_us)
    assert isinstance(dispatch, Dispatch)
    assert dispatch.padded_rows == 32
