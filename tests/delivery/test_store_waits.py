"""Batches whose tensors are in the payload store, and a store that hangs."""

from msgspec.structs import replace

from headrace.delivery.decisions import WriteReplies
from headrace.delivery.worker_decisions import Run, WriteDone
from headrace.delivery.worker_events import PayloadsCame
from headrace.domain import MemberStatus, PayloadRef, Reason, Refuse
from tests.delivery.bench import RETRY, Bench
from tests.delivery.builders import SECOND, a_request
from tests.delivery.desk import a_desk, batches_in, found

WAIT_US = 5 * SECOND
AN_OBJECT = PayloadRef("h/t/x", "0" * 64, (16,))


def test_who_waits_for_the_store_keeps_no_other_from_running() -> None:
    bench = Bench()
    assert bench.batch("large", store_wait_us=WAIT_US) == []

    assert bench.batch("small") == [Run("small")]
    bench.tell(PayloadsCame("large"))
    assert Run("large") in bench.ran("small", (RETRY,))


def test_what_came_runs_at_once() -> None:
    bench = Bench()
    bench.batch("b", store_wait_us=WAIT_US)

    assert bench.tell(PayloadsCame("b")) == [Run("b")]
    assert bench.tell(PayloadsCame("unknown")) == []


def test_what_does_not_come_in_time_is_waited_for_no_longer() -> None:
    """The runner finds out what is missing, and runs nothing."""
    bench = Bench()
    bench.batch("b", store_wait_us=WAIT_US)

    assert bench.let_pass(WAIT_US - 1) == []
    assert bench.let_pass(1) == [Run("b")]


def test_the_store_has_four_fifths_of_the_time_of_those_who_wait() -> None:
    """So that they are told what is away, and not that their time is over."""
    bench = Bench()
    bench.batch("b", store_wait_us=WAIT_US, latest_start_us=bench.now_us + SECOND)

    assert bench.let_pass(SECOND * 4 // 5 - 1) == []
    assert bench.let_pass(1) == [Run("b")]


def test_a_batch_that_waited_for_the_store_in_vain_is_not_late() -> None:
    bench = Bench()
    bench.batch("b", store_wait_us=WAIT_US, latest_start_us=bench.now_us + SECOND)
    bench.let_pass(SECOND * 4 // 5)

    (done,) = found(bench.ran("b", (RETRY,), run_us=0), WriteDone)
    assert done.outcomes == (RETRY,)


# -- the former's side


def test_a_lease_has_the_time_of_the_store_in_it() -> None:
    desk = a_desk()
    (whole,) = batches_in(desk.read(a_request(0)))
    (claimed,) = batches_in(
        [*desk.done(whole), *desk.read(replace(a_request(1), payload=AN_OBJECT))]
    )

    assert claimed.lease_us == whole.lease_us + desk.limits.store_wait_us


def test_who_has_no_time_left_after_the_store_was_away_is_told_that() -> None:
    desk = a_desk()
    (batch,) = batches_in(desk.read(a_request(0)))
    desk.scheduler.is_holding = True
    desk.done(batch, MemberStatus.RETRY, "store_unavailable")
    (request,) = desk.scheduler.queue.values()
    late = Refuse(request, Reason.DEADLINE_UNATTAINABLE, "no time was left")
    desk.scheduler.refusals = [late]

    (replies,) = found(desk.tick(), WriteReplies)

    (told,) = replies.terminals
    assert told.reason is Reason.STORE_UNAVAILABLE
    assert told.text.startswith("it was tried, but store_unavailable; ")
