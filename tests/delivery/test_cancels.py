"""Requests that their clients take back (§9)."""

from headrace.delivery.decisions import (
    Cancelled,
    Decision,
    WriteBatch,
    WriteDeadLetters,
    WriteReplies,
)
from headrace.delivery.events import CancelRead
from headrace.domain import (
    MemberStatus,
    Priority,
    Reason,
    ReplyAddress,
    Request,
    Withdrawn,
)
from tests.delivery.builders import (
    MS,
    TOPICS,
    a_partition,
    a_request,
    a_source,
)
from tests.delivery.desk import Desk, batches_in, found

ASYNC = ReplyAddress(TOPICS.results("t", "async"), None)


def a_desk(*, slots: int = 1, cap: int = 1) -> Desk:
    desk = Desk(slots=slots, cap=cap, batch_max=1)
    desk.activate([a_partition(priority=p, log_end=99) for p in Priority])
    return desk


def cancel(desk: Desk, request: Request, offset: int) -> list[Decision]:
    """Its record lies at ``offset``, in the request's partition."""
    said = desk.tell(CancelRead(a_source(offset), request.key))
    return [*said, *desk.tick()]


def unsettled(desk: Desk) -> int:
    return desk.lane.unsettled()[a_source(0)[:2]]


def test_what_is_queued_ends_and_leaves_the_queue() -> None:
    desk = a_desk()
    running, queued = a_request(0), a_request(1)
    batch, *_ = batches_in(desk.read(running, queued))

    said = cancel(desk, queued, 2)

    assert found(said, Cancelled) == [Cancelled(queued)]
    assert queued.key not in desk.scheduler.queue
    assert unsettled(desk) == 1
    desk.done(batch)
    assert desk.all(WriteBatch) == [batch]
    assert desk.all(WriteReplies) == []
    desk.let_pass(desk.limits.commit_us)
    assert desk.watermark()[0] == 3


def test_a_cancel_does_not_wait_for_what_lies_before_it() -> None:
    """D10: the watermark stays below what runs, and passes the cancel after it."""
    desk = a_desk()
    running, queued = a_request(0), a_request(1)
    (batch,) = batches_in(desk.read(running, queued))
    cancel(desk, queued, 2)
    desk.read(a_request(3))

    desk.done(batch)
    desk.let_pass(desk.limits.commit_us)

    assert desk.watermark()[0] == 3


def test_what_runs_is_finished_and_settled_by_its_done() -> None:
    desk = a_desk()
    request = a_request(0)
    (batch,) = batches_in(desk.read(request))

    assert found(cancel(desk, request, 1), Cancelled) == []
    assert unsettled(desk) == 1

    desk.done(batch)
    assert unsettled(desk) == 0


def test_what_ran_in_vain_is_not_tried_again() -> None:
    desk = a_desk(slots=2)
    request = a_request(0)
    (batch,) = batches_in(desk.read(request))
    cancel(desk, request, 1)

    said = desk.done(batch, MemberStatus.UNACKED)

    assert found(said, Cancelled) == [Cancelled(batch.dispatch.requests[0])]
    assert batches_in(said) == []
    assert unsettled(desk) == 0


def test_poison_stays_poison_though_nobody_waits() -> None:
    desk = a_desk()
    request = a_request(0)
    (batch,) = batches_in(desk.read(request))
    cancel(desk, request, 1)

    desk.done(batch, MemberStatus.FINAL, "poison")

    (letters,) = desk.all(WriteDeadLetters)
    assert letters.letters[0].reason is Reason.POISON


def test_whoever_asks_later_for_the_answer_is_told() -> None:
    desk = a_desk()
    desk.read(a_request(0))
    request = a_request(1, reply_to=ASYNC)
    desk.read(request)

    (replies,) = found(cancel(desk, request, 2), WriteReplies)

    (terminal,) = replies.terminals
    assert (terminal.reason, terminal.reply_to) == (Reason.CANCELLED, ASYNC)
    assert unsettled(desk) == 2
    desk.ended(replies.write)
    assert unsettled(desk) == 1


def test_a_cancel_that_came_first_is_remembered_for_a_while() -> None:
    desk = a_desk()
    early, late = a_request(2), a_request(3)
    cancel(desk, early, 0)
    cancel(desk, late, 1)

    assert batches_in(desk.read(early)) == []
    assert unsettled(desk) == 0

    desk.let_pass(desk.limits.cancel_memory_us)
    assert len(batches_in(desk.read(late))) == 1


def test_the_oldest_cancels_are_forgotten_beyond_the_limit() -> None:
    desk = a_desk()
    requests = [a_request(90_000 + number) for number in range(3)]
    strangers = desk.limits.cancels_max - 1
    cancel(desk, requests[0], 0)
    cancel(desk, requests[1], 1)
    for number in range(strangers):
        desk.tell(CancelRead(a_source(2 + number), f"t/stranger{number}@"))

    assert [len(batches_in(desk.read(each))) for each in requests[:2]] == [1, 0]


def test_a_record_read_twice_cancels_once_and_nothing_else() -> None:
    desk = a_desk()
    desk.read(a_request(0), a_request(1))

    cancel(desk, a_request(1), 2)
    assert cancel(desk, a_request(0), 2) == []
    assert unsettled(desk) == 1


def test_a_cancel_names_nothing_that_was_put_there_by_hand() -> None:
    desk = a_desk()
    desk.read(a_request(0), a_request(1, id="x", made_by_us=False))

    cancel(desk, a_request(2, id="x"), 2)

    assert unsettled(desk) == 2


def test_a_predecessors_cancel_is_found_again() -> None:
    """A successor reads from the watermark, and with the request its cancel, before it
    dispatches anything."""
    desk = Desk(slots=1, cap=1, batch_max=1)
    desk.take([a_partition(log_end=3, committed=0)])
    request = a_request(1)
    desk.read(a_request(0), request)
    cancel(desk, request, 2)

    desk.report(0)
    desk.tick()

    (batch,) = desk.all(WriteBatch)
    assert [each.id for each in batch.dispatch.requests] == ["r0"]
    assert Withdrawn(request.key) not in desk.scheduler.events
    desk.done(batch)
    desk.let_pass(desk.limits.commit_us + MS)
    assert desk.watermark()[0] == 3
