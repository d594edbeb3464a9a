"""I9: batches that keep the former busy keep apart, and nobody waits in vain."""

from __future__ import annotations

import pytest

from headrace.domain import (
    Dispatch,
    HopsMeasured,
    Priority,
    ReleaseReason,
    SchedulerDecision,
)
from headrace.scheduling import SchedulingSettings
from tests.scheduling.scenes import MS, Desk, a_request, a_version

FULL = 32
PATH_US = 1_500
SPACING_US = 2 * PATH_US


def a_busy_desk(
    *,
    every_us: int = 100,
    path_us: int = PATH_US,
    priority: Priority = Priority.STANDARD,
    spacing_us_max: int = 5_000,
) -> tuple[Desk, int]:
    """A desk to which a request comes every ``every_us``, one batch of which has just
    left and is over already; and when."""
    settings = SchedulingSettings(
        control_hop_us=0, response_hop_us=0, spacing_us_max=spacing_us_max
    )
    served = a_version(max_batch=FULL, alpha_us=10, beta_us=1)
    desk = Desk(served, settings=settings)
    desk.former.handle(HopsMeasured(0, 0, path_us=path_us), 0)
    now_us = 0
    for _ in range(200_000 // every_us):
        now_us += every_us
        desk.arrive(a_request(at_us=now_us, priority=priority), now_us=now_us)
        if len(desk.tick(now_us)):
            desk.finish(now_us=now_us)
    now_us += 2 * SPACING_US
    desk.arrive(a_request(at_us=now_us, priority=priority), now_us=now_us)
    assert dispatched(desk.tick(now_us))
    desk.finish(now_us=now_us)
    return desk, now_us


def leaves(desk: Desk, now_us: int) -> tuple[int, Dispatch]:
    """When the next batch leaves; the desk is woken as it asks for."""
    for _ in range(10):
        if sent := dispatched(desk.tick(now_us)):
            return now_us, sent[0]
        wakeup_us = desk.former.wakeup_at_us()
        assert wakeup_us is not None
        now_us = max(now_us + 1, wakeup_us)
    raise AssertionError("nothing left")


def dispatched(decisions: list[SchedulerDecision]) -> list[Dispatch]:
    return [each for each in decisions if isinstance(each, Dispatch)]


def test_a_small_batch_keeps_apart_from_the_one_before_it() -> None:
    desk, sent_us = a_busy_desk()
    desk.arrive(a_request(at_us=sent_us), now_us=sent_us + 1)
    left_us, sent = leaves(desk, sent_us + 1)
    assert left_us == sent_us + SPACING_US
    assert sent.reason is ReleaseReason.IDLE


def test_a_full_batch_waits_for_nothing() -> None:
    desk, sent_us = a_busy_desk()
    requests = [a_request(at_us=sent_us) for _ in range(FULL)]
    desk.arrive(*requests, now_us=sent_us + 1)
    assert len(dispatched(desk.tick(sent_us + 1))) == 1


def test_a_batch_leaves_in_time_for_its_deadline() -> None:
    desk, sent_us = a_busy_desk()
    desk.arrive(a_request(at_us=sent_us, limit_us=2_000), now_us=sent_us)
    left_us, sent = leaves(desk, sent_us)
    assert sent_us < left_us <= sent_us + 2_000 - sent.predicted_us


@pytest.mark.parametrize(
    "told",
    [
        {"path_us": 0},
        {"spacing_us_max": 0},
        {"every_us": 500},
        {"priority": Priority.REALTIME},
    ],
    ids=["idle former", "never", "few requests", "realtime"],
)
def test_who_gains_nothing_by_waiting_leaves_at_once(told: dict[str, int]) -> None:
    desk, sent_us = a_busy_desk(**told)  # type: ignore[arg-type] - one of the keywords
    priority = Priority(told.get("priority", Priority.STANDARD))
    request = a_request(at_us=sent_us, priority=priority)
    desk.arrive(request, now_us=sent_us)
    assert len(dispatched(desk.tick(sent_us))) == 1


def test_batches_never_keep_further_apart_than_the_most_that_is_set() -> None:
    desk, sent_us = a_busy_desk(path_us=1_000 * MS, spacing_us_max=4_000)
    desk.arrive(a_request(at_us=sent_us), now_us=sent_us)
    assert leaves(desk, sent_us)[0] == sent_us + 4_000
