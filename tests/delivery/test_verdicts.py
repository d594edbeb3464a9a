"""How requests end without a result: verdicts after a commit, refusals at once."""

from headrace.delivery.decisions import (
    Commit,
    Decision,
    DropLane,
    WriteDeadLetters,
    WriteReplies,
    WriteStale,
)
from headrace.delivery.events import (
    CommitEnded,
    CommitOutcome,
    RequestRead,
    RequestRejected,
)
from headrace.domain import (
    MemberStatus,
    Priority,
    Reason,
    ReplyAddress,
    Request,
    StaleWritten,
)
from tests.delivery.builders import (
    INGRESS,
    MS,
    SECOND,
    TOPICS,
    a_request,
    a_source,
)
from tests.delivery.desk import Desk, a_desk, batches_in, found

OK, FINAL, RETRY = MemberStatus.OK, MemberStatus.FINAL, MemberStatus.RETRY
JOB = ReplyAddress(TOPICS.results("t", "job"), None)
ASYNC = ReplyAddress(TOPICS.results("t", "async"), None)


def fail(desk: Desk, request: Request) -> list[Decision]:
    """Its batch is done, and the member can never succeed."""
    (batch,) = batches_in(desk.read(request))
    return desk.done(batch, FINAL, "poison")


def exhaust(desk: Desk, request: Request) -> list[Decision]:
    """Every attempt fails."""
    said = desk.read(request)
    for _ in range(5):
        while not batches_in(said):
            said = desk.let_pass(100 * MS)
        said = desk.done(batches_in(said)[0], RETRY, "model_unavailable")
        if any(isinstance(each, WriteReplies | WriteDeadLetters) for each in said):
            break
    return said


def refuse(desk: Desk, request: Request) -> list[Decision]:
    """It is expired on arrival."""
    return [*desk.tell(RequestRead(request, overdue=True)), *desk.tick()]


def open_requests(desk: Desk) -> int:
    return sum(desk.lane.unsettled().values())


# -- verdicts


def test_a_verdict_is_written_only_after_a_commit_that_was_sent_after_it() -> None:
    """§6.5 ◆: an owner that is none any more does not know what its successor does."""
    desk = a_desk()
    desk.accepts_commits = False
    said = fail(desk, a_request(0))

    (commit,) = found(said, Commit)
    assert found(said, WriteReplies) == []
    said = desk.tell(CommitEnded(commit.commit, CommitOutcome.ACCEPTED))

    assert [t.id for r in found(said, WriteReplies) for t in r.terminals] == ["r0"]


def test_a_commit_that_was_out_already_proves_nothing() -> None:
    desk = a_desk()
    (first,) = batches_in(desk.read(a_request(0)))
    desk.accepts_commits = False
    (second,) = batches_in([*desk.done(first), *desk.read(a_request(1))])
    (before,) = found(desk.let_pass(desk.limits.commit_us), Commit)
    assert found(desk.done(second, FINAL, "poison"), Commit) == []

    said = desk.tell(CommitEnded(before.commit, CommitOutcome.ACCEPTED))

    assert found(said, WriteReplies) == []
    (after,) = found(said, Commit)
    said = desk.tell(CommitEnded(after.commit, CommitOutcome.ACCEPTED))
    assert len(found(said, WriteReplies)) == 1


def test_a_refused_verdict_commit_writes_nothing_and_drops_the_lane() -> None:
    """§6.5 ◆"""
    desk = a_desk()
    desk.accepts_commits = False
    (commit,) = found(fail(desk, a_request(0)), Commit)

    said = desk.tell(CommitEnded(commit.commit, CommitOutcome.NOT_MEMBER))
    said += desk.let_pass(5 * SECOND)

    assert DropLane(0) in said
    assert found(said, WriteReplies) == []
    assert found(said, WriteDeadLetters) == []


def test_a_commit_without_an_answer_is_sent_again_at_the_next_tick() -> None:
    desk = a_desk()
    desk.accepts_commits = False
    (commit,) = found(fail(desk, a_request(0)), Commit)
    for outcome in (CommitOutcome.TRANSIENT, CommitOutcome.UNAVAILABLE):
        said = desk.tell(CommitEnded(commit.commit, outcome))
        assert found(said, Commit) == []
        (commit,) = found(desk.let_pass(desk.limits.commit_us), Commit)

    said = desk.tell(CommitEnded(commit.commit, CommitOutcome.ACCEPTED))
    assert len(found(said, WriteReplies)) == 1


def test_verdicts_of_one_time_share_a_commit() -> None:
    desk = a_desk()
    desk.accepts_commits = False
    (batch,) = batches_in(desk.read(a_request(0), a_request(1)))
    said = desk.done(batch, FINAL, "poison")

    (commit,) = found(said, Commit)
    said = desk.tell(CommitEnded(commit.commit, CommitOutcome.ACCEPTED))
    (replies,) = found(said, WriteReplies)
    assert [t.id for t in replies.terminals] == ["r0", "r1"]


def test_a_success_read_before_the_commits_answer_overrules_the_verdict() -> None:
    desk = a_desk()
    desk.accepts_commits = False
    (batch,) = batches_in(desk.read(a_request(0)))
    (commit,) = found(desk.done(batch, FINAL, "poison"), Commit)

    desk.done(batch, OK, name="another")
    said = desk.tell(CommitEnded(commit.commit, CommitOutcome.ACCEPTED))

    assert found(said, WriteReplies) == []
    assert open_requests(desk) == 0


def test_poison_gets_an_error_reply_and_a_dead_letter() -> None:
    desk = a_desk()
    said = fail(desk, a_request(0))

    (replies,) = found(said, WriteReplies)
    (letters,) = found(said, WriteDeadLetters)
    assert replies.terminals[0].reply_to == INGRESS
    assert letters.letters[0].source == a_source(0)
    desk.ended(replies.write)
    assert open_requests(desk) == 1
    desk.ended(letters.write)
    assert open_requests(desk) == 0


def test_exhausted_attempts_online_get_the_reply_alone() -> None:
    said = exhaust(a_desk(), a_request(0))

    assert len(found(said, WriteReplies)) == 1
    assert found(said, WriteDeadLetters) == []


def test_exhausted_attempts_without_an_address_get_a_dead_letter() -> None:
    said = exhaust(a_desk(), a_request(0, reply_to=None))

    assert found(said, WriteReplies) == []
    assert len(found(said, WriteDeadLetters)) == 1


def test_exhausted_attempts_of_bulk_get_the_dead_letter() -> None:
    request = a_request(0, priority=Priority.BULK, reply_to=JOB)

    said = exhaust(a_desk(), request)

    assert found(said, WriteReplies) == []
    assert len(found(said, WriteDeadLetters)) == 1


def test_a_client_that_waits_for_a_bulk_request_is_told() -> None:
    said = exhaust(a_desk(), a_request(0, priority=Priority.BULK))

    assert len(found(said, WriteReplies)) == 1
    assert len(found(said, WriteDeadLetters)) == 1


def test_a_jobs_item_gets_no_error_among_its_results() -> None:
    """D9: its outcome is its result, else its dead letter."""
    said = fail(a_desk(), a_request(0, priority=Priority.BULK, reply_to=JOB))

    assert found(said, WriteReplies) == []
    assert len(found(said, WriteDeadLetters)) == 1


def test_an_async_requests_error_goes_to_its_results_topic() -> None:
    """D18"""
    (replies,) = found(fail(a_desk(), a_request(0, reply_to=ASYNC)), WriteReplies)

    assert replies.terminals[0].reply_to == ASYNC


def test_a_record_that_can_never_run_gets_its_verdict() -> None:
    desk = a_desk()
    rejected = RequestRejected(
        a_source(0), "r0", "t", "m", INGRESS, Reason.UNDECODABLE, "no protobuf"
    )

    said = desk.tell(rejected)

    (replies,) = found(said, WriteReplies)
    (letters,) = found(said, WriteDeadLetters)
    assert replies.terminals[0].text == letters.letters[0].text == "no protobuf"
    desk.ended(replies.write)
    desk.ended(letters.write)
    assert open_requests(desk) == 0


def test_a_verdict_that_is_not_acked_is_written_again() -> None:
    desk = a_desk()
    (letters,) = found(fail(desk, a_request(0)), WriteDeadLetters)

    assert desk.ended(letters.write, None) == []
    (again,) = found(desk.let_pass(desk.limits.again_us), WriteDeadLetters)
    assert again.letters == letters.letters


# -- refusals


def test_a_refusal_is_written_at_once() -> None:
    desk = a_desk()
    desk.accepts_commits = False

    said = refuse(desk, a_request(0))

    assert len(found(said, WriteReplies)) == 1
    assert found(said, Commit) == []


def test_a_refusal_is_settled_when_it_is_acked_and_not_before() -> None:
    """§6.6 ◆: a reply that was lost would leave its client without any answer."""
    desk = a_desk()
    (replies,) = found(refuse(desk, a_request(0)), WriteReplies)
    desk.let_pass(SECOND)
    assert open_requests(desk) == 1
    desk.ended(replies.write)

    assert open_requests(desk) == 0


def test_a_refusal_that_is_not_acked_is_written_again() -> None:
    """§6.6 ◆"""
    desk = a_desk()
    (replies,) = found(refuse(desk, a_request(0)), WriteReplies)
    desk.ended(replies.write, None)

    (again,) = found(desk.let_pass(desk.limits.again_us), WriteReplies)

    assert again.terminals == replies.terminals
    desk.ended(again.write)
    assert open_requests(desk) == 0


def test_a_request_that_expires_in_the_queue_is_refused() -> None:
    desk = a_desk()
    (batch,) = batches_in(desk.read(a_request(0)))
    desk.read(a_request(1, deadline_us=desk.now_us + 100 * MS))

    (replies,) = found(desk.let_pass(100 * MS), WriteReplies)

    assert [(t.id, t.reason) for t in replies.terminals] == [("r1", Reason.EXPIRED)]
    assert batch.dispatch.requests[0].id == "r0"


def test_requests_more_than_60_s_late_share_a_stale_range() -> None:
    desk = a_desk()
    long_ago_us = desk.now_us - desk.limits.stale_us - 1
    for offset in (0, 1, 2, 5):
        request = a_request(offset, deadline_us=long_ago_us)
        desk.tell(RequestRead(request, overdue=True))

    (stale,) = found(desk.tick(), WriteStale)
    assert stale.ranges == ((0, 2), (5, 5))
    assert desk.all(WriteReplies) == []
    desk.ended(stale.write, 17)

    assert open_requests(desk) == 0


def test_a_stale_async_request_still_gets_its_error() -> None:
    """D18: somebody may ask for it tomorrow."""
    desk = a_desk()
    long_ago_us = desk.now_us - desk.limits.stale_us - 1

    said = refuse(desk, a_request(0, deadline_us=long_ago_us, reply_to=ASYNC))

    assert len(found(said, WriteReplies)) == 1
    assert found(said, WriteStale) == []


def test_a_refusal_without_an_address_is_a_stale_range() -> None:
    said = refuse(a_desk(), a_request(0, reply_to=None))

    assert [stale.ranges for stale in found(said, WriteStale)] == [((0, 0),)]


def test_a_stale_range_of_the_predecessor_settles_its_requests() -> None:
    desk = a_desk()
    topic, partition, _ = a_source(0)
    desk.complete(StaleWritten(topic, partition, ((0, 1),)))

    assert batches_in(desk.read(a_request(0), a_request(1))) == []
    assert open_requests(desk) == 0


def test_bulk_is_never_just_refused() -> None:
    """An item whose own deadline passes becomes a dead letter."""
    desk = a_desk()
    desk.accepts_commits = False
    request = a_request(0, priority=Priority.BULK, reply_to=JOB, deadline_us=1)
    said = refuse(desk, request)

    (commit,) = found(said, Commit)
    said = desk.tell(CommitEnded(commit.commit, CommitOutcome.ACCEPTED))
    (letters,) = found(said, WriteDeadLetters)
    assert letters.letters[0].reason is Reason.EXPIRED


def test_an_answer_to_an_unknown_write_changes_nothing() -> None:
    desk = a_desk()

    assert desk.ended(9_999) == []
    assert desk.tell(CommitEnded(9_999, CommitOutcome.NOT_MEMBER)) == []
