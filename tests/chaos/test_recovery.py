"""What one fault under load costs: no request. How soon everything is as before is
printed; what is promised of that (1.5 s for a worker, 2 s for a former) holds where a
core is free, and `python -m tests.chaos.times` shows it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

import psutil
import pytest

from tests.chaos.conftest import BUSY_GRACE_US
from tests.chaos.faults import Kind
from tests.chaos.history import Ask, breaches, tally
from tests.chaos.recovery import asking, watch
from tests.chaos.stand import LANES, Stand

pytestmark = pytest.mark.kafka

UNHURRIED_MS = 30_000
"""So that a machine with much else to do fails no request by its slowness."""


def test_the_work_of_a_killed_worker_runs_elsewhere(stand: Stand) -> None:
    seen = watch(stand, asking(stand, UNHURRIED_MS), Kind.KILL_WORKER)

    print(f"worker killed: {seen.slowest_ms:.0f} ms; {tally(seen.asks)}")
    assert_all_right(seen.asks)


def test_the_lane_of_a_killed_former_goes_on(stand: Stand) -> None:
    seen = watch(stand, asking(stand, UNHURRIED_MS), Kind.KILL_FORMER)

    print(f"former killed: {seen.slowest_ms:.0f} ms; {tally(seen.asks)}")
    assert_all_right(seen.asks)


def test_a_restart_of_everything_by_halves_fails_no_request(stand: Stand) -> None:
    """Both halves have an ingress, a former and a worker of the first lane."""

    def act() -> None:
        for half in (0, 1):
            restart(
                stand,
                stand.pids("ingress")[half],
                stand.pids("batch_former")[half],
                stand.pids("gpu_worker")[half * LANES],
            )

    # With the time limit that is promised: a draining ingress refuses whatever it may
    # have to leave behind.
    clients = asking(stand)
    clients.ask_during(act)
    asks = clients.asks

    print(f"restarts: {tally(asks)}, slowest {slowest_ms(asks):.0f} ms")
    assert_all_right(asks)


def test_traffic_outlives_a_restart_of_its_broker_in_the_same_processes(
    stand: Stand,
) -> None:
    pids = stand.all_pids()

    seen = watch(stand, asking(stand), Kind.RESTART_BROKER)

    print(f"broker back: {seen.resumed_ms:.0f} ms; {tally(seen.asks)}")
    assert stand.all_pids() == pids
    assert breaches(seen.asks, (), BUSY_GRACE_US) == []


def restart(stand: Stand, *pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    for pid in pids:
        while psutil.pid_exists(pid):
            time.sleep(0.02)
    stand.await_ready()


def assert_all_right(asks: Sequence[Ask]) -> None:
    assert set(tally(asks)) == {"right"}, tally(asks)


def slowest_ms(asks: Sequence[Ask]) -> float:
    return max(ask.ended_us - ask.sent_us for ask in asks) / 1000
