"""The worker as a process: joining, ending, and what it says of itself."""

from __future__ import annotations

import signal
import urllib.request

import numpy as np
import pytest

from headrace.domain import (
    Joined,
    Left,
    MemberStatus,
    Refused,
    Reported,
    ServedVersion,
)
from headrace.runtime import DeviceSettings, Provider, open_device
from headrace.wire import Heartbeat, ServiceState, Sync, decode_json, encode_sync
from tests.freezing import freeze
from tests.models.folders import put_simulated
from tests.services.gpu_worker.pool import FORMER, WAIT_S, Log, Pool

pytestmark = pytest.mark.kafka


def a_row(pool: Pool, served: ServedVersion):
    return pool.request(served, [((1, 4), np.ones(4, np.float32).tobytes())])


def test_sigterm_finishes_what_is_held_and_leaves(pool: Pool) -> None:
    put_simulated(pool.models, "sim", "1", alpha_ms=400)
    worker = pool.start()
    served = pool.served("sim")
    pool.sync(1)
    batches = [pool.send(served, [a_row(pool, served)]) for _ in range(2)]
    pool.sync(2)

    assert pool.end(worker, signal.SIGTERM) == 0

    done = [pool.done(batch) for batch in batches]
    assert [each.members[0].status for each in done] == [MemberStatus.OK] * 2
    assert isinstance(pool.completed()[-1], Left)
    drained = [
        each
        for each in pool.completed()
        if isinstance(each, Reported) and each.draining
    ]
    assert drained


def test_a_worker_that_is_replaced_ends_with_its_code(pool: Pool) -> None:
    put_simulated(pool.models, "sim", "1")
    first = pool.start()
    served = pool.served("sim")
    second = pool.start()

    batch = pool.send(served, [a_row(pool, served)])

    assert first.wait(WAIT_S) == 77
    assert pool.done(batch).incarnation == pool.incarnations[0]
    assert second.poll() is None


def test_orders_from_before_the_join_are_never_run(pool: Pool) -> None:
    put_simulated(pool.models, "sim", "1")
    worker = pool.start()
    served = pool.served("sim")
    assert pool.end(worker, signal.SIGKILL) == -9
    old = pool.send(served, [a_row(pool, served)])

    pool.start(worker__previous_exit="signal:KILL")
    new = pool.send(served, [a_row(pool, served)])
    pool.done(new)

    joins = [each for each in pool.completed() if isinstance(each, Joined)]
    assert [join.previous_exit for join in joins] == ["", "signal:KILL"]
    assert old not in {getattr(each, "batch", None) for each in pool.completed()}


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"epoch": 4}, "epoch"),
        ({"epoch": 5, "former": "e" * 32}, "epoch"),
        ({"epoch": 5, "incarnation": 0}, "incarnation"),
        ({"epoch": 5, "lane": 3}, "lane"),
    ],
)
def test_an_order_that_is_not_for_it_is_refused_unread(
    pool: Pool, how: dict, reason: str
) -> None:
    put_simulated(pool.models, "sim", "1")
    # The first incarnation of a topic is offset 0, below which there is none.
    pool.end(pool.start(), signal.SIGKILL)
    pool.start()
    served = pool.served("sim")
    pool.sync(1, epoch=5)

    batch = pool.send(served, [a_row(pool, served)], **how)

    def refused() -> Refused | None:
        found = [each for each in pool.completed() if isinstance(each, Refused)]
        return found[0] if found else None

    said = pool.until(refused)
    assert (said.batch, said.reason, said.epoch_seen) == (batch, reason, 5)
    assert pool.replies.records == []


def test_an_undecodable_order_is_skipped(pool: Pool) -> None:
    put_simulated(pool.models, "sim", "1")
    pool.start()
    served = pool.served("sim")

    pool.write(0, b"\xff" * 100)
    done = pool.done(pool.send(served, [a_row(pool, served)]))

    assert done.members[0].status is MemberStatus.OK
    assert "record.undecodable" in pool.worker_log()


def test_heartbeats_say_who_lives_and_what_it_can_run(pool: Pool) -> None:
    put_simulated(pool.models, "sim", "1")
    status = Log(pool.bus, pool.topics.status, 0)
    worker = pool.start()
    pool.served("sim")

    def beats() -> list[Heartbeat]:
        status.read()
        return [decode_json(Heartbeat, record) for record in status.records]

    ready = pool.until(
        lambda: next((each for each in beats() if each.models == ("sim/1",)), None)
    )
    assert (ready.role, ready.slot, ready.pid) == ("gpu_worker", 0, worker.pid)
    assert (ready.incarnation, ready.lane) == (pool.incarnations[0], 0)
    pool.wait_ready()
    with urllib.request.urlopen(f"{ready.admin}/metrics") as answer:
        assert b"headrace_ready_versions 1.0" in answer.read()
    pool.end(worker, signal.SIGTERM)
    pool.until(lambda: beats()[-1].state is ServiceState.DRAINING)
    status.close()


def test_a_stopped_worker_says_nothing_and_goes_on_when_it_is_let(pool: Pool) -> None:
    put_simulated(pool.models, "sim", "1")
    worker = pool.start()
    served = pool.served("sim")
    freeze(worker.pid)
    batch = pool.send(served, [a_row(pool, served)])
    pool.write(0, encode_sync(Sync(0, 2, FORMER, 1)))

    worker.send_signal(signal.SIGCONT)

    assert pool.done(batch).members[0].status is MemberStatus.OK


def test_a_slot_without_a_partition_is_refused_with_the_way_out(pool: Pool) -> None:
    put_simulated(pool.models, "sim", "1")

    worker = pool.launch(slot=7)

    assert worker.wait(WAIT_S) == 78
    assert "raise HEADRACE_BUS__WORKER_SLOTS" in pool.worker_log(7)


def test_a_missing_folder_says_what_to_do(pool: Pool) -> None:
    no_folder = pool.launch(models__folder=str(pool.folder / "nowhere"))

    assert no_folder.wait(WAIT_S) == 78
    assert "create the folder or name another one" in pool.worker_log(0)


@pytest.mark.skipif(
    open_device(DeviceSettings()).provider is Provider.CUDA, reason="CUDA works here"
)
def test_cuda_that_does_not_work_ends_the_process(pool: Pool) -> None:
    worker = pool.launch(device__provider="cuda")

    assert worker.wait(WAIT_S) == 78
    assert "ONNX Runtime takes CPUExecutionProvider: install" in pool.worker_log()


def test_a_position_outside_the_partition_ends_the_process(pool: Pool) -> None:
    put_simulated(pool.models, "sim", "1")
    worker = pool.start()
    pool.served("sim")
    pool.sync(1)

    pool.make_anew(pool.topics.batches)

    assert worker.wait(WAIT_S) == 72
