"""What a slot may be sent: credits, incarnations, reports, leases, silence."""

from headrace.delivery import LaneLimits
from headrace.delivery.decisions import WriteBatch, WriteSync
from headrace.delivery.events import GapNoticed
from headrace.domain import (
    BatchEnded,
    HeldBatch,
    Joined,
    Left,
    MemberStatus,
    Refused,
)
from tests.delivery.builders import MS, SECOND, a_partition, a_request, a_source
from tests.delivery.desk import Desk, batches_in, found

OK, RETRY, UNACKED = MemberStatus.OK, MemberStatus.RETRY, MemberStatus.UNACKED


def a_desk(*, slots: int = 1, cap: int = 1, p99_us: int = 20 * MS) -> Desk:
    """An active lane whose batches have one member."""
    desk = Desk(slots=slots, cap=cap, batch_max=1, p99_us=p99_us)
    desk.activate([a_partition(log_end=9)])
    return desk


def send(desk: Desk, *offsets: int) -> list[WriteBatch]:
    return batches_in(desk.read(*(a_request(offset) for offset in offsets)))


def held(batch: WriteBatch) -> HeldBatch:
    members = tuple(request.source for request in batch.dispatch.requests)
    return HeldBatch(batch.dispatch.batch, members)


def syncs(desk: Desk, slot: int = 0) -> list[int]:
    """The k of every sync to the slot."""
    return [sync.k for sync in desk.all(WriteSync) if sync.slot == slot]


# -- credits


def test_a_slot_gets_as_many_batches_as_it_has_credits() -> None:
    desk = a_desk(cap=2)

    assert len(send(desk, 0, 1, 2)) == 2
    assert desk.free(0) == 0


def test_a_batch_is_addressed_to_the_known_incarnation() -> None:
    desk = a_desk()
    desk.complete(Joined(0, ""))
    desk.report(0)
    desk.hear()

    (batch,) = send(desk, 0)
    assert batch.incarnation == desk.incarnations[0] > 0


def test_a_done_frees_the_credit() -> None:
    desk = a_desk()
    (batch,) = send(desk, 0)
    assert send(desk, 1) == []

    assert len(batches_in(desk.done(batch))) == 1


def test_a_done_read_twice_frees_one_credit() -> None:
    """§6.3 ◆: only leaving the set frees a credit, so nothing can free two."""
    desk = a_desk(cap=2)
    first, second = send(desk, 0, 1)
    desk.done(first)
    desk.done(first)

    assert desk.free(0) == 1
    assert desk.scheduler.slots[0].held == (second.dispatch.batch,)


def test_a_done_of_a_batch_that_is_not_ours_frees_nothing() -> None:
    desk = a_desk(cap=2)
    (batch,) = send(desk, 0)

    desk.done(batch, RETRY, name="theirs")

    assert desk.free(0) == 1


def test_a_batch_counts_from_its_produce_on_even_when_that_timed_out() -> None:
    """§6.4 ◆: it may lie in the slot's partition all the same."""
    desk = a_desk()
    (batch,) = send(desk, 0)

    desk.ended(batch.write, None)

    assert send(desk, 1) == []
    assert desk.scheduler.slots[0].held == (batch.dispatch.batch,)


def test_a_batch_whose_produce_timed_out_has_its_slot_asked() -> None:
    desk = a_desk()
    (batch,) = send(desk, 0)

    desk.ended(batch.write, None)
    assert syncs(desk) == [1, 2]
    desk.report(0, held=[])

    (again,) = batches_in(desk.tick())
    assert again.dispatch.requests[0].attempt == 2


# -- incarnations


def test_a_new_process_has_none_of_the_old_ones_batches() -> None:
    """§6.3 ◆"""
    desk = a_desk()
    (batch,) = send(desk, 0)

    desk.complete(Joined(0, "signal:KILL"))
    assert desk.scheduler.slots[0].held == ()
    desk.report(0)
    desk.hear()

    (again,) = batches_in(desk.tick())
    assert again.dispatch.requests[0].id == batch.dispatch.requests[0].id
    assert again.incarnation == desk.incarnations[0]


def test_a_new_process_is_asked_before_it_is_sent_anything() -> None:
    desk = a_desk()
    desk.complete(Joined(0, ""))
    desk.hear()

    assert send(desk, 0) == []
    assert syncs(desk) == [1, 2]


def test_of_an_old_processs_done_only_the_successes_count() -> None:
    """§6.3 ◆: what an older process could not do says nothing about the new one."""
    desk = a_desk()
    (batch,) = send(desk, 0)
    desk.complete(Joined(0, "signal:KILL"))
    desk.report(0)
    desk.hear()
    (again,) = batches_in(desk.tick())

    desk.done(batch, RETRY, incarnation=0)
    assert desk.free(0) == 0
    desk.done(again, RETRY, incarnation=0)
    assert desk.free(0) == 0
    assert desk.scheduler.slots[0].held == (again.dispatch.batch,)
    desk.done(batch, OK, incarnation=0)

    assert desk.lane.unsettled() == {a_source(0)[:2]: 0}


def test_a_report_of_an_older_process_changes_nothing() -> None:
    desk = a_desk()
    desk.complete(Joined(0, ""))
    new, desk.incarnations[0] = desk.incarnations[0], 0

    desk.report(0)
    desk.incarnations[0] = new
    desk.hear()

    assert send(desk, 0) == []


def test_a_report_of_an_unknown_newer_process_makes_it_known() -> None:
    desk = a_desk()
    (batch,) = send(desk, 0)
    desk.incarnations[0] = 99

    desk.report(0, k=1)
    assert syncs(desk) == [1]
    desk.hear()

    (again,) = batches_in(desk.tick())
    assert again.incarnation == 99
    assert again.dispatch.requests[0].attempt == 2
    assert batch.dispatch.batch not in desk.scheduler.slots[0].held


# -- reports


def test_a_report_that_echoes_another_question_changes_nothing() -> None:
    desk = a_desk()
    (batch,) = send(desk, 0)
    desk.ended(batch.write, None)

    desk.report(0, k=1)
    desk.report(0, epoch=0)
    desk.report(0, former="another")

    assert batches_in(desk.tick()) == []


def test_a_report_of_a_usable_slot_does_not_count_what_is_on_its_way() -> None:
    """A draining worker reports unasked; the batch behind its report is no loss."""
    desk = a_desk()
    (batch,) = send(desk, 0)

    desk.report(0, held=[], draining=True)
    assert desk.scheduler.slots[0].held == (batch.dispatch.batch,)
    assert desk.scheduler.queue == {}
    desk.done(batch)

    assert desk.lane.unsettled() == {a_source(0)[:2]: 0}
    assert len(desk.all(WriteBatch)) == 1


def test_a_draining_slot_gets_nothing_more() -> None:
    desk = a_desk(slots=2)
    desk.report(0, draining=True)

    assert [batch.dispatch.slot for batch in send(desk, 0, 1)] == [1]


def test_an_answer_to_the_last_question_does_not_answer_the_one_that_waits() -> None:
    """The batch was sent after the worker had said what it holds."""
    desk = a_desk()
    (batch,) = send(desk, 0)
    desk.accepts_commits = False
    desk.tell(GapNoticed())
    desk.ended(batch.write, None)

    desk.report(0, k=1, held=[], draining=True)

    assert desk.scheduler.slots[0].held == (batch.dispatch.batch,)
    assert desk.scheduler.queue == {}


def test_where_answers_take_longer_than_our_patience_the_first_one_counts() -> None:
    """§6.3: nothing was sent since the first question, so the answer to it is as good
    as that to the newest, which would be late again."""
    desk = a_desk()
    (batch,) = send(desk, 0)
    desk.ended(batch.write, None)
    desk.let_pass(3 * SECOND)
    assert syncs(desk) == [1, 2, 3, 4, 5]

    desk.report(0, k=2, held=[])
    (again,) = batches_in(desk.tick())
    for late in (3, 4, 5):
        desk.report(0, k=late, held=[])

    assert desk.scheduler.slots[0].held == (again.dispatch.batch,)
    assert desk.scheduler.queue == {}


def test_a_batch_that_a_report_does_not_name_is_tried_again() -> None:
    """§6.3 ◆: never arrived, or refused; its done, if any, was read before."""
    desk = a_desk(cap=2)
    lost, kept = send(desk, 0, 1)
    desk.ended(lost.write, None)

    desk.report(0, held=[held(kept)])

    (again,) = batches_in(desk.tick())
    assert [r.id for r in again.dispatch.requests] == ["r0"]
    assert desk.scheduler.slots[0].held == (
        kept.dispatch.batch,
        again.dispatch.batch,
    )


def test_a_report_written_before_its_done_was_acked_takes_no_credit() -> None:
    """W3 names every batch whose done is not acked yet, although it has landed."""
    desk = a_desk(cap=2)
    first, second = send(desk, 0, 1)
    desk.ended(second.write, None)
    desk.done(first)

    desk.report(0, held=[held(first), held(second)])

    assert desk.scheduler.slots[0].held == (second.dispatch.batch,)


def test_a_slot_without_a_report_is_asked_again_every_second() -> None:
    desk = a_desk()
    desk.complete(Joined(0, ""))
    desk.let_pass(3 * SECOND + 200 * MS)

    assert syncs(desk) == [1, 2, 3, 4, 5]


def test_a_sync_that_timed_out_is_asked_again() -> None:
    desk = a_desk()
    (sync,) = found(desk.complete(Joined(0, "")), WriteSync)

    assert [s.k for s in found(desk.ended(sync.write, None), WriteSync)] == [3]


def test_a_silent_slot_is_not_asked_again_until_it_is_heard() -> None:
    desk = a_desk()
    desk.hear()
    desk.silent = {0}
    desk.let_pass(10 * SECOND)

    assert syncs(desk) == [1, 2]


def test_a_slot_that_left_is_not_asked_and_its_batches_run_elsewhere() -> None:
    desk = a_desk(slots=2)
    on_0, on_1 = send(desk, 0, 1)
    desk.complete(Left(0, desk.incarnations[0]))
    (again,) = batches_in(desk.done(on_1))

    assert again.dispatch.requests[0].id == on_0.dispatch.requests[0].id
    assert again.dispatch.requests[0].attempt == 1
    desk.silent = {0}
    desk.let_pass(3 * SECOND)
    assert syncs(desk, 0) == [1]


def test_a_slot_that_refuses_the_lane_is_forgotten_until_it_joins_again() -> None:
    desk = a_desk(slots=2)
    on_0, on_1 = send(desk, 0, 1)
    refused = Refused(on_0.dispatch.batch, 0, 0, desk.incarnations[0], "lane", 0)
    desk.complete(refused)
    (again,) = batches_in(desk.done(on_1))

    assert again.dispatch.slot == 1
    assert desk.free(0) == 0


def test_a_slot_that_refuses_for_its_cap_is_asked_what_it_holds() -> None:
    desk = a_desk()
    (batch,) = send(desk, 0)

    desk.complete(Refused(batch.dispatch.batch, 0, 0, desk.incarnations[0], "cap", 0))

    assert syncs(desk) == [1, 2]


# -- the scheduler's view


def test_the_scheduler_is_told_how_a_batch_ended() -> None:
    desk = a_desk(cap=2)
    first, second = send(desk, 0, 1)
    desk.done(first)
    desk.complete(Joined(0, "signal:KILL"))

    ended = [e for e in desk.scheduler.events if isinstance(e, BatchEnded)]
    assert ended == [
        BatchEnded(first.dispatch.batch, 0, 1),
        BatchEnded(second.dispatch.batch, 0, None),
    ]


def test_a_dispatch_to_a_slot_that_can_take_nothing_loses_no_request() -> None:
    desk = a_desk()
    desk.scheduler.slots[0] = desk.scheduler.slots[0].__class__(0, 5, ())
    (batch,) = send(desk, 0, 1, 2)

    assert sorted(desk.scheduler.queue) == sorted(
        a_request(offset).key for offset in (1, 2)
    )
    assert desk.free(0) == 0
    assert batch.dispatch.requests[0].id == "r0"


def test_a_larger_credit_is_a_setting() -> None:
    desk = Desk(slots=1, batch_max=1, limits=LaneLimits(cap=3))
    desk.activate([a_partition(log_end=9)])

    assert len(send(desk, 0, 1, 2, 3)) == 3
