"""A worker whose runs fail: what it says, what it does about it, and how it ends."""

from __future__ import annotations

import time

import numpy as np
import pytest

from headrace.delivery import WorkerLimits
from headrace.domain import (
    Done,
    Left,
    MemberStatus,
    ModelState,
    Request,
    ServedVersion,
    Setback,
)
from tests.models import graphs
from tests.models.folders import put_simulated, put_version
from tests.services.gpu_worker.pool import WAIT_S, Pool

pytestmark = pytest.mark.kafka

DEVICE, STALLED = 75, 74


def rows(pool: Pool, served: ServedVersion, count: int) -> list[Request]:
    value = np.zeros((1, 4), np.float32).tobytes()
    return [pool.request(served, [((1, 4), value)]) for _ in range(count)]


def told(done: Done) -> set[tuple[MemberStatus, str]]:
    return {(member.status, member.reason) for member in done.members}


OOM = {(MemberStatus.RETRY, Setback.OOM)}
OK = {(MemberStatus.OK, "")}


def test_out_of_memory_is_announced_and_smaller_batches_run(pool: Pool) -> None:
    put_simulated(pool.models, "tight", "1", alpha_ms=1, memory_left_rows=8)
    pool.start()
    served = pool.served("tight")

    assert told(pool.done(pool.send(served, rows(pool, served, 32)))) == OOM
    pool.until(lambda: pool.known("tight").rows_fit == {0: 16})
    assert told(pool.done(pool.send(served, rows(pool, served, 16)))) == OOM
    pool.until(lambda: pool.known("tight").rows_fit == {0: 8})
    assert told(pool.done(pool.send(served, rows(pool, served, 8)))) == OK
    assert "rebuild_session" in pool.worker_log()


def test_a_limit_of_memory_is_tried_again_after_a_while(pool: Pool) -> None:
    put_simulated(pool.models, "tight", "1", alpha_ms=1, memory_left_rows=8)
    pool.start(runs__memory_kept_us="300000")
    served = pool.served("tight")
    pool.done(pool.send(served, rows(pool, served, 32)))

    def said() -> list[int | None]:
        return [one.rows_fit for one in pool.announced("tight") if one]

    pool.until(lambda: 16 in said())
    pool.until(lambda: said()[-1] is None)
    assert pool.known("tight").rows_fit == {}


def test_when_nothing_helps_the_work_is_handed_back_and_the_process_ends(
    pool: Pool,
) -> None:
    put_simulated(pool.models, "tight", "1", alpha_ms=50, memory_left_rows=0)
    worker = pool.start()
    served = pool.served("tight")
    pool.sync(1)
    for count in (32, 16, 8, 4, 2):
        pool.done(pool.send(served, rows(pool, served, count)))

    with pool.still(worker):
        last = pool.send(served, rows(pool, served, 1))
        behind = pool.send(served, rows(pool, served, 1))

    assert told(pool.done(last)) == OOM
    handed_back = {(MemberStatus.RETRY, Setback.HANDED_BACK)}
    assert told(pool.done(behind)) == handed_back
    assert worker.wait(WAIT_S) == DEVICE
    pool.until(lambda: any(isinstance(each, Left) for each in pool.completed()))


def test_rows_that_take_more_than_there_is_end_no_process(pool: Pool) -> None:
    put_version(pool.models, "alloc", "1", graphs.alloc(), "max_batch = 1")
    worker = pool.start()
    served = pool.served("alloc")

    def run(megabytes: int) -> set[tuple[MemberStatus, str]]:
        sizes = np.array([megabytes, 1 << 18], np.int64).tobytes()
        return told(
            pool.done(pool.send(served, [pool.request(served, [((2,), sizes)])]))
        )

    # One more than the remedies.
    assert [run(1 << 40) for _ in range(4)] == [OOM] * 4
    assert run(1) == OK
    assert worker.poll() is None
    assert pool.announced("alloc")[-1].rows_fit is None


def test_a_run_past_its_limit_is_handed_back_and_the_process_ends(pool: Pool) -> None:
    put_simulated(pool.models, "stuck", "1", alpha_ms=60_000)
    worker = pool.start(runs__run_min_us="300000")
    served = pool.served("stuck")
    pool.sync(1)
    with pool.still(worker):
        running = pool.send(served, rows(pool, served, 2))
        behind = pool.send(served, rows(pool, served, 1))

    stopped = pool.done(running)
    assert told(stopped) == {(MemberStatus.RETRY, Setback.RUN_LIMIT)}
    assert told(pool.done(behind)) == {(MemberStatus.RETRY, Setback.HANDED_BACK)}
    assert worker.wait(WAIT_S) == STALLED
    assert 200_000 <= stopped.run_us < 30_000_000  # the run alone takes 60 s
    assert WorkerLimits().run_min_us == 10_000_000  # documented, and far from this


def test_a_run_that_will_not_stop_is_handed_back_and_the_process_ends(
    pool: Pool,
) -> None:
    put_version(pool.models, "stone", "1", graphs.unstoppable(), "max_batch = 1")
    worker = pool.start(runs__run_min_us="200000", runs__run_end_wait_us="300000")
    served = pool.served("stone")
    boxes = np.arange(120_000, dtype=np.float32)[:, None] * 2 + np.float32([0, 0, 1, 1])
    began = time.monotonic()

    batch = pool.send(served, [pool.request(served, [(boxes.shape, boxes.tobytes())])])

    assert told(pool.done(batch)) == {(MemberStatus.RETRY, Setback.RUN_LIMIT)}
    assert worker.wait(WAIT_S) == STALLED
    assert time.monotonic() - began < 10  # the run alone takes 14 s, or longer


def whole(pool: Pool, served: ServedVersion, number: int) -> Request:
    value = np.array([[number]], np.int64).tobytes()
    return pool.request(served, [((1, 1), value)])


def test_a_version_whose_runs_fail_is_spared_and_tried_again(pool: Pool) -> None:
    put_version(pool.models, "moody", "1", graphs.raising(least=5))
    put_version(pool.models, "good", "1", graphs.raising())
    put_version(pool.models, "hanging", "1", graphs.hanging())
    worker = pool.start(
        runs__breaker_failures="2",
        runs__breaker_us="500000",
        runs__patience_runs="2",
        runs__patience_percent="8",
    )
    served = pool.served("moody")

    def run(
        number: int, served: ServedVersion = served
    ) -> set[tuple[MemberStatus, str]]:
        return told(pool.done(pool.send(served, [whole(pool, served, number)])))

    failed = {(MemberStatus.RETRY, Setback.MODEL_ERROR)}
    assert run(-9) == failed
    assert pool.announced("moody")[-1].state is ModelState.READY
    assert run(-9) == failed
    said = pool.wait_said(ModelState.FAILING, "moody", 1)
    assert said.reason.startswith("2 runs in a row failed, the last one so: ")

    said = pool.wait_said(ModelState.READY, "moody", 2)
    assert (said.rows_fit, said.reason) == (1, "")
    assert run(-9) == failed  # one try is enough to spare it again
    pool.wait_said(ModelState.FAILING, "moody", 2)
    pool.wait_said(ModelState.READY, "moody", 3)
    assert run(5) == OK
    pool.until(lambda: pool.announced("moody")[-1].rows_fit is None)

    # Of the other one a row of the worker's own runs: it is the senders' that fail.
    good = pool.served("good")
    said_before = len(pool.announced("good"))
    assert [run(-9, good) for _ in range(5)] == [failed] * 5
    assert run(0, good) == OK
    assert len(pool.announced("good")) == said_before

    # A row that hangs is stopped for its neighbours, and costs no process.
    hanging = pool.served("hanging")
    assert [run(1, hanging) for _ in range(2)] == [OK] * 2
    hung = [whole(pool, hanging, number) for number in (1, 10**12)]
    stopped = pool.done(pool.send(hanging, hung))
    assert told(stopped) == {(MemberStatus.RETRY, Setback.STOPPED)}
    assert stopped.measured_us is None
    assert run(1, hanging) == OK
    assert pool.announced("hanging")[-1].state is ModelState.READY
    assert worker.poll() is None
