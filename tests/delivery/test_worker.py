"""How a worker joins, and what it takes and refuses: W1 to W3."""

import pytest

from headrace.delivery.worker_decisions import (
    Alarm,
    Exit,
    Forget,
    Run,
    StartReading,
    WorkerExit,
    WriteDone,
    WriteJoin,
    WriteRefused,
    WriteReport,
)
from headrace.delivery.worker_events import (
    ModelsReady,
    Started,
    WriteEnded,
)
from tests.delivery.bench import JOIN, LANE, Bench
from tests.delivery.desk import found

# -- joining


def test_a_worker_reads_from_the_end_that_it_saw_before_it_joined() -> None:
    """W1 ◆: what lies before it was meant for another process, and is run elsewhere."""
    bench = Bench(joined=False)
    (join,) = bench.tell(Started(7))
    assert isinstance(join, WriteJoin)

    assert bench.tell(WriteEnded(join.write, JOIN)) == [StartReading(7)]
    assert bench.core.incarnation == JOIN


def test_a_batch_of_an_older_incarnation_is_never_run() -> None:
    """W1 ◆"""
    bench = Bench()

    said = bench.batch("b", incarnation=JOIN - 1)

    assert [r.reason for r in found(said, WriteRefused)] == ["incarnation"]
    assert found(said, Run) == []


def test_a_join_that_timed_out_is_written_again() -> None:
    bench = Bench(joined=False)
    (join,) = found(bench.tell(Started(7)), WriteJoin)

    (again,) = found(bench.tell(WriteEnded(join.write, None)), WriteJoin)
    assert again.write != join.write
    assert bench.tell(WriteEnded(again.write, 90)) == [StartReading(7)]


# -- taking and refusing


def test_a_batch_is_taken_and_run() -> None:
    assert Bench().batch("b") == [Run("b")]


def test_one_batch_runs_at_a_time_in_the_order_of_the_log() -> None:
    bench = Bench()
    bench.batch("first")
    assert bench.batch("second") == []

    said = bench.ran("first")

    assert found(said, Run) == [Run("second")]


def test_a_batch_of_a_higher_incarnation_ends_the_process() -> None:
    """W2: another process has the slot."""
    bench = Bench()

    assert bench.batch("b", incarnation=JOIN + 1) == [Exit(WorkerExit.REPLACED)]
    assert bench.batch("c") == []


def test_a_batch_of_a_superseded_former_is_refused() -> None:
    bench = Bench()
    bench.sync(epoch=5, former="f")

    for said, reason in (
        (bench.batch("b", lane=LANE + 1), "lane"),
        (bench.batch("b", epoch=4), "epoch"),
        (bench.batch("b", epoch=5, former="another"), "epoch"),
    ):
        (refused,) = found(said, WriteRefused)
        assert (refused.batch, refused.reason, refused.epoch_seen) == ("b", reason, 5)
        assert Forget("b") in said
        assert found(said, Run) == []


def test_a_batch_raises_the_epoch_that_is_seen() -> None:
    bench = Bench()
    bench.batch("b", epoch=9)

    assert [r.epoch_seen for r in found(bench.sync(epoch=8), WriteRefused)] == [9]


def test_a_batch_beyond_the_credit_is_refused_with_an_alarm() -> None:
    bench = Bench(cap=1)
    bench.batch("b")

    said = bench.batch("c")

    assert [r.reason for r in found(said, WriteRefused)] == ["cap"]
    assert len(found(said, Alarm)) == 1


def test_a_finished_batch_takes_no_room_before_its_done_is_acked() -> None:
    bench = Bench(cap=1)
    bench.batch("b")
    bench.ran("b")
    bench.replied("b")

    assert bench.batch("c") == [Run("c")]


def test_a_record_that_is_read_twice_is_taken_once() -> None:
    bench = Bench()
    bench.batch("b")

    assert bench.batch("b", again=True) == []
    assert bench.core.unfinished == ("b",)


@pytest.mark.parametrize(("lane", "epoch"), [(LANE, 1), (LANE + 1, 1), (LANE, 0)])
def test_a_copy_of_a_held_batch_neither_runs_nor_drops_it(
    lane: int, epoch: int
) -> None:
    bench = Bench()
    bench.batch("b")
    assert bench.batch("b", lane=lane, epoch=epoch) == []

    bench.ran("b")
    assert bench.batch("b", lane=lane, epoch=epoch) == []
    done = bench.replied("b")
    assert len(found(done, WriteDone)) == 1
    assert bench.batch("b", lane=lane, epoch=epoch) == []

    assert bench.acked(done) == [Forget("b")]
    assert bench.core.unfinished == ()


def test_a_copy_of_a_finished_batch_is_dropped() -> None:
    bench = Bench()
    for name in ("b", "c"):
        bench.batch(name)
        bench.ran(name)
        bench.acked(bench.replied(name))

    assert [bench.batch(name) for name in ("b", "c")] == [[Forget("b")], [Forget("c")]]
    assert bench.batch("d") == [Run("d")]


# -- syncs


def test_a_sync_is_answered_with_all_that_is_not_done() -> None:
    """W3"""
    bench = Bench()
    bench.tell(ModelsReady(frozenset({"m/1"})))
    bench.batch("running", former="f")
    bench.batch("waiting", former="f")

    (report,) = found(bench.sync(epoch=2, former="g", k=7), WriteReport)

    assert report == WriteReport(
        write=report.write,
        incarnation=JOIN,
        epoch=2,
        former="g",
        k=7,
        draining=False,
        models=frozenset({"m/1"}),
        held=("running", "waiting"),
    )


def test_batches_of_the_superseded_former_are_kept_and_run() -> None:
    bench = Bench()
    bench.batch("first")
    bench.batch("second")
    bench.sync(epoch=2, former="g")

    assert found(bench.ran("first"), Run) == [Run("second")]


def test_a_batch_is_held_until_its_done_is_acked() -> None:
    bench = Bench()
    bench.batch("b")
    bench.ran("b")
    done = bench.replied("b")
    assert [r.held for r in found(bench.sync(), WriteReport)] == [("b",)]

    assert bench.acked(done) == [Forget("b")]
    assert [r.held for r in found(bench.sync(k=2), WriteReport)] == [()]


def test_a_sync_of_a_lower_epoch_or_another_lane_is_refused() -> None:
    bench = Bench()
    bench.sync(epoch=5)

    for said, reason in (
        (bench.sync(epoch=4, k=3), "epoch"),
        (bench.sync(epoch=6, k=3, lane=0), "lane"),
    ):
        (refused,) = found(said, WriteRefused)
        assert (refused.batch, refused.k, refused.reason) == ("", 3, reason)
