"""What becomes of those whose run was stopped, or took too long."""

import pytest

from headrace.delivery.decisions import (
    WriteDeadLetters,
    WriteReplies,
)
from headrace.delivery.events import Ticked
from headrace.domain import BatchEnded, MemberStatus, Reason, Refuse
from tests.delivery.builders import a_request
from tests.delivery.desk import a_desk, batches_in, found, ids, send

RETRY, FINAL = MemberStatus.RETRY, MemberStatus.FINAL


def test_a_batch_that_was_stopped_runs_in_halves() -> None:
    desk = a_desk()
    batch = send(desk, *(a_request(offset) for offset in range(4)))

    runs = batches_in(desk.done(batch, RETRY, "stopped"))
    runs += batches_in(desk.done(runs[0]))

    assert [ids(each) for each in runs] == [["r0", "r1"], ["r2", "r3"]]
    assert {each.dispatch.requests[0].attempt for each in runs} == {1}


def test_who_is_stopped_alone_has_another_try_and_then_is_told_why() -> None:
    desk = a_desk(slots=2)
    batch = send(desk, a_request(0), a_request(1))
    halves = batches_in(desk.done(batch, RETRY, "stopped"))
    said = desk.done(halves[0], RETRY, "stopped")
    (again,) = [each for each in batches_in(said) if ids(each) == ["r0"]]
    desk.done(halves[1])

    (replies,) = found(desk.done(again, RETRY, "stopped"), WriteReplies)

    assert again.dispatch.requests[0].attempt == 2
    (told,) = replies.terminals
    assert (told.id, told.reason) == ("r0", Reason.EXPIRED)
    assert told.text == "alone, stopped"
    # It may hang for good: whoever operates the platform can look at it.
    (dead,) = found(desk.said, WriteDeadLetters)
    assert [letter.id for letter in dead.letters] == ["r0"]


def test_what_a_stopped_run_took_is_not_what_the_next_one_will_take() -> None:
    desk = a_desk()
    for reason in ("stopped", "run_limit", "model_error"):
        desk.done(send(desk, a_request(len(desk.said))), FINAL, reason)

    ended = [e for e in desk.scheduler.events if isinstance(e, BatchEnded)]
    assert [each.run_us for each in ended] == [None, None, 1]


@pytest.mark.parametrize("reason", [Reason.DEADLINE_UNATTAINABLE, Reason.EXPIRED])
def test_who_was_tried_is_not_told_that_the_queue_was_too_long(reason: Reason) -> None:
    desk = a_desk(slots=2)
    batch = send(desk, a_request(0))
    desk.scheduler.is_holding = True
    desk.let_pass(batch.lease_us)
    desk.report(0, held=[])  # nobody has it any more
    (request,) = desk.scheduler.queue.values()
    desk.scheduler.refusals = [Refuse(request, reason, "no time was left")]

    (replies,) = found(desk.tell(Ticked()), WriteReplies)

    (told,) = replies.terminals
    assert told.reason is Reason.EXPIRED
    assert told.text == (
        "it was tried, but its run took too long; for another try: no time was left"
    )
