"""What becomes of a request: identity, attempts, and who runs it next."""

import pytest

from headrace.delivery import LaneLimits
from headrace.delivery.decisions import (
    Commit,
    FetchPositions,
    ReadRequests,
    WriteBatch,
    WriteDeadLetters,
    WriteReplies,
)
from headrace.delivery.events import (
    HopsMeasured,
    PositionsFetched,
    RequestRead,
    VersionsChanged,
)
from headrace.domain import Joined, MemberStatus, Priority, Reason, Request
from tests.delivery.builders import (
    MS,
    SECOND,
    a_partition,
    a_request,
    a_source,
    a_version,
)
from tests.delivery.desk import Desk, batches_in, found

OK, RETRY = MemberStatus.OK, MemberStatus.RETRY
FINAL, UNACKED = MemberStatus.FINAL, MemberStatus.UNACKED


def a_desk(*, slots: int = 1, cap: int = 1, batch_max: int = 4) -> Desk:
    desk = Desk(slots=slots, cap=cap, batch_max=batch_max)
    desk.activate([a_partition(priority=p, log_end=99) for p in Priority])
    return desk


def send(desk: Desk, *requests: Request) -> WriteBatch:
    (batch,) = batches_in(desk.read(*requests))
    return batch


def ids(batch: WriteBatch) -> list[str]:
    return [request.id for request in batch.dispatch.requests]


# -- identity


def test_a_duplicate_joins_its_entry_and_settles_with_it() -> None:
    """§6.1 ◆: two entries of one identity could end differently."""
    desk = a_desk()
    batch = send(desk, a_request(0, id="x"), a_request(1, id="x"))

    assert ids(batch) == ["x"]
    assert desk.lane.unsettled()[a_source(0)[:2]] == 2
    desk.done(batch)

    assert desk.lane.unsettled()[a_source(0)[:2]] == 0
    desk.let_pass(desk.limits.commit_us)
    assert desk.watermark()[0] == 2


def test_a_duplicate_joins_while_the_first_flies() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0, id="x"))

    assert batches_in(desk.read(a_request(1, id="x"))) == []
    desk.done(batch)

    assert desk.all(WriteBatch) == [batch]
    assert desk.lane.unsettled()[a_source(0)[:2]] == 0


def test_a_hand_made_record_never_joins_another() -> None:
    """§6.1 ◆: clients of other writers send the id 1 all day."""
    desk = a_desk()

    batch = send(
        desk,
        a_request(0, id="1", made_by_us=False),
        a_request(1, id="1", made_by_us=False),
    )

    assert ids(batch) == ["1", "1"]


def test_a_record_that_is_read_twice_is_one() -> None:
    desk = a_desk(batch_max=1)
    batch = send(desk, a_request(0))
    desk.done(batch)

    assert desk.read(a_request(0)) == []


def test_a_request_of_a_partition_that_is_not_ours_is_ignored() -> None:
    desk = a_desk()

    assert desk.read(a_request(0, model="another")) == []


# -- attempts


def test_a_lost_online_request_gets_one_more_attempt() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0))
    (second,) = batches_in(desk.done(batch, RETRY, "device"))
    said = desk.done(second, RETRY, "device")

    assert second.dispatch.requests[0].attempt == 2
    (replies,) = found(said, WriteReplies)
    assert [t.reason for t in replies.terminals] == [Reason.ATTEMPTS_EXHAUSTED]
    assert replies.terminals[0].attempt == 2


def test_an_unacked_reply_is_an_attempt_of_the_same_slot_too() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0))

    (second,) = batches_in(desk.done(batch, UNACKED))

    assert second.dispatch.requests[0].attempt == 2
    assert second.dispatch.requests[0].avoid is None


def test_another_slot_is_asked_when_one_failed() -> None:
    desk = a_desk(slots=2)
    batch = send(desk, a_request(0))

    (second,) = batches_in(desk.done(batch, RETRY, "device"))

    assert (batch.dispatch.slot, second.dispatch.slot) == (0, 1)


def test_a_late_batch_is_no_attempt() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0))
    for _ in range(5):
        (batch,) = batches_in(desk.done(batch, RETRY, "late"))

    assert batch.dispatch.requests[0].attempt == 1


def test_only_the_members_that_flew_in_the_batch_are_retried() -> None:
    desk = a_desk(slots=2)
    batch = send(desk, a_request(0))
    (second,) = batches_in(desk.let_pass(batch.lease_us))

    assert batches_in(desk.done(batch, RETRY, "device")) == []
    assert found(desk.done(second, RETRY, "device"), WriteReplies) != []


def test_a_success_settles_a_request_that_is_queued_again() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0))
    desk.let_pass(batch.lease_us)
    assert list(desk.scheduler.queue) == [a_request(0).key]

    desk.done(batch, OK)

    assert desk.scheduler.queue == {}
    assert desk.lane.unsettled()[a_source(0)[:2]] == 0


def test_bulk_gets_five_attempts_with_a_growing_pause() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0, priority=Priority.BULK))
    pauses = []
    for _ in range(4):
        before_us = desk.now_us
        said = desk.done(batch, RETRY, "device")
        while not batches_in(said):
            said = desk.let_pass(10 * MS)
        pauses.append((desk.now_us - before_us) // MS)
        (batch,) = batches_in(said)

    assert pauses == [500, 1000, 2000, 4000]
    assert batch.dispatch.requests[0].attempt == 5
    (letters,) = found(desk.done(batch, RETRY, "device"), WriteDeadLetters)
    assert letters.letters[0].reason is Reason.ATTEMPTS_EXHAUSTED
    assert letters.letters[0].attempts == 5


@pytest.mark.parametrize("reason", ["model_error", "oom"])
def test_members_of_a_failed_batch_run_alone_once(reason: str) -> None:
    desk = a_desk()
    batch = send(desk, a_request(0), a_request(1), a_request(2))
    said = desk.done(batch, RETRY, reason)
    alone = batches_in(said)
    while batches_in(said):
        said = desk.done(batches_in(said)[0])
        alone += batches_in(said)

    assert [ids(each) for each in alone] == [["r0"], ["r1"], ["r2"]]
    assert {each.dispatch.requests[0].attempt for each in alone} == {1}


def test_a_second_failure_alone_is_the_requests_own() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0), a_request(1))
    (first,) = batches_in(desk.done(batch, RETRY, "model_error"))

    said = desk.done(first, RETRY, "model_error")

    (replies,) = found(said, WriteReplies)
    assert [(t.id, t.reason) for t in replies.terminals] == [("r0", Reason.MODEL_ERROR)]
    (second,) = batches_in(said)
    assert ids(second) == ["r1"]


def test_out_of_memory_alone_is_an_attempt() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0))
    (alone,) = batches_in(desk.done(batch, RETRY, "oom"))
    (second,) = batches_in(desk.done(alone, RETRY, "oom"))

    assert second.dispatch.requests[0].attempt == 2


def test_a_final_member_does_not_fail_its_neighbours() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0), a_request(1))

    said = desk.done(batch, reason="poison", statuses=[OK, FINAL])

    (replies,) = found(said, WriteReplies)
    assert [(t.id, t.reason) for t in replies.terminals] == [("r1", Reason.POISON)]


def test_a_reason_of_a_newer_worker_is_a_model_error() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0))

    (replies,) = found(desk.done(batch, FINAL, "not_known_yet"), WriteReplies)

    assert replies.terminals[0].reason is Reason.MODEL_ERROR


@pytest.mark.parametrize(
    ("previous_exit", "expected"),
    [
        ("signal:SEGV", [["r0"], ["r1"]]),
        ("signal:KILL", [["r0", "r1"]]),
        ("signal:TERM", [["r0", "r1"]]),
        ("exit:1", [["r0", "r1"]]),
    ],
)
def test_a_killer_fails_alone(previous_exit: str, expected: list[list[str]]) -> None:
    desk = a_desk()
    send(desk, a_request(0), a_request(1))

    desk.complete(Joined(0, previous_exit))
    desk.report(0)
    desk.hear()
    said = desk.tick()
    runs = batches_in(said)
    while batches_in(said):
        said = desk.done(batches_in(said)[0])
        runs += batches_in(said)

    assert [ids(each) for each in runs] == expected


def test_a_killer_found_out_late_still_fails_alone() -> None:
    """The slot is silent long before its next process tells how the last one ended."""
    desk = a_desk()
    desk.hear()
    send(desk, a_request(0), a_request(1))
    desk.silent = {0}
    desk.let_pass(2 * SECOND)
    assert [r.alone for r in desk.scheduler.queue.values()] == [False, False]

    desk.complete(Joined(0, "signal:SEGV"))

    assert [r.alone for r in desk.scheduler.queue.values()] == [True, True]


def test_a_request_that_flies_for_too_long_gets_its_verdict() -> None:
    """D19: at the next full commit."""
    limits = LaneLimits(flying_max_us=30 * SECOND)
    desk = Desk(slots=1, limits=limits, p99_us=60 * SECOND)
    desk.activate([a_partition(log_end=1)])
    send(desk, a_request(0))

    assert found(desk.let_pass(30 * SECOND - MS), WriteReplies) == []
    (replies,) = found(desk.let_pass(limits.commit_all_us), WriteReplies)

    assert replies.terminals[0].reason is Reason.ATTEMPTS_EXHAUSTED


# -- versions


def test_what_is_queued_for_a_version_that_is_gone_is_refused() -> None:
    desk = a_desk()
    send(desk, a_request(0))
    desk.read(a_request(1))

    said = desk.tell(VersionsChanged(()))

    (replies,) = found(said, WriteReplies)
    assert [(t.id, t.reason) for t in replies.terminals] == [
        ("r1", Reason.MODEL_UNAVAILABLE)
    ]
    assert desk.scheduler.queue == {}


def test_a_version_whose_slots_all_load_keeps_its_queue() -> None:
    desk = a_desk()
    send(desk, a_request(0))
    desk.read(a_request(1))

    assert desk.tell(VersionsChanged((a_version(slots=frozenset()),))) == []
    assert list(desk.scheduler.queue) == [a_request(1).key]


def test_a_retry_of_a_version_that_is_gone_is_refused() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0))
    desk.tell(VersionsChanged(()))

    (replies,) = found(desk.done(batch, RETRY, "model_unavailable"), WriteReplies)

    assert replies.terminals[0].reason is Reason.MODEL_UNAVAILABLE


def test_a_new_models_partitions_are_read_and_committed_at_once() -> None:
    desk = a_desk()
    versions = (a_version(), a_version("new"))
    assert desk.tell(VersionsChanged(versions)) == [FetchPositions(0, ("new",))]
    fetched = PositionsFetched((a_partition(model="new", log_end=3),), 0, 2)

    said = desk.tell(fetched)

    assert found(said, ReadRequests) == [
        ReadRequests(((*a_source(0, model="new")[:2], 0),))
    ]
    (commit,) = found(said, Commit)
    assert [(e.topic, e.offset) for e in commit.entries] == [
        (a_source(0, model="new").topic, 0)
    ]
    assert len(batches_in(desk.read(a_request(0, model="new")))) == 1


def test_a_new_model_without_a_topic_yet_is_asked_for_again() -> None:
    desk = a_desk()
    desk.tell(VersionsChanged((a_version(), a_version("new"))))
    desk.tell(PositionsFetched((), 0, 2))

    said = desk.let_pass(desk.limits.ask_again_us)

    assert found(said, FetchPositions) == [FetchPositions(0, ("new",))]


# -- arrival


def test_an_overdue_request_is_refused_and_never_run() -> None:
    """D2"""
    desk = a_desk()

    said = desk.tell(RequestRead(a_request(0), overdue=True))
    said += desk.tick()

    (replies,) = found(said, WriteReplies)
    assert replies.terminals[0].reason is Reason.EXPIRED
    assert desk.all(WriteBatch) == []


def test_several_refusals_share_a_write() -> None:
    desk = a_desk()
    for offset in range(3):
        desk.tell(RequestRead(a_request(offset), overdue=True))

    (replies,) = found(desk.tick(), WriteReplies)

    assert [t.id for t in replies.terminals] == ["r0", "r1", "r2"]


def test_measured_hops_reach_the_scheduler() -> None:
    desk = a_desk()
    desk.tell(HopsMeasured(1_000, 2_000))

    assert HopsMeasured(1_000, 2_000) in desk.scheduler.events
