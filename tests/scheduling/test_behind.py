"""I26: small runs of bulk go to a worker several at a time, while nobody is online."""

from __future__ import annotations

from headrace.domain import Priority, Request, ServedVersion
from headrace.scheduling import SchedulingSettings
from tests.scheduling.scenes import MS, Desk, a_request, a_version

SHORT = a_version(max_batch=4, alpha_us=20, beta_us=20)
"""A full batch takes 0.1 ms."""

WAY = SchedulingSettings(control_hop_us=1 * MS, behind_bytes_max=64)


def bulk(
    rows: int = 4, *, size_bytes: int = 4, at_us: int = 0, avoid: int | None = None
) -> Request:
    return a_request(
        rows=rows,
        size_bytes=size_bytes,
        priority=Priority.BULK,
        at_us=at_us,
        limit_us=None,
        avoid=avoid,
    )


def sent(desk: Desk, now_us: int = 0) -> int:
    return len(desk.tick(now_us))


def a_desk(version: ServedVersion = SHORT) -> Desk:
    return Desk(version, credits_each=8, settings=WAY)


def test_a_worker_gets_what_it_has_room_for_and_then_half_of_it_at_a_time() -> None:
    desk = a_desk()
    desk.arrive(*(bulk() for _ in range(40)))

    assert sent(desk) == 8
    for now_us in range(100, 400, 100):
        desk.finish(now_us=now_us)
        assert sent(desk, now_us) == 0
    desk.finish(now_us=400)
    assert sent(desk, 400) == 4


def test_bulk_with_a_deadline_goes_as_deep_as_any() -> None:
    desk = a_desk()
    desk.arrive(
        *(
            a_request(rows=4, priority=Priority.BULK, limit_us=60_000 * MS)
            for _ in range(40)
        ),
    )

    assert sent(desk) == 8


def test_nothing_is_sent_to_a_worker_without_a_credit() -> None:
    desk = Desk(credits_each=0)
    desk.arrive(a_request())

    assert desk.tick() == []


def test_no_more_than_the_runs_that_end_before_word_of_them_is_back() -> None:
    desk = a_desk(a_version(max_batch=4, alpha_us=300, beta_us=50))
    desk.arrive(*(bulk() for _ in range(40)))

    # 0.5 ms each, after 1 ms on the way; 2 ms there and back.
    assert sent(desk) == 3


def test_while_anyone_is_online_two_batches_are_all_that_may_lie_before_him() -> None:
    desk = a_desk()
    desk.arrive(a_request(limit_us=100 * MS))
    desk.tick()
    desk.finish(now_us=MS)
    desk.arrive(*(bulk(at_us=MS) for _ in range(40)), now_us=MS)

    assert sent(desk, MS) == 2
    assert sent(desk, 900 * MS) == 0
    desk.finish(now_us=1_100 * MS)
    assert sent(desk, 1_100 * MS) > 2


def test_online_requests_that_wait_are_not_passed() -> None:
    desk = a_desk()
    desk.arrive(*(bulk() for _ in range(2)))
    assert sent(desk) == 2
    # Longer ago than online traffic is remembered.
    desk.arrive(*(a_request(limit_us=60_000 * MS) for _ in range(12)))
    desk.arrive(*(bulk() for _ in range(8)))
    assert sent(desk, 2_000 * MS) == 0


def test_what_would_be_a_fuller_batch_later_waits() -> None:
    desk = a_desk()
    desk.arrive(*(bulk() for _ in range(2)), *(bulk(rows=1) for _ in range(3)))
    assert sent(desk) == 2
    desk.arrive(bulk(rows=1))
    assert sent(desk) == 1


def test_large_batches_do_not_fill_the_workers_memory() -> None:
    desk = a_desk()
    desk.arrive(*(bulk(size_bytes=65) for _ in range(8)))
    assert sent(desk) == 2


def test_a_worker_that_failed_on_it_is_not_chosen() -> None:
    desk = a_desk()
    desk.arrive(bulk(), bulk())
    assert sent(desk) == 2
    desk.arrive(bulk(avoid=0))
    assert sent(desk) == 0
