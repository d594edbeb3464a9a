"""Leases that lapse before it is known what became of their workers."""

from collections.abc import Callable

import pytest

from headrace.delivery import LaneLimits
from headrace.delivery.decisions import (
    Alarm,
    WriteBatch,
    WriteDeadLetters,
    WriteReplies,
    WriteSync,
)
from headrace.delivery.events import VersionsChanged
from headrace.domain import HeldBatch, Joined, Left, Priority, Reason, Refuse
from tests.delivery.builders import (
    SECOND,
    a_partition,
    a_request,
    a_source,
    a_version,
)
from tests.delivery.desk import Desk, batches_in, found
from tests.delivery.test_attempts import RETRY, a_desk, ids, send


def held(batch: WriteBatch) -> HeldBatch:
    members = tuple(request.source for request in batch.dispatch.requests)
    return HeldBatch(batch.dispatch.batch, members)


def let_lapse(desk: Desk, batch: WriteBatch, times: int) -> list[WriteBatch]:
    """Its lease ends so often, and its slot says each time that it has the batch."""
    sent = []
    slot = batch.dispatch.slot
    for _ in range(times):
        sent += batches_in(desk.let_pass(batch.lease_us))
        sent += batches_in([*desk.report(slot, held=[held(batch)]), *desk.tick()])
    return sent


def is_settled(desk: Desk) -> bool:
    return not any(desk.lane.unsettled().values())


def test_a_slow_run_in_the_only_slot_of_its_version_is_waited_for() -> None:
    desk = a_desk(cap=2)
    batch = send(desk, a_request(0))

    assert let_lapse(desk, batch, 9) == []
    desk.done(batch)

    assert is_settled(desk)
    assert len(desk.all(WriteBatch)) == 1
    assert desk.all(WriteReplies) == []


def falls_silent(desk: Desk) -> None:
    desk.hear()
    desk.silent = {1}
    desk.let_pass(2 * SECOND)


def leaves(desk: Desk) -> None:
    desk.complete(Left(1, desk.incarnations[1]))


def drains(desk: Desk) -> None:
    desk.report(1, draining=True)


def drops_the_version(desk: Desk) -> None:
    desk.tell(VersionsChanged((a_version(slots=frozenset({0})),)))


@pytest.mark.parametrize("the_other", [falls_silent, leaves, drains, drops_the_version])
def test_nothing_is_tried_where_it_cannot_run(
    the_other: Callable[[Desk], None],
) -> None:
    desk = a_desk(slots=2, cap=2)
    the_other(desk)
    batch = send(desk, a_request(0))

    assert batches_in(desk.let_pass(batch.lease_us)) == []

    assert desk.scheduler.queue == {}


def test_nothing_is_tried_a_third_time_while_both_slots_have_it() -> None:
    desk = a_desk(slots=2, cap=2)
    first = send(desk, a_request(0), a_request(1))
    (second,) = batches_in(desk.let_pass(first.lease_us))

    desk.let_pass(second.lease_us)

    assert desk.scheduler.queue == {}
    desk.done(second)
    assert is_settled(desk)


def test_a_waiting_batch_is_tried_in_a_slot_that_comes_later() -> None:
    desk = a_desk(slots=2, cap=2)
    desk.tell(VersionsChanged((a_version(slots=frozenset({0})),)))
    batch = send(desk, a_request(0))
    assert let_lapse(desk, batch, 2) == []

    desk.tell(VersionsChanged((a_version(slots=frozenset({0, 1})),)))
    (again,) = let_lapse(desk, batch, 1)

    assert (again.dispatch.slot, again.dispatch.requests[0].attempt) == (1, 2)


def test_a_waiting_batch_goes_elsewhere_though_its_slot_never_answers() -> None:
    desk = a_desk(slots=2, cap=2)
    desk.tell(VersionsChanged((a_version(slots=frozenset({0})),)))
    batch = send(desk, a_request(0))
    desk.let_pass(batch.lease_us)

    desk.tell(VersionsChanged((a_version(slots=frozenset({0, 1})),)))
    (again,) = batches_in(desk.let_pass(desk.limits.ask_again_us))

    assert again.dispatch.slot == 1


def test_a_waiting_batch_that_its_slot_does_not_have_is_sent_again() -> None:
    desk = a_desk(cap=2)
    batch = send(desk, a_request(0))
    desk.let_pass(batch.lease_us)

    (again,) = batches_in([*desk.report(0, held=[]), *desk.tick()])

    assert again.dispatch.requests[0].attempt == 2


def test_a_waiting_batch_is_tried_again_when_its_worker_is_lost() -> None:
    desk = a_desk(cap=2)
    batch = send(desk, a_request(0))
    let_lapse(desk, batch, 2)

    desk.complete(Joined(0, "signal:KILL"))
    (again,) = batches_in([*desk.report(0), *desk.hear(), *desk.tick()])

    assert again.dispatch.requests[0].attempt == 2


def test_a_request_is_never_sent_to_the_slot_that_has_it() -> None:
    """It was to be tried in a second slot, which is gone."""
    desk = a_desk(slots=2, cap=2)
    first = send(desk, a_request(0))
    desk.scheduler.is_holding = True
    desk.let_pass(first.lease_us)
    (waiting,) = desk.scheduler.queue.values()
    assert waiting.avoid == first.dispatch.slot
    desk.complete(Left(1, desk.incarnations[1]))

    desk.scheduler.is_holding = False
    said = [*desk.report(0, held=[held(first)]), *desk.tick(), *desk.read(a_request(1))]

    assert [ids(each) for each in batches_in(said)] == [["r1"]]
    assert desk.scheduler.queue == {}
    desk.done(first)
    assert desk.lane.unsettled()[a_source(0)[:2]] == 1


def test_a_worker_that_thaws_goes_on_with_what_it_has() -> None:
    desk = a_desk(cap=2)
    batch = send(desk, a_request(0))
    desk.hear()
    desk.silent = {0}
    desk.let_pass(2 * SECOND)
    assert list(desk.scheduler.queue) == [a_request(0).key]

    desk.silent = set()
    said = [*desk.hear(), *desk.tick(), *desk.report(0, held=[held(batch)])]

    assert batches_in([*said, *desk.tick()]) == []
    assert desk.scheduler.queue == {}
    desk.done(batch)
    assert is_settled(desk)


def test_who_a_slot_still_has_is_not_refused_for_want_of_another_try() -> None:
    desk = a_desk(slots=2, cap=1)
    first = send(desk, a_request(0, deadline_us=20 * SECOND))
    send(desk, a_request(1))
    desk.let_pass(first.lease_us)
    (waiting,) = [each for each in desk.scheduler.queue.values() if each.id == "r0"]
    del desk.scheduler.queue[waiting.key]
    desk.scheduler.refusals = [Refuse(waiting, Reason.DEADLINE_UNATTAINABLE, "")]
    desk.tick()
    assert desk.all(WriteReplies) == []

    desk.done(first)

    assert desk.lane.unsettled()[a_source(0)[:2]] == 1  # r1


def test_who_a_slot_still_has_waits_where_no_retry_is_afforded() -> None:
    desk = Desk(limits=LaneLimits(cap=2, retry_percent=0, retry_burst=1))
    desk.activate([a_partition(log_end=9)])
    (spent,) = batches_in(desk.done(send(desk, a_request(0)), RETRY, "poison"))
    desk.done(spent)
    batch = send(desk, a_request(1))

    assert let_lapse(desk, batch, 2) == []

    assert desk.all(WriteReplies) == []
    desk.done(batch)
    assert is_settled(desk)


def test_an_operator_is_told_once_of_a_batch_that_takes_long() -> None:
    desk = a_desk(cap=2)
    batch = send(desk, a_request(0))

    let_lapse(desk, batch, 5)

    told = [each.event for each in desk.all(Alarm)]
    assert told == ["lease.lapsed"]
    assert len(found(desk.said, WriteSync)) == 6


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
