"""Idempotency keys (§9): one run and one answer while they are remembered."""

import msgspec
import pytest

from headrace.delivery.decisions import (
    Commit,
    Decision,
    ReadKeys,
    WriteBatch,
    WriteDeadLetters,
    WriteReplies,
)
from headrace.delivery.events import (
    CancelRead,
    CommitEnded,
    CommitOutcome,
    KeysRead,
)
from headrace.domain import (
    HeldBatch,
    MemberStatus,
    Priority,
    Reason,
    ReplyAddress,
    Request,
)
from tests.delivery.builders import (
    SECOND,
    TOPICS,
    a_partition,
    a_request,
    a_source,
)
from tests.delivery.desk import Desk, batches_in, found

KEPT = ReplyAddress(TOPICS.results("t", "keyed"), None)
ID = f"{0:012x}8{1:019x}"


def keyed(offset: int, **changes: object) -> Request:
    request = a_request(offset, id=ID, reply_to=KEPT)
    return msgspec.structs.replace(request, **changes)


def a_desk(*, is_read: bool = True) -> Desk:
    desk = Desk(slots=2, cap=1, batch_max=4)
    said = desk.activate([a_partition(priority=p, log_end=99) for p in Priority])
    assert found(said, ReadKeys) == [ReadKeys(0)]
    if is_read:
        desk.tell(KeysRead(()))
    return desk


def unsettled(desk: Desk) -> int:
    return desk.lane.unsettled()[a_source(0)[:2]]


def ask(desk: Desk, request: Request) -> list[WriteBatch]:
    return batches_in(desk.read(request))


def test_a_repetition_is_settled_unrun_while_its_key_is_remembered() -> None:
    desk = a_desk()
    (batch,) = ask(desk, keyed(0))
    assert ask(desk, keyed(1)) == []
    desk.done(batch)
    assert unsettled(desk) == 0

    assert ask(desk, keyed(2)) == []
    assert unsettled(desk) == 0
    assert desk.all(WriteReplies) == []
    desk.let_pass(desk.limits.commit_us)
    assert desk.watermark()[0] == 3


def test_a_key_is_forgotten_in_its_time_however_often_it_came() -> None:
    desk = a_desk()
    (batch,) = ask(desk, keyed(0))
    desk.done(batch)

    desk.let_pass(desk.limits.key_memory_us - 10 * SECOND)
    assert ask(desk, keyed(1)) == []
    desk.let_pass(20 * SECOND)
    assert len(ask(desk, keyed(2))) == 1


def test_the_memory_of_a_key_begins_with_its_answer() -> None:
    """And not with the next request that has any key."""
    desk = a_desk()
    (batch,) = ask(desk, keyed(0))
    desk.done(batch)
    desk.let_pass(desk.limits.key_memory_us + SECOND)

    assert len(ask(desk, keyed(1))) == 1


def test_an_error_that_is_the_requests_own_is_remembered() -> None:
    desk = a_desk()
    (batch,) = ask(desk, keyed(0))
    desk.done(batch, MemberStatus.FINAL, "poison")
    for write in desk.all(WriteReplies):
        desk.ended(write.write)
    assert ask(desk, keyed(1)) == []


def test_an_error_that_invites_a_retry_is_not_remembered() -> None:
    desk = a_desk()
    deadline_us = desk.now_us + SECOND
    desk.silent |= {0, 1}
    desk.let_pass(2 * SECOND)
    assert ask(desk, keyed(0, deadline_us=deadline_us)) == []
    (replies,) = desk.all(WriteReplies)
    assert replies.terminals[0].reason is Reason.EXPIRED
    desk.ended(replies.write)
    assert unsettled(desk) == 0

    desk.silent.clear()
    desk.let_pass(2 * SECOND)
    for slot in (0, 1):
        desk.report(slot)
    assert len(ask(desk, keyed(1))) == 1


@pytest.mark.parametrize("times", [1, 2])
def test_a_cancel_ends_a_try_and_not_its_key(times: int) -> None:
    """Also one that came twice, the second time behind the try's end."""
    desk = a_desk()
    desk.silent |= {0, 1}
    desk.let_pass(2 * SECOND)
    assert ask(desk, keyed(0)) == []
    for offset in range(1, 1 + times):
        desk.tell(CancelRead(a_source(offset), keyed(0).key))
        desk.tick()
        for replies in desk.all(WriteReplies)[offset - 1 :]:
            assert replies.terminals[0].reason is Reason.CANCELLED
            desk.ended(replies.write)
    assert unsettled(desk) == 0

    desk.silent.clear()
    desk.let_pass(2 * SECOND)
    for slot in (0, 1):
        desk.report(slot)
    (batch,) = ask(desk, keyed(3))
    desk.done(batch)
    assert ask(desk, keyed(4)) == []


def test_a_cancel_of_another_body_under_the_key_ends_nothing() -> None:
    desk = a_desk()
    desk.silent |= {0, 1}
    desk.let_pass(2 * SECOND)
    ask(desk, keyed(0, body_sha256="one"))
    ask(desk, keyed(1, body_sha256="two"))
    desk.tell(CancelRead(a_source(2), keyed(0).key, "two"))
    desk.tick()
    assert desk.all(WriteReplies) == []

    desk.tell(CancelRead(a_source(3), keyed(0).key, "one"))
    desk.tick()
    (replies,) = desk.all(WriteReplies)
    assert replies.terminals[0].reason is Reason.CANCELLED
    desk.ended(replies.write)
    assert unsettled(desk) == 0


def test_nothing_with_a_key_runs_before_the_answers_are_read() -> None:
    desk = a_desk(is_read=False)
    assert ask(desk, keyed(0)) == []
    assert len(ask(desk, a_request(1))) == 1
    other = keyed(2, id=ID[:-1] + "2", key="other")
    assert ask(desk, other) == []

    said: list[Decision] = desk.tell(KeysRead(((ID, desk.now_us - SECOND),)))
    (batch,) = batches_in([*said, *desk.tick()])

    assert [each.id for each in batch.dispatch.requests] == [other.id]
    assert unsettled(desk) == 2


def test_what_was_answered_too_long_ago_runs_anew() -> None:
    desk = a_desk(is_read=False)
    desk.let_pass(desk.limits.key_memory_us)
    desk.tell(KeysRead(((ID, 0),)))
    assert len(ask(desk, keyed(0))) == 1


def test_what_flies_already_is_adopted_and_not_run_again() -> None:
    desk = Desk(slots=1, cap=1)
    desk.take([a_partition(log_end=9, committed=0)])
    desk.read(keyed(0))
    desk.report(0, held=[HeldBatch("theirs", (a_source(0),))])
    said = desk.tell(KeysRead(()))
    assert batches_in([*said, *desk.tick()]) == []
    assert desk.all(WriteBatch) == []


def test_an_end_that_was_read_before_its_request_is_remembered() -> None:
    desk = a_desk()
    desk.done_elsewhere(a_source(0))
    assert ask(desk, keyed(0)) == []
    assert ask(desk, keyed(1)) == []
    assert unsettled(desk) == 0


@pytest.mark.parametrize(
    "request_",
    [
        a_request(1, id=ID),
        keyed(1, made_by_us=False, key="by hand"),
        keyed(1, reply_to=ReplyAddress(TOPICS.results("t", "job"), None), key="job"),
    ],
)
def test_an_id_alone_is_no_key(request_: Request) -> None:
    desk = a_desk()
    (batch,) = ask(desk, keyed(0))
    desk.done(batch)
    assert len(ask(desk, request_)) == 1


def refused(desk: Desk, offset: int) -> int:
    """A request with the key is told that it expired; the write of that."""
    desk.silent |= {0, 1}
    desk.let_pass(2 * SECOND)
    assert ask(desk, keyed(offset, deadline_us=desk.now_us - 1)) == []
    replies = desk.all(WriteReplies)[-1]
    assert replies.terminals[0].source == a_source(offset)
    desk.silent.clear()
    desk.let_pass(2 * SECOND)
    for slot in (0, 1):
        desk.report(slot)
    return replies.write


def test_who_asks_again_before_the_refusals_ack_is_another_try() -> None:
    """Its client has read the refusal already, and would get nothing by its end."""
    desk = a_desk()
    first = refused(desk, 0)
    assert ask(desk, keyed(1)) == []
    assert ask(desk, keyed(2)) == []
    assert unsettled(desk) == 3

    (batch,) = batches_in([*desk.ended(first), *desk.tick()])

    assert [each.source for each in batch.dispatch.requests] == [a_source(1)]
    assert unsettled(desk) == 2
    desk.done(batch)
    assert unsettled(desk) == 0
    assert ask(desk, keyed(3)) == []
    assert len(desk.all(WriteReplies)) == 1


def test_another_try_waits_until_the_refusal_is_acked() -> None:
    desk = a_desk()
    first = refused(desk, 0)
    assert ask(desk, keyed(1)) == []
    assert batches_in(desk.ended(first, None)) == []
    assert batches_in(desk.let_pass(desk.limits.again_us)) == []

    again = desk.all(WriteReplies)[-1]
    assert [each.source for each in again.terminals] == [a_source(0)]
    assert len(batches_in([*desk.ended(again.write), *desk.tick()])) == 1


def test_a_success_that_comes_before_the_refusals_ack_is_the_next_tries_too() -> None:
    desk = a_desk()
    refused(desk, 0)
    assert ask(desk, keyed(1)) == []

    desk.done_elsewhere(a_source(0))

    assert batches_in(desk.tick()) == []
    assert unsettled(desk) == 0


def test_a_try_that_is_cancelled_while_it_waits_is_waited_for_as_well() -> None:
    desk = a_desk()
    first = refused(desk, 0)
    ask(desk, keyed(1))
    desk.tell(CancelRead(a_source(2), keyed(1).key))
    desk.tick()
    second = desk.all(WriteReplies)[-1]
    assert second.terminals[0].reason is Reason.CANCELLED
    assert ask(desk, keyed(3)) == []

    assert batches_in([*desk.ended(first), *desk.tick()]) == []
    (batch,) = batches_in([*desk.ended(second.write), *desk.tick()])
    desk.done(batch)
    assert unsettled(desk) == 0


def test_who_asks_again_before_a_refusal_is_written_gets_it_too() -> None:
    """A verdict, which waits for its commit: it is appended behind the repetition."""
    desk = a_desk()
    (batch,) = ask(desk, keyed(0))
    desk.accepts_commits = False
    (commit,) = found(exhausted(desk, batch), Commit)
    assert ask(desk, keyed(1)) == []

    desk.tell(CommitEnded(commit.commit, CommitOutcome.ACCEPTED))
    desk.ended(desk.all(WriteReplies)[-1].write)

    assert unsettled(desk) == 0


def exhausted(desk: Desk, batch: WriteBatch) -> list[Decision]:
    said = desk.done(batch, MemberStatus.RETRY, "model_unavailable")
    (batch,) = batches_in(said)
    return desk.done(batch, MemberStatus.RETRY, "model_unavailable")


def put_back(offset: int, letter: str = "letters/0/7") -> Request:
    """A dead letter's request, as its record says that it is one."""
    return keyed(offset, key=f"{keyed(0).key}#{letter}", is_redriven=True)


@pytest.mark.parametrize("is_settled", [True, False])
def test_what_an_operator_puts_back_runs_though_its_key_is_answered(
    *, is_settled: bool
) -> None:
    """Also before the ack of the answer beside the letter."""
    desk = a_desk()
    (batch,) = ask(desk, keyed(0))
    desk.done(batch, MemberStatus.FINAL, "poison")
    (letters,) = desk.all(WriteDeadLetters)
    (replies,) = desk.all(WriteReplies)
    desk.ended(letters.write)
    if is_settled:
        desk.ended(replies.write)

    (again,) = ask(desk, put_back(1))
    assert ask(desk, put_back(2)) == []
    desk.ended(replies.write)
    desk.done(again)

    assert ask(desk, keyed(3)) == []
    assert unsettled(desk) == 0


def test_a_successor_runs_what_was_put_back_and_not_what_it_follows() -> None:
    desk = a_desk(is_read=False)
    assert ask(desk, keyed(0)) == []
    (batch,) = ask(desk, put_back(1))
    desk.tell(KeysRead(((ID, desk.now_us - SECOND),)))
    desk.done(batch)
    assert unsettled(desk) == 0
