"""What survives the end of a former, by whatever means it ends."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from headrace.lifecycle import ExitCode
from tests.freezing import freeze
from tests.services.batch_former.hands import Former, Worker
from tests.services.batch_former.pool import WAIT_S, Pool, until

pytestmark = pytest.mark.kafka

StartFormer = Callable[..., Former]
StartWorker = Callable[..., Worker]

OFFLINE_S = 1.5
"""Longer than the gap rule's limit, shorter than the session."""


def test_a_killed_former_goes_on_where_it_was(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    # Leases that outlast the waits of this test where much else runs.
    served = pool.announce(0, run_us=400_000)
    worker = start_worker(pool)
    first = start_former(pool)
    sent = pool.requests(100, served, timeout_s=120.0)
    done = worker.next_batch()
    worker.finish(done)
    flying = [worker.next_batch(), worker.next_batch()]
    until("a commit", lambda: pool.depth().committed)

    killed = time.monotonic()
    first.kill()
    second = start_former(pool)
    worker.ready()
    second.heard("lane.active")
    back = time.monotonic()

    assert worker.gets_nothing(0.5), "it holds as much as it may"
    for batch in flying:
        worker.finish(batch)
    batches = [done, *flying, *worker.serve(100 - 3 * served.max_batch)]
    run = [each for batch in batches for each in batch.ids]
    assert sorted(run) == sorted(sent)
    until("all is committed", lambda: pool.depth().committed == 100)
    assert back - killed < 20.0 + start_time(second), "ten times what is promised"


def start_time(former: Former) -> float:
    """Seconds that the interpreter and its imports took before anything else."""
    return max(former.admin_heard - former.started, 0.0)


def test_two_formers_share_the_lanes_and_one_takes_over_from_the_other(
    kafka: str, prefix: str, start_former: StartFormer, start_worker: StartWorker
) -> None:
    pool = Pool(kafka, prefix, lanes=2)
    served = pool.announce(0, 1)
    workers = [start_worker(pool, 0), start_worker(pool, 1)]
    first = start_former(pool, 0)
    first.heard("lane.active", lane=0)
    first.heard("lane.active", lane=1)

    second = start_former(pool, 1)
    moved = first.heard("lane.revoked")["lane"]
    second.heard("lane.active", lane=moved)
    sent = [pool.requests(20, served, lane=lane) for lane in (0, 1)]
    ran = [worker.serve(20) for worker in workers]
    second.kill()
    first.heard("lane.active", lane=moved, epoch=newest_epoch(first, moved))
    sent[1] += pool.requests(20, served, lane=1)
    ran[1] += workers[1].serve(20)

    for lane in (0, 1):
        ids = [each for batch in ran[lane] for each in batch.ids]
        assert sorted(ids) == sorted(sent[lane])
    until("lane 1 is committed", lambda: pool.depth(lane=1).committed == 40)


def newest_epoch(former: Former, lane: object) -> object:
    """The epoch of the lane's second time with this former."""

    def look() -> list[dict[str, object]] | None:
        active = [
            event
            for event in list(former.events)
            if event["event"] == "lane.active" and event["lane"] == lane
        ]
        return active if len(active) > 1 else None

    return until(f"lane {lane} is active again", look)[-1]["epoch"]


def test_a_former_that_stood_still_looks_before_it_acts(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    served = pool.announce(0)
    worker = start_worker(pool)
    former = start_former(pool)
    former.heard("lane.active")

    freeze(former.process.pid)
    time.sleep(OFFLINE_S)
    sent = pool.requests(10, served)
    former.signal(signal.SIGCONT)
    batches = worker.serve(10)

    former.heard("loop.paused")
    assert sorted(each for batch in batches for each in batch.ids) == sorted(sent)
    until("all is committed", lambda: pool.depth().committed == 10)


def test_a_former_frozen_beyond_its_session_loses_the_lane_and_nothing_else(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    served = pool.announce(0)
    worker = start_worker(pool)
    former = start_former(pool)
    sent = pool.requests(10, served, timeout_s=120.0)
    flying = worker.next_batch()

    freeze(former.process.pid)
    assert pool.members() != []
    until("its session is over", lambda: not pool.members())
    former.signal(signal.SIGCONT)
    former.heard("lane.lost")
    worker.ready()
    worker.finish(flying)
    batches = [flying, *worker.serve(10 - len(flying.ids))]

    assert sorted(each for batch in batches for each in batch.ids) == sorted(sent)
    until("all is committed", lambda: pool.depth().committed == 10)


def test_of_two_processes_with_one_name_the_older_ends(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    served = pool.announce(0)
    worker = start_worker(pool)
    older = start_former(pool)
    older.heard("lane.active")

    younger = start_former(pool)
    younger.heard("lane.active")

    assert older.wait(WAIT_S) == ExitCode.FENCED
    pool.requests(3, served)
    worker.serve(3)
    until("all is committed", lambda: pool.depth().committed == 3)


def test_a_former_that_is_fenced_and_has_no_twin_joins_again(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    served = pool.announce(0)
    worker = start_worker(pool)
    former = start_former(pool)
    first = former.heard("lane.active")["epoch"]
    sent = pool.requests(10, served, timeout_s=120.0)
    flying = worker.next_batch()

    pool.usurp(slot=0)
    former.heard("group.fenced")
    worker.ready()
    worker.finish(flying)
    batches = [flying, *worker.serve(10 - len(flying.ids))]

    assert sorted(each for batch in batches for each in batch.ids) == sorted(sent)
    until("all is committed", lambda: pool.depth().committed == 10)
    assert newest_epoch(former, 0) != first


def test_what_a_dead_worker_held_runs_elsewhere(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    served = pool.announce(0, 1)
    dead, alive = start_worker(pool, 0), start_worker(pool, 1)
    former = start_former(pool)
    former.heard("lane.active")
    sent = pool.requests(8, served, timeout_s=60.0)
    lost = dead.next_batch()
    alive.ready()

    dead.crash()
    batches = alive.serve(8)

    assert lost.ids
    assert sorted({each for batch in batches for each in batch.ids}) == sorted(sent)
    assert max(max(batch.attempts) for batch in batches) == 2
    until("all is committed", lambda: pool.depth().committed == 8)


def test_a_worker_that_falls_silent_is_missed_also_when_it_was_the_last(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    served = pool.announce(0)
    former = start_former(pool)
    former.heard("lane.active")
    sent = pool.requests(4, served, timeout_s=60.0)
    dead = start_worker(pool)
    lost = dead.next_batch()

    dead.crash()
    former.heard("slot.silent", slot=0)
    batches = start_worker(pool, previous_exit="signal:SIGKILL").serve(4)

    assert lost.ids
    assert sorted(each for batch in batches for each in batch.ids) == sorted(sent)
    until("all is committed", lambda: pool.depth().committed == 4)
