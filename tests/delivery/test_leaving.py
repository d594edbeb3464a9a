"""How a lane is let go: revoked, drained, lost."""

from headrace.delivery.decisions import (
    Commit,
    DropLane,
    StopReading,
    WriteReplies,
)
from headrace.delivery.events import (
    CommitEnded,
    CommitOutcome,
    DrainRequested,
    Lost,
    RequestRead,
    Revoked,
)
from headrace.domain import HeldBatch
from tests.delivery.builders import MS, a_partition, a_request, a_source
from tests.delivery.desk import Desk, batches_in, found


def test_a_lost_lane_writes_nothing() -> None:
    desk = Desk()
    desk.activate()
    desk.read(a_request(0))

    assert desk.tell(Lost()) == [DropLane(0)]
    assert desk.scheduler.queue == {}
    assert desk.lane.wakeup_at_us() is None


def test_a_revoked_lane_waits_for_what_flies_and_commits_once() -> None:
    desk = Desk()
    desk.activate([a_partition(log_end=2)])
    (batch,) = batches_in(desk.read(a_request(0)))

    said = desk.tell(Revoked())
    assert found(said, StopReading) == [StopReading(0, (a_source(0)[:2],))]
    assert found(said, Commit) == []
    said = desk.done(batch)

    (commit,) = found(said, Commit)
    assert commit.wait
    assert [entry.offset for entry in commit.entries] == [1]
    assert said[-1] == DropLane(0)


def test_a_draining_lane_waits_500_ms_and_leaves_the_rest_to_its_successor() -> None:
    desk = Desk()
    desk.activate([a_partition(log_end=2)])
    desk.read(a_request(0), a_request(1))
    desk.tell(DrainRequested())

    assert DropLane(0) not in desk.let_pass(desk.limits.drain_us - MS)
    assert DropLane(0) in desk.let_pass(MS)
    assert desk.all(WriteReplies) == []


def test_what_a_slot_says_while_a_lane_waits_for_acks_is_not_waited_for() -> None:
    """Nor ticked for: a former that leaves would fill a core until it is gone."""
    desk = Desk(slots=1)
    desk.activate([a_partition(log_end=2)])
    desk.scheduler.is_holding = True
    desk.tell(RequestRead(a_request(0), overdue=True))
    desk.tick()  # its refusal is written, and not acked
    desk.read(a_request(1))
    desk.tell(Revoked())
    desk.tick()
    desk.report(0, held=[HeldBatch("theirs", (a_source(1),))])

    assert DropLane(0) not in desk.let_pass(desk.limits.flush_us - MS)
    assert DropLane(0) in desk.let_pass(2 * MS)


def test_a_lane_being_left_dispatches_nothing() -> None:
    desk = Desk(slots=1, cap=1)
    desk.activate([a_partition(log_end=2)])
    (batch,) = batches_in(desk.read(a_request(0)))
    desk.read(a_request(1))
    desk.tell(Revoked())

    assert batches_in(desk.done(batch)) == []


def test_a_refused_last_commit_is_not_repeated() -> None:
    desk = Desk()
    desk.activate([a_partition(log_end=1)])
    (batch,) = batches_in(desk.read(a_request(0)))
    desk.done(batch)
    desk.accepts_commits = False

    (commit,) = found(desk.tell(Revoked()), Commit)

    assert desk.tell(CommitEnded(commit.commit, CommitOutcome.NOT_MEMBER)) == [
        DropLane(0)
    ]


def test_a_lane_that_is_being_taken_is_let_go_at_once() -> None:
    desk = Desk()
    desk.take()

    assert desk.tell(Revoked()) == [DropLane(0)]
