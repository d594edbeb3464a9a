"""When a run is stopped for its members' sake, and when it is not."""

import pytest

from headrace.delivery.worker_decisions import (
    Exit,
    Run,
    Terminate,
    WorkerExit,
    WriteDone,
)
from headrace.delivery.worker_events import CaughtUp, GapNoticed, Outcome
from headrace.domain import MemberStatus, Setback
from tests.delivery.bench import Bench
from tests.delivery.builders import MS, SECOND
from tests.delivery.desk import found

RUN_US = 10 * MS
LEFT_US = 5 * SECOND
PATIENCE_US = 2 * SECOND
"""Two fifths of what is left, which is more than ten times the longest."""
CUT = (Outcome(MemberStatus.RETRY, Setback.RUN_LIMIT, "it was stopped"),)
RETRY = (Outcome(MemberStatus.RETRY, Setback.MODEL_ERROR, "it raised"),)


def a_bench(runs: int = 4, run_us: int = RUN_US) -> Bench:
    """A worker in which so many runs of the version have ended."""
    bench = Bench()
    for number in range(runs):
        bench.batch(f"before {number}")
        bench.ran(f"before {number}", RETRY, run_us)
        (done,) = [d for d in bench.said_of(WriteDone) if d.batch == f"before {number}"]
        bench.acked([done])
    return bench


def send(bench: Bench, name: str = "b", members: int = 4) -> None:
    """A batch whose members have 5 s left."""
    latest_us = bench.now_us + LEFT_US - RUN_US
    said = bench.batch(
        name, members=members, latest_start_us=latest_us, predicted_us=RUN_US
    )
    assert Run(name) in said


def stop(bench: Bench, name: str = "b") -> WriteDone:
    """It ran until now, and ends because it was told to."""
    said = bench.ran(name, CUT, run_us=PATIENCE_US)
    (done,) = found(said, WriteDone)
    bench.acked([done])
    return done


def test_a_batch_that_takes_most_of_its_members_time_is_stopped_for_them() -> None:
    bench = a_bench()
    send(bench)
    bench.batch("behind")

    assert bench.let_pass(PATIENCE_US - 1) == []
    assert bench.let_pass(1) == [Terminate("b", is_over=False)]
    said = bench.ran("b", CUT, run_us=PATIENCE_US)

    (done,) = found(said, WriteDone)
    (outcome,) = done.outcomes
    assert (outcome.status, outcome.reason) == (MemberStatus.RETRY, Setback.STOPPED)
    assert outcome.text == "its run was stopped after 2000 ms, where 10 were expected"
    assert Run("behind") in said  # the process goes on


@pytest.mark.parametrize("run_us", [RUN_US, 250 * MS])
def test_ten_times_the_longest_of_late_is_no_reason_to_stop(run_us: int) -> None:
    """Nor is what is still less than two fifths of the time left."""
    bench = a_bench(run_us=run_us)
    send(bench)

    assert bench.let_pass(max(10 * run_us, PATIENCE_US) - 1) == []
    (said,) = bench.let_pass(1)
    assert said == Terminate("b", is_over=False)


def test_what_was_expected_to_take_long_is_not_stopped() -> None:
    bench = a_bench()
    latest_us = bench.now_us + LEFT_US
    bench.batch("b", members=4, latest_start_us=latest_us, predicted_us=SECOND)

    assert bench.let_pass(10 * SECOND - 1) == []


def test_the_first_runs_of_a_version_may_take_as_long_as_they_like() -> None:
    bench = a_bench(runs=3)
    send(bench)

    assert bench.let_pass(bench.limits.run_min_us - 1) == []


def test_one_member_has_all_the_time_that_is_left_to_it() -> None:
    """Whoever waits behind it waits for no longer than it may be of use."""
    bench = a_bench()
    send(bench, members=1)

    assert bench.let_pass(LEFT_US - 1) == []
    assert bench.let_pass(1) == [Terminate("b", is_over=False)]


def test_bulk_alone_may_run_to_its_limit() -> None:
    bench = a_bench()
    bench.batch("b", members=4, bulk=True)

    assert bench.let_pass(bench.limits.run_min_us - 1) == []


def test_with_bulk_on_board_five_seconds_are_taken_to_be_left() -> None:
    """Bulk is never too late, so that the batch does not say when the others are."""
    bench = a_bench()
    bench.batch("b", members=4, predicted_us=RUN_US)

    assert bench.let_pass(PATIENCE_US - 1) == []
    assert bench.let_pass(1) == [Terminate("b", is_over=False)]


def test_after_a_stop_little_time_finds_out_whose_fault_it_was() -> None:
    bench = a_bench()
    send(bench)
    bench.let_pass(PATIENCE_US)
    stop(bench)
    for name in ("half", "quarter"):
        bench.batch(name, members=2, latest_start_us=bench.now_us + 2 * SECOND)
        assert bench.let_pass(bench.limits.patience_min_us - 1) == []
        assert bench.let_pass(1) == [Terminate(name, is_over=False)]
        stop(bench, name)

    # Alone, it gets two fifths of what is left.
    bench.batch("one", latest_start_us=bench.now_us + 2 * SECOND - MS)
    assert bench.let_pass(800 * MS - 1) == []
    assert bench.let_pass(1) == [Terminate("one", is_over=False)]


def test_doubt_ends_with_the_time_of_those_who_were_on_board() -> None:
    bench = a_bench()
    send(bench)
    bench.let_pass(PATIENCE_US)
    stop(bench)
    bench.let_pass(LEFT_US - PATIENCE_US)
    send(bench, "later")

    assert bench.let_pass(PATIENCE_US - 1) == []


def test_halves_may_take_three_times_the_longest_of_late() -> None:
    bench = a_bench(run_us=100 * MS)
    send(bench)
    bench.let_pass(PATIENCE_US)
    stop(bench)
    bench.batch("half", members=2, latest_start_us=bench.now_us + SECOND)

    assert bench.let_pass(300 * MS - 1) == []
    assert bench.let_pass(1) == [Terminate("half", is_over=False)]


def test_how_long_a_stopped_run_took_is_no_measure() -> None:
    bench = a_bench()
    send(bench)
    bench.let_pass(PATIENCE_US)
    stop(bench)
    bench.batch("half", members=2, latest_start_us=bench.now_us + SECOND)

    assert bench.let_pass(250 * MS) == [Terminate("half", is_over=False)]


def test_who_ends_by_itself_when_it_is_to_stop_has_ended() -> None:
    bench = a_bench()
    send(bench)
    bench.let_pass(PATIENCE_US)

    (done,) = found(bench.ran("b", RETRY, run_us=PATIENCE_US), WriteDone)

    assert done.outcomes == RETRY
    bench.acked([done])
    bench.batch("next", members=2, latest_start_us=bench.now_us + LEFT_US - MS)
    assert bench.let_pass(10 * SECOND - 1) == []  # nothing is in doubt


def test_a_pause_of_the_process_is_not_the_runs() -> None:
    bench = a_bench()
    send(bench)
    bench.now_us += PATIENCE_US
    bench.tell(GapNoticed())
    bench.tell(CaughtUp())

    # Of the three seconds left.
    assert bench.let_pass(1200 * MS - 1) == []
    assert bench.let_pass(1) == [Terminate("b", is_over=False)]


def test_who_does_not_stop_is_asked_again_and_ends_the_process_at_its_limit() -> None:
    bench = a_bench()
    send(bench)
    bench.let_pass(PATIENCE_US)
    said = bench.let_pass(SECOND)
    assert said == [Terminate("b", is_over=False)] * 4

    said = bench.let_pass(bench.limits.run_min_us - PATIENCE_US - SECOND)
    assert Terminate("b", is_over=True) in said
    said = bench.let_pass(bench.limits.run_end_wait_us)
    (done,) = found(said, WriteDone)
    assert done.outcomes[0].reason == Setback.RUN_LIMIT
    said = bench.let_pass(bench.limits.hand_back_wait_us)
    assert said == [Exit(WorkerExit.RUN_LIMIT)]


def test_who_stops_no_sooner_than_at_its_limit_has_lost_its_worker() -> None:
    bench = a_bench()
    send(bench)
    bench.let_pass(bench.limits.run_min_us)

    (done,) = found(bench.ran("b", CUT, run_us=10 * SECOND), WriteDone)

    assert done.outcomes == CUT
