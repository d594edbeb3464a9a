"""Leases that lapse before it is known what became of their workers."""

from headrace.delivery.decisions import WriteDeadLetters, WriteReplies
from headrace.domain import Joined, Priority, Reason
from tests.delivery.builders import SECOND, a_request
from tests.delivery.desk import batches_in
from tests.delivery.test_attempts import a_desk, ids, send


def test_a_killer_is_found_out_though_leases_lapse_before_workers_are_missed() -> None:
    desk = a_desk(slots=2, cap=2)
    first = send(desk, a_request(0), a_request(1))
    (second,) = batches_in(desk.let_pass(first.lease_us))
    assert ids(second) == ["r0", "r1"]
    desk.complete(Joined(first.dispatch.slot, "signal:SEGV"))
    desk.let_pass(second.lease_us)
    desk.complete(Joined(second.dispatch.slot, "signal:SEGV"))
    told = [*desk.report(0), *desk.report(1), *desk.hear(), *desk.tick()]
    alone = {ids(each)[0]: each for each in batches_in(told)}
    assert sorted(alone) == ["r0", "r1"]
    desk.done(alone["r1"])

    # It has no attempt left, so its lease's end says nothing yet.
    desk.let_pass(2 * alone["r0"].lease_us)
    assert desk.all(WriteReplies) == desk.all(WriteDeadLetters) == []
    desk.complete(Joined(alone["r0"].dispatch.slot, "signal:SEGV"))

    (letters,) = desk.all(WriteDeadLetters)
    (letter,) = letters.letters
    assert (letter.id, letter.reason, letter.attempts) == ("r0", Reason.CRASH, 3)
    assert "its worker was lost" in letter.text


def test_bulk_pays_for_a_worker_that_was_lost_after_its_lease() -> None:
    desk = a_desk(slots=2, cap=1)
    batch = send(desk, a_request(0, priority=Priority.BULK))
    for _ in range(2):
        desk.let_pass(batch.lease_us)
        desk.complete(Joined(batch.dispatch.slot, "signal:SEGV"))
        desk.report(batch.dispatch.slot)
        (batch,) = batches_in(desk.let_pass(SECOND))
    assert desk.all(WriteDeadLetters) == []

    desk.complete(Joined(batch.dispatch.slot, "signal:SEGV"))

    (letters,) = desk.all(WriteDeadLetters)
    assert [each.reason for each in letters.letters] == [Reason.CRASH]


def test_a_slow_run_that_was_the_last_one_still_counts() -> None:
    desk = a_desk(slots=2)
    batch = send(desk, a_request(0))
    (second,) = batches_in(desk.let_pass(batch.lease_us))
    desk.let_pass(2 * second.lease_us)

    desk.done(second)

    assert desk.all(WriteReplies) == []
