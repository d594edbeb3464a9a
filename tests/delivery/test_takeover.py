"""How a lane is taken: T1 to T9, epochs, and what tells an owner that it is none."""

from headrace.delivery import CommitMetadata, LaneState
from headrace.delivery.decisions import (
    Commit,
    DropLane,
    FetchPositions,
    ReadCompletions,
    ReadRequests,
    Rejoin,
    StopReading,
    WriteBatch,
    WriteClaim,
    WriteSync,
)
from headrace.delivery.events import (
    Assigned,
    ClaimSeen,
    ClaimWritten,
    CommitEnded,
    CommitOutcome,
    CompletionsLost,
    GapNoticed,
    PositionsFetched,
    RequestRead,
    SlotHeard,
    StatusAdvanced,
)
from headrace.domain import HeldBatch, Joined, Priority, Refused
from tests.delivery.builders import MS, SECOND, TOPICS, a_partition, a_request, a_source
from tests.delivery.desk import Desk, batches_in, found


def refused_epoch(seen: int, *, slot: int = 0, incarnation: int = 0) -> Refused:
    return Refused("b?", 0, slot, incarnation, "epoch", seen)


def test_a_lane_is_claimed_before_its_positions_are_asked() -> None:
    desk = Desk()

    assert desk.tell(Assigned()) == [WriteClaim(0)]
    assert desk.tell(ClaimWritten(4)) == [FetchPositions(0, None)]


def test_a_claim_that_timed_out_is_written_again() -> None:
    desk = Desk()
    desk.tell(Assigned())

    assert desk.tell(ClaimWritten(None)) == []
    assert desk.let_pass(desk.limits.again_us) == [WriteClaim(0)]


def test_the_epoch_is_above_the_claim_and_above_every_committed_epoch() -> None:
    committed = [(5, 3, 6), (2, 9, 10)]
    for claim, epoch, expected in committed:
        desk = Desk()
        metadata = CommitMetadata(epoch, completions=0)
        desk.take([a_partition(committed=0, metadata=metadata)], claim=claim)

        assert desk.lane.epoch == expected


def test_the_confirming_commit_names_every_partition_with_its_own_w_and_c() -> None:
    desk = Desk()
    desk.completions_end = 90
    old = CommitMetadata(3, completions=70, takeovers=1)
    desk.take(
        [
            a_partition(committed=7, log_end=9, metadata=old),
            a_partition(priority=Priority.BULK, log_start=2, log_end=2),
        ]
    )

    commit = desk.all(Commit)[0]
    assert commit.wait
    assert [(e.offset, CommitMetadata.parse(e.metadata)) for e in commit.entries] == [
        (7, CommitMetadata(4, completions=70, takeovers=2)),
        (2, CommitMetadata(4, completions=0)),
    ]


def test_nothing_is_written_under_an_epoch_before_its_confirming_commit() -> None:
    """T5 ◆: a former whose assignment was withdrawn meanwhile would speak for it."""
    desk = Desk()
    desk.accepts_commits = False
    desk.hear()
    desk.tell(Assigned())
    desk.tell(ClaimWritten(0))
    desk.tell(PositionsFetched((a_partition(log_end=3),), 0, 0))
    before = [type(each) for each in desk.said]
    for each in (RequestRead(a_request(0)), GapNoticed(), ClaimSeen(8)):
        desk.tell(each)
    desk.let_pass(2 * SECOND)

    assert before == [WriteClaim, FetchPositions, Commit]
    assert {type(each) for each in desk.said} == {WriteClaim, FetchPositions, Commit}


def test_a_refused_confirming_commit_drops_the_lane() -> None:
    for outcome, rejoins in (
        (CommitOutcome.NOT_MEMBER, [Rejoin()]),
        (CommitOutcome.FENCED, []),
    ):
        desk = Desk()
        desk.accepts_commits = False
        desk.tell(Assigned())
        desk.tell(ClaimWritten(0))
        (commit,) = desk.tell(PositionsFetched((a_partition(),), 0, 0))
        assert isinstance(commit, Commit)

        said = desk.tell(CommitEnded(commit.commit, outcome))

        assert said == [DropLane(0), *rejoins]
        assert desk.lane.state is LaneState.OUT


def test_a_confirming_commit_in_a_rebalance_repeats_the_takeover_from_t3() -> None:
    desk = Desk()
    desk.accepts_commits = False
    desk.tell(Assigned())
    desk.tell(ClaimWritten(0))
    (commit,) = desk.tell(PositionsFetched((a_partition(),), 0, 0))
    assert isinstance(commit, Commit)

    desk.tell(CommitEnded(commit.commit, CommitOutcome.TRANSIENT))

    assert desk.let_pass(desk.limits.again_us) == [FetchPositions(0, None)]


def test_a_lane_without_models_is_confirmed_by_its_place_among_the_claims() -> None:
    desk = Desk(versions=())
    desk.take([], claim=6)

    (commit,) = desk.all(Commit)
    assert [(e.topic, e.partition) for e in commit.entries] == [(TOPICS.lanes, 0)]
    assert desk.lane.epoch == 7


def test_completions_are_read_from_the_oldest_c_of_a_partition_with_requests() -> None:
    desk = Desk()
    desk.completions_end = 50
    said = desk.take(
        [
            a_partition(committed=1, log_end=9, metadata=CommitMetadata(0, 30)),
            a_partition(
                priority=Priority.BULK,
                committed=4,
                log_end=4,
                metadata=CommitMetadata(0, 10),
            ),
        ]
    )

    assert found(said, ReadCompletions) == [ReadCompletions(0, 30)]
    assert found(said, ReadRequests)[0].positions == (
        (*a_source(0)[:2], 1),
        (*a_source(0, priority=Priority.BULK)[:2], 4),
    )


def test_c_below_the_completions_log_is_clamped() -> None:
    desk = Desk()
    desk.completions_end = 50
    partition = a_partition(committed=1, log_end=9, metadata=CommitMetadata(0, 3))

    said = desk.take([partition], completions_start=20)

    assert found(said, ReadCompletions) == [ReadCompletions(0, 20)]


def test_every_slot_is_asked_as_soon_as_the_lane_is_confirmed() -> None:
    desk = Desk(slots=3)

    syncs = found(desk.take(claim=2), WriteSync)

    assert [(s.slot, s.epoch, s.k) for s in syncs] == [(0, 3, 1), (1, 3, 1), (2, 3, 1)]


def test_nothing_is_dispatched_before_the_scan_has_ended() -> None:
    desk = Desk()
    desk.completions_end = 3
    partition = a_partition(committed=0, log_end=1, metadata=CommitMetadata(0, 0))
    desk.take([partition])
    desk.read(a_request(0))
    desk.let_pass(5 * SECOND)

    assert desk.lane.state is LaneState.SCANNING
    assert desk.all(WriteBatch) == []


def test_a_done_of_the_predecessor_settles_what_is_read_later() -> None:
    desk = Desk()
    desk.activate([a_partition(log_end=2)])
    desk.done_elsewhere(a_source(1))

    batches = batches_in(desk.read(a_request(0), a_request(1)))

    assert [r.id for b in batches for r in b.dispatch.requests] == ["r0"]


def test_the_census_waits_for_the_slots_that_are_heard() -> None:
    desk = Desk()
    desk.silent = {1}
    desk.take()
    desk.incarnations = {0: 0, 1: 0}

    assert desk.lane.state is LaneState.SCANNING
    desk.report(0)
    assert desk.lane.state is LaneState.ACTIVE


def test_the_census_waits_150_ms_at_most() -> None:
    desk = Desk()
    desk.take()

    desk.let_pass(desk.limits.census_us - MS)
    assert desk.lane.state is LaneState.SCANNING
    desk.let_pass(MS)
    assert desk.lane.state is LaneState.ACTIVE


def test_a_slot_that_reports_after_the_census_becomes_usable_then() -> None:
    desk = Desk(slots=1)
    desk.take()
    desk.let_pass(desk.limits.census_us)
    assert batches_in(desk.read(a_request(0))) == []

    desk.report(0)

    assert len(batches_in(desk.tick())) == 1


def test_a_predecessors_batch_is_adopted_with_the_members_that_are_queued() -> None:
    """§6.3 ◆: without it they would run twice, one time beside the other."""
    desk = Desk(slots=1)
    desk.take([a_partition(log_end=2)])
    desk.read(a_request(0), a_request(1))
    desk.report(0, held=[HeldBatch("theirs", (a_source(0),))])

    (batch,) = batches_in(desk.tick())
    assert [request.id for request in batch.dispatch.requests] == ["r1"]
    assert desk.scheduler.slots[0].held == ("theirs", batch.dispatch.batch)


def test_a_request_that_is_read_after_the_report_is_adopted_too() -> None:
    desk = Desk(slots=1)
    desk.take([a_partition(log_end=2)])
    desk.report(0, held=[HeldBatch("theirs", (a_source(0),))])

    batches = batches_in(desk.read(a_request(0), a_request(1)))

    assert [r.id for b in batches for r in b.dispatch.requests] == ["r1"]


def test_a_request_that_is_adopted_after_the_census_does_not_run_twice() -> None:
    desk = Desk(slots=1)
    desk.take([a_partition(log_end=2)])
    desk.let_pass(desk.limits.census_us)
    desk.read(a_request(0), a_request(1))

    desk.report(0, held=[HeldBatch("theirs", (a_source(0),))])

    assert list(desk.scheduler.queue) == [a_request(1).key]
    (batch,) = batches_in(desk.tick())
    assert [request.id for request in batch.dispatch.requests] == ["r1"]


def test_an_adopted_batch_has_a_lease() -> None:
    desk = Desk(slots=1, cap=1)
    desk.take([a_partition(log_end=1)])
    desk.read(a_request(0))
    desk.report(0, held=[HeldBatch("theirs", (a_source(0),))])
    lease_us = 3 * desk.limits.run_unknown_us + desk.limits.lease_slack_us

    assert found(desk.let_pass(lease_us - SECOND), WriteSync) == []
    assert len(found(desk.let_pass(SECOND), WriteSync)) == 1


def test_a_higher_claim_alone_never_stops_an_owner() -> None:
    """§6.2 ◆: anyone can claim; only the coordinator knows."""
    desk = Desk()
    desk.activate(claim=3)
    desk.accepts_commits = False

    said = desk.tell(ClaimSeen(9))
    (commit,) = found(said, Commit)
    desk.tell(CommitEnded(commit.commit, CommitOutcome.ACCEPTED))

    assert len(commit.entries) == len(Priority)
    assert desk.lane.state is LaneState.ACTIVE
    assert len(batches_in(desk.read(a_request(0)))) == 1


def test_a_higher_claim_and_a_refused_commit_drop_the_lane() -> None:
    desk = Desk()
    desk.activate()
    desk.accepts_commits = False

    (commit,) = found(desk.tell(ClaimSeen(9)), Commit)
    said = desk.tell(CommitEnded(commit.commit, CommitOutcome.NOT_MEMBER))

    assert said == [DropLane(0), Rejoin()]


def test_an_older_claim_is_no_reason_to_commit() -> None:
    desk = Desk()
    desk.activate(claim=3)

    assert desk.tell(ClaimSeen(2)) == []


def test_workers_that_remember_a_higher_epoch_raise_it_by_a_commit() -> None:
    desk = Desk()
    desk.activate(claim=0)
    desk.accepts_commits = False

    (commit,) = found(desk.complete(refused_epoch(7)), Commit)
    assert commit.wait
    assert all(";e=8;" in entry.metadata for entry in commit.entries)
    assert desk.read(a_request(0)) == []
    said = desk.tell(CommitEnded(commit.commit, CommitOutcome.ACCEPTED))

    assert [(s.slot, s.epoch, s.k) for s in found(said, WriteSync)] == [
        (0, 8, 2),
        (1, 8, 2),
    ]


def test_a_refused_epoch_of_before_the_raise_changes_nothing() -> None:
    desk = Desk()
    desk.activate(claim=0)
    desk.complete(refused_epoch(7))

    assert found(desk.complete(refused_epoch(7)), Commit) == []
    assert desk.lane.epoch == 8


def test_a_refused_epoch_and_a_refused_commit_drop_the_lane() -> None:
    desk = Desk()
    desk.activate()
    desk.accepts_commits = False

    (commit,) = found(desk.complete(refused_epoch(7)), Commit)

    assert DropLane(0) in desk.tell(
        CommitEnded(commit.commit, CommitOutcome.NOT_MEMBER)
    )


def test_an_epoch_refused_during_the_scan_starts_the_takeover_over() -> None:
    desk = Desk()
    desk.take(claim=0)

    said = desk.complete(refused_epoch(7))

    assert said == [StopReading(0), FetchPositions(0, None)]
    desk.tell(PositionsFetched((a_partition(),), 0, 1))
    desk.tell(PositionsFetched((), 0, 1))
    assert desk.lane.epoch == 8


def test_a_gap_during_the_scan_starts_the_takeover_over() -> None:
    desk = Desk()
    desk.take(claim=0)

    assert desk.tell(GapNoticed()) == [StopReading(0), FetchPositions(0, None)]


def test_completions_that_end_below_the_position_take_the_lane_anew() -> None:
    desk = Desk()
    desk.activate()
    desk.read(a_request(0))

    said = desk.tell(CompletionsLost(0, 0))

    assert found(said, StopReading) == [StopReading(0)]
    assert found(said, WriteClaim) == [WriteClaim(0)]
    assert desk.lane.state is LaneState.TAKING
    assert desk.scheduler.queue == {}


def test_completions_that_begin_above_the_position_are_read_from_there() -> None:
    desk = Desk()
    desk.activate()

    said = desk.tell(CompletionsLost(40, 90))

    assert found(said, ReadCompletions) == [ReadCompletions(0, 40)]
    assert desk.lane.state is LaneState.ACTIVE


def test_heartbeats_from_before_the_assignment_count() -> None:
    desk = Desk(slots=1)
    desk.tell(SlotHeard(0, 0, desk.now_us))
    desk.tell(StatusAdvanced(desk.now_us))
    desk.take()

    assert desk.lane.state is LaneState.SCANNING
    desk.complete(Joined(0, ""))
    desk.report(0)
    assert desk.lane.state is LaneState.ACTIVE
