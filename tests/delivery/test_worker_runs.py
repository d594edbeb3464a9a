"""How a worker runs, replies and leaves: W4 to W7, and the gap rule on its side."""

from headrace.delivery.worker_decisions import (
    Exit,
    Forget,
    ReadToEnd,
    Run,
    Terminate,
    WorkerDecision,
    WorkerExit,
    WriteDone,
    WriteLeave,
    WriteReplies,
    WriteReport,
)
from headrace.delivery.worker_events import (
    ALL_OK,
    CaughtUp,
    DrainRequested,
    GapNoticed,
    GiveUp,
    HeartbeatAcked,
    Outcome,
    PositionLost,
    RepliesEnded,
    ReplyStoring,
    Started,
    Ticked,
    WriteEnded,
)
from headrace.domain import MemberStatus
from tests.delivery.bench import JOIN, RETRY, Bench
from tests.delivery.builders import MS, SECOND
from tests.delivery.desk import found


def statuses(done: WriteDone) -> list[MemberStatus]:
    return [outcome.status for outcome in done.outcomes]


OK, UNACKED = MemberStatus.OK, MemberStatus.UNACKED


# -- replies and done


def test_done_waits_until_every_reply_is_acked() -> None:
    """W5 ◆: a done that is written first settles a request without an answer."""
    bench = Bench()
    bench.batch("b", members=3)

    assert bench.ran("b") == [WriteReplies("b", (0, 1, 2))]
    assert bench.replied("b", (0, 2)) == []
    (done,) = found(bench.replied("b", (1,)), WriteDone)

    assert done == WriteDone(done.write, JOIN, "b", ALL_OK)


def test_a_reply_that_failed_is_reported_unacked() -> None:
    """W5 ◆"""
    bench = Bench()
    bench.batch("b", members=2)
    bench.ran("b")
    bench.replied("b", (0,), acked=False)

    (done,) = found(bench.replied("b", (1,)), WriteDone)

    assert statuses(done) == [UNACKED, OK]


def test_a_reply_that_the_store_does_not_take_says_so() -> None:
    bench = Bench()
    bench.batch("b", members=3)
    bench.ran("b")
    bench.replied("b", (1,))
    bench.tell(ReplyStoring("b", 0, is_stored=False))
    bench.tell(ReplyStoring("b", 2, is_stored=False))
    bench.tell(RepliesEnded("b", (2,), acked=False, unstored="it is away"))

    (done,) = found(bench.let_pass(bench.limits.reply_wait_us), WriteDone)

    assert statuses(done) == [UNACKED, OK, UNACKED]
    assert [each.reason for each in done.outcomes] == [
        "store_unavailable",
        "",
        "store_unavailable",
    ]
    assert done.outcomes[2].text == "it is away"


def test_a_stored_reply_whose_record_is_not_acked_is_the_logs_to_blame() -> None:
    bench = Bench()
    bench.batch("b", members=1)
    bench.ran("b")
    for is_stored in (False, True):
        bench.tell(ReplyStoring("b", 0, is_stored=is_stored))

    (done,) = found(bench.let_pass(bench.limits.reply_wait_us), WriteDone)

    assert [each.reason for each in done.outcomes] == ["unacked"]


def test_a_reply_is_waited_for_500_ms() -> None:
    bench = Bench()
    bench.batch("b", members=2)
    bench.ran("b")
    bench.replied("b", (0,))

    assert bench.let_pass(bench.limits.reply_wait_us - 1) == []
    (done,) = found(bench.let_pass(1), WriteDone)
    assert statuses(done) == [OK, UNACKED]
    assert bench.replied("b", (1,)) == []


def test_bulk_results_are_waited_for_30_s() -> None:
    bench = Bench()
    bench.batch("b", bulk=True)
    bench.ran("b")

    assert bench.let_pass(bench.limits.result_wait_us - 1) == []
    assert len(found(bench.let_pass(1), WriteDone)) == 1


def test_a_batch_without_a_success_is_done_at_once() -> None:
    bench = Bench()
    bench.batch("b", members=2)

    (done,) = found(bench.ran("b", (RETRY,)), WriteDone)

    assert done == WriteDone(done.write, JOIN, "b", (RETRY,))


def test_successes_beside_a_failure_are_written() -> None:
    bench = Bench()
    bench.batch("b", members=3)
    final = Outcome(MemberStatus.FINAL, "poison", "no text")

    assert bench.ran("b", (ALL_OK[0], final, ALL_OK[0])) == [WriteReplies("b", (0, 2))]
    (done,) = found(bench.replied("b", (0, 2)), WriteDone)
    assert statuses(done) == [OK, MemberStatus.FINAL, OK]


def test_a_done_that_timed_out_is_written_again() -> None:
    bench = Bench()
    bench.batch("b")
    (done,) = found(bench.ran("b", (RETRY,)), WriteDone)

    (again,) = found(bench.tell(WriteEnded(done.write, None)), WriteDone)

    assert again.write != done.write
    assert again.outcomes == done.outcomes
    assert bench.tell(WriteEnded(again.write, 9)) == [Forget("b")]


def test_a_done_unacked_for_a_minute_on_a_live_bus_ends_the_process() -> None:
    bench = Bench()
    bench.batch("b")
    bench.ran("b", (RETRY,))
    bench.now_us += bench.limits.done_unacked_us
    assert bench.tell(Ticked()) == []

    assert bench.tell(HeartbeatAcked()) == [Exit(WorkerExit.DONE_UNACKED)]


# -- runs


def test_a_batch_past_its_latest_start_is_not_run() -> None:
    """W4"""
    bench = Bench()
    bench.batch("first")
    bench.batch("late", members=2, latest_start_us=bench.now_us + MS)
    bench.now_us += MS + 1

    said = bench.ran("first")

    (done,) = found(said, WriteDone)
    assert done.batch == "late"
    assert [(o.status, o.reason) for o in done.outcomes] == [
        (MemberStatus.RETRY, "late")
    ]
    assert found(said, Run) == []


def test_a_run_past_its_limit_is_stopped_and_the_process_ends() -> None:
    bench = Bench()
    bench.batch("b")

    assert bench.let_pass(bench.limits.run_min_us - 1) == []
    assert bench.let_pass(1) == [Terminate("b", is_over=True)]
    (done,) = bench.ran("b", (RETRY,))
    assert isinstance(done, WriteDone)
    assert ends_by(bench) == [Exit(WorkerExit.RUN_LIMIT)]


def test_a_run_that_cannot_be_stopped_is_handed_back_before_the_process_ends() -> None:
    bench = Bench()
    bench.sync()
    bench.batch("b", members=2)
    bench.batch("waiting")
    said = bench.let_pass(bench.limits.run_min_us)
    assert handed_back(said) == {"waiting": "handed_back"}
    assert found(said, WriteReport)[0].draining  # that nothing more is sent
    bench.acked(found(said, WriteReport))
    bench.acked(found(said, WriteDone))
    assert handed_back(bench.batch("on its way")) == {"on its way": "handed_back"}

    said = bench.let_pass(bench.limits.run_end_wait_us)

    assert handed_back(said) == {"b": "run_limit"}
    assert bench.ran("b") == []  # too late
    assert ends_by(bench) == [Exit(WorkerExit.RUN_LIMIT)]


def test_the_process_ends_when_nothing_can_be_handed_back() -> None:
    bench = Bench()
    bench.batch("b")
    bench.let_pass(bench.limits.run_min_us)
    bench.let_pass(bench.limits.run_end_wait_us)

    assert bench.let_pass(bench.limits.hand_back_wait_us - 1) == []
    assert bench.let_pass(1) == [Exit(WorkerExit.RUN_LIMIT)]


def test_a_worker_that_gives_up_answers_its_run_and_hands_back_the_rest() -> None:
    bench = Bench()
    bench.batch("b")
    bench.batch("waiting")

    said = bench.tell(GiveUp(WorkerExit.DEVICE_LOST))
    assert handed_back(said) == {"waiting": "handed_back"}
    said = bench.ran("b", (Outcome(MemberStatus.RETRY, "device"),))

    assert handed_back(said) == {"b": "device"}
    assert ends_by(bench) == [Exit(WorkerExit.DEVICE_LOST)]


def ends_by(bench: Bench) -> list[WorkerDecision]:
    """What the core says when all that it wrote is acked, its leave last."""
    for done in bench.said_of(WriteDone):
        bench.tell(WriteEnded(done.write, 9))
    bench.let_pass(bench.limits.leave_quiet_us)
    return bench.acked(bench.said_of(WriteLeave))


def handed_back(decisions: list[WorkerDecision]) -> dict[str, str]:
    """The batches whose done is written, with the reason."""
    return {done.batch: done.outcomes[0].reason for done in found(decisions, WriteDone)}


def test_the_run_limit_grows_with_the_runs_of_that_size() -> None:
    bench = Bench()
    for name, members, run_us in (("a", 1, 3 * SECOND), ("b", 2, MS), ("c", 1, MS)):
        bench.batch(name, members=members)
        bench.ran(name, (RETRY,), run_us=run_us)

    bench.batch("d", members=1)
    assert bench.core.run_limit_at_us == bench.now_us + 30 * SECOND
    bench.ran("d", (RETRY,))
    bench.batch("e", members=2)
    assert bench.core.run_limit_at_us == bench.now_us + bench.limits.run_min_us


def test_a_gap_is_followed_by_reading_to_the_end_before_the_next_run() -> None:
    """D5: a successor may lie there."""
    bench = Bench()
    bench.batch("b")
    bench.batch("c")

    assert bench.tell(GapNoticed()) == [ReadToEnd()]
    assert found(bench.ran("b"), Run) == []
    assert bench.tell(CaughtUp()) == [Run("c")]


def test_a_gap_during_catching_up_is_followed_by_another_read() -> None:
    bench = Bench()
    bench.tell(GapNoticed())
    bench.tell(GapNoticed())
    bench.batch("b")

    assert bench.tell(CaughtUp()) == []
    assert bench.tell(CaughtUp()) == [Run("b")]


# -- leaving


def test_a_draining_worker_finishes_says_so_and_leaves() -> None:
    """W7"""
    bench = Bench()
    bench.sync(k=4)
    bench.batch("b")

    (report,) = found(bench.tell(DrainRequested()), WriteReport)
    assert (report.draining, report.k, report.held) == (True, 4, ("b",))
    bench.tell(WriteEnded(report.write, 9))
    assert bench.let_pass(SECOND) == []
    bench.acked(bench.ran("b", (RETRY,)))
    (leave,) = found(bench.said, WriteLeave)

    assert bench.tell(WriteEnded(leave.write, 9)) == [Exit(WorkerExit.DRAINED)]


def test_a_draining_worker_waits_for_what_is_on_its_way() -> None:
    bench = Bench()
    bench.sync()
    (report,) = found(bench.tell(DrainRequested()), WriteReport)
    bench.tell(WriteEnded(report.write, 9))
    bench.let_pass(bench.limits.leave_quiet_us - 1)

    assert bench.batch("b") == [Run("b")]
    bench.acked(bench.ran("b", (RETRY,)))
    assert found(bench.let_pass(bench.limits.leave_quiet_us), WriteLeave) != []


def test_a_worker_that_nobody_asked_leaves_at_once() -> None:
    bench = Bench()

    assert len(found(bench.tell(DrainRequested()), WriteLeave)) == 1


def test_a_worker_that_has_not_joined_just_ends() -> None:
    bench = Bench(joined=False)
    bench.tell(Started(0))

    assert bench.tell(DrainRequested()) == [Exit(WorkerExit.DRAINED)]


def test_a_leave_that_timed_out_is_written_again_and_nothing_taken_meanwhile() -> None:
    bench = Bench()
    (leave,) = found(bench.tell(DrainRequested()), WriteLeave)
    assert bench.batch("b") == []

    (again,) = found(bench.tell(WriteEnded(leave.write, None)), WriteLeave)
    assert bench.tell(WriteEnded(again.write, 9)) == [Exit(WorkerExit.DRAINED)]


def test_a_lost_position_ends_the_process() -> None:
    """§10: its batches are run elsewhere."""
    assert Bench().tell(PositionLost()) == [Exit(WorkerExit.POSITION_LOST)]
