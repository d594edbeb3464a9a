"""Leases and silence: when a slot is asked what became of its batches."""

from headrace.delivery.decisions import Alarm, WriteBatch, WriteSync
from headrace.domain import (
    HeldBatch,
    Joined,
    MemberStatus,
)
from tests.delivery.builders import MS, SECOND, a_partition, a_request, a_source
from tests.delivery.desk import Desk, batches_in

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


def test_a_lease_is_three_times_the_queue_in_the_slot_and_200_ms() -> None:
    desk = a_desk(cap=2, p99_us=50 * MS)

    first, second = send(desk, 0, 1)

    assert first.lease_us == 350 * MS
    assert second.lease_us == 500 * MS


def test_a_lease_is_at_least_300_ms() -> None:
    desk = a_desk(p99_us=1 * MS)

    assert send(desk, 0)[0].lease_us == 300 * MS


def test_a_lapsed_lease_tries_the_members_elsewhere_and_asks_the_slot() -> None:
    desk = a_desk(slots=2)
    (batch,) = send(desk, 0)
    assert batch.dispatch.slot == 0
    said = desk.let_pass(batch.lease_us)

    (again,) = batches_in(said)
    assert again.dispatch.slot == 1
    assert again.dispatch.requests[0].attempt == 2
    assert syncs(desk, 0) == [1, 2]


def test_a_lapsed_lease_gives_no_credit_back() -> None:
    """§6.4 ◆: the worker may be frozen with the batch in its hands."""
    desk = a_desk()
    (batch,) = send(desk, 0)

    desk.let_pass(batch.lease_us + SECOND)

    assert desk.free(0) == 0
    assert desk.scheduler.slots[0].held == (batch.dispatch.batch,)
    assert len(desk.all(WriteBatch)) == 1


def test_a_report_after_a_lapse_decides_what_the_slot_holds() -> None:
    desk = a_desk()
    (batch,) = send(desk, 0)
    desk.let_pass(batch.lease_us)

    desk.report(0, held=[held(batch)])
    assert desk.free(0) == 0
    desk.done(batch)

    assert desk.free(0) == 1
    assert desk.lane.unsettled() == {a_source(0)[:2]: 0}


def test_a_batch_that_a_report_still_names_has_a_lease_again() -> None:
    desk = a_desk()
    (batch,) = send(desk, 0)
    desk.let_pass(batch.lease_us)
    desk.report(0, held=[held(batch)])

    desk.let_pass(batch.lease_us)

    assert syncs(desk) == [1, 2, 3]


def test_a_lease_is_watched_after_all_members_are_settled() -> None:
    """§6.4 ◆: a batch that got lost would keep its slot's credit for ever."""
    desk = a_desk()
    (batch,) = send(desk, 0)
    desk.done(batch, OK, name="another")
    assert desk.lane.unsettled() == {a_source(0)[:2]: 0}

    desk.let_pass(batch.lease_us)
    assert syncs(desk) == [1, 2]
    desk.report(0, held=[])

    assert desk.free(0) == 1


def test_leases_stand_still_while_our_own_heartbeats_are_not_read() -> None:
    """D4"""
    desk = a_desk(slots=2, p99_us=200 * MS)
    desk.hear()
    (batch,) = send(desk, 0)
    desk.reads_status = False
    assert batches_in(desk.let_pass(5 * SECOND)) == []

    desk.reads_status = True
    assert batches_in(desk.let_pass(batch.lease_us - 10 * MS)) == []
    assert len(batches_in(desk.let_pass(260 * MS))) == 1


def test_a_silent_slots_members_are_tried_elsewhere_after_a_second() -> None:
    desk = a_desk(slots=2, p99_us=SECOND)
    (batch,) = send(desk, 0)
    desk.hear()
    desk.silent = {batch.dispatch.slot}

    assert batches_in(desk.let_pass(900 * MS)) == []
    (again,) = batches_in(desk.let_pass(400 * MS))
    assert again.dispatch.slot == 1


def test_nobody_is_silent_while_status_is_not_read() -> None:
    """D3 ◆: silence is measured in the log."""
    desk = a_desk(slots=2, p99_us=SECOND)
    send(desk, 0)
    desk.hear()
    desk.reads_status = False

    assert batches_in(desk.let_pass(5 * SECOND)) == []
    assert syncs(desk) == [1]


def test_a_slot_that_is_not_heard_gets_nothing() -> None:
    desk = a_desk(slots=1)
    desk.silent = {0}
    desk.let_pass(2 * SECOND)

    assert send(desk, 0) == []


def test_a_slot_that_reports_gets_nothing_before_it_is_heard() -> None:
    """Its report may have waited in a log that is read late."""
    desk = a_desk()
    desk.complete(Joined(0, ""))
    desk.report(0)
    assert send(desk, 0) == []

    desk.hear()

    assert len(batches_in(desk.tick())) == 1


def test_an_old_twins_heartbeats_do_not_keep_its_successor_alive() -> None:
    desk = a_desk(slots=2, p99_us=SECOND)
    (batch,) = send(desk, 0)
    desk.hear()
    desk.incarnations[0] = -5

    assert len(batches_in(desk.let_pass(1_500 * MS))) == 1
    assert batch.dispatch.slot == 0


def test_an_operator_sees_lapses_and_silence() -> None:
    desk = a_desk(slots=2)
    desk.hear()
    send(desk, 0)
    desk.let_pass(SECOND)
    desk.silent = {1}
    desk.let_pass(2 * SECOND)

    alarms = {(alarm.event, alarm.facts["slot"]) for alarm in desk.all(Alarm)}
    assert {("lease.lapsed", 0), ("slot.silent", 1)} <= alarms
