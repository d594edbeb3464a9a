"""Workers of different speeds."""

from __future__ import annotations

from tests.scheduling.scenes import MS, Desk, a_request, a_version


def learned(
    desk: Desk, run_ms: dict[int, int], *, runs: int = 40, at_us: int = 0
) -> int:
    """Run one request at a time on every slot until their speeds are known."""
    now_us = at_us
    for _ in range(runs):
        for _ in run_ms:
            desk.arrive(a_request(at_us=now_us), now_us=now_us)
            desk.tick(now_us)
        now_us += 100 * MS
        for slot, ran_ms in run_ms.items():
            desk.finish(slot, now_us=now_us, run_us=ran_ms * MS)
    return now_us


def test_the_faster_of_two_idle_workers_is_sent_to() -> None:
    desk = Desk(slots=2)
    now_us = learned(desk, {0: 6, 1: 2})
    desk.arrive(a_request(at_us=now_us), now_us=now_us)

    (dispatch,) = desk.tick(now_us)

    assert dispatch.slot == 1


def test_a_slow_worker_is_expected_to_be_slow() -> None:
    desk = Desk(slots=2)
    now_us = learned(desk, {0: 6, 1: 2})
    desk.arrive(*(a_request(at_us=now_us, group=group) for group in "ab"))

    expected_us = {
        dispatch.slot: dispatch.predicted_us for dispatch in desk.tick(now_us)
    }

    assert 5 * MS < expected_us[0] < 7 * MS
    assert 1.5 * MS < expected_us[1] < 2.5 * MS


def test_a_slow_worker_is_known_after_four_runs() -> None:
    desk = Desk(slots=2)
    now_us = learned(desk, {0: 3, 1: 2}, runs=4)
    desk.arrive(*(a_request(at_us=now_us, group=group) for group in "ab"))

    slow, fast = sorted(dispatch.predicted_us for dispatch in desk.tick(now_us))[::-1]

    assert slow > 1.3 * fast


def test_a_first_run_that_took_ten_times_as_long_makes_no_slow_worker() -> None:
    desk = Desk(slots=2)
    now_us = learned(desk, {0: 20, 1: 2}, runs=1)
    now_us = learned(desk, {0: 2, 1: 2}, runs=12, at_us=now_us)
    desk.arrive(*(a_request(at_us=now_us, group=group) for group in "ab"))

    one, other = (dispatch.predicted_us for dispatch in desk.tick(now_us))

    assert one == other


def test_a_device_that_became_slower_for_one_version_soon_is_for_the_others() -> None:
    desk = Desk(a_version("m"), a_version("n"))
    now_us = 0

    def run(model: str, run_ms: int) -> int:
        """What was predicted of the run."""
        nonlocal now_us
        desk.arrive(a_request(model=model, at_us=now_us), now_us=now_us)
        (dispatch,) = desk.tick(now_us)
        now_us += 100 * MS
        desk.finish(now_us=now_us, run_us=run_ms * MS)
        return dispatch.predicted_us

    for model in ("m", "n") * 20:
        run(model, 2)
    for _ in range(5):
        run("m", 6)
    predicted_us = [run("n", 6) for _ in range(3)]

    assert predicted_us == [2 * MS, 2 * MS, 6 * MS]
