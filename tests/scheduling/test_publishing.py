"""How often a former tells of its lanes."""

from __future__ import annotations

from headrace.domain import Load, Priority, QueueLoad
from headrace.scheduling import Publishing

MS = 1_000
IDLE = Load(slots=1, free_us=[0])
RUNS = Load(slots=1, free_us=[9 * MS])
WAITS = Load(
    slots=1,
    free_us=[9 * MS],
    queues=[QueueLoad("m", "1", Priority.STANDARD, 8, 8, 2 * MS, 2 * MS)],
)


def test_a_quiet_lane_is_looked_at_seldom_and_left_to_heartbeats() -> None:
    publishing = Publishing()

    assert not publishing.looked([IDLE], 0)
    assert publishing.at_us == 200 * MS


def test_a_request_brings_the_next_look_forward_and_never_puts_it_off() -> None:
    publishing = Publishing()
    publishing.looked([IDLE], 0)

    looks_us = []
    for at_us in (10 * MS, 40 * MS):
        publishing.received(at_us)
        looks_us.append(publishing.at_us)

    assert looks_us == [60 * MS, 60 * MS]


def test_what_has_become_idle_is_told_for_a_second() -> None:
    publishing = Publishing()
    publishing.received(0)

    told = [publishing.looked([IDLE], at_us) for at_us in (999 * MS, 1_000 * MS)]

    assert told == [True, False]


def test_bulk_that_waits_is_no_reason_for_closer_looks() -> None:
    publishing = Publishing()
    bulk = QueueLoad("m", "1", Priority.BULK, 4096, 4096, 9_000 * MS, 9_000 * MS)
    publishing.looked([Load(slots=1, free_us=[9 * MS], queues=[bulk])], 0)

    assert publishing.at_us == 50 * MS


def test_where_requests_wait_for_the_device_looks_come_closer() -> None:
    publishing = Publishing()
    steps_us = []
    for loads in ([IDLE, RUNS], [IDLE, WAITS]):
        assert publishing.looked(loads, 0)
        steps_us.append(publishing.at_us)
    publishing.at_us = 200 * MS
    publishing.received(0)

    assert [*steps_us, publishing.at_us] == [50 * MS, 15 * MS, 15 * MS]
