"""What is learned about run times, and how much a single run may teach."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.scheduling import RunTimes

PRIOR = {1: 5_250, 2: 5_500, 32: 13_000}


def times(prior: dict[int, int] | None = None, rows_max: int = 32) -> RunTimes:
    return RunTimes(rows_max, PRIOR if prior is None else prior, quantile=0.95)


def test_the_probe_alone_gives_an_affine_expectation() -> None:
    assert times().expected(16) == pytest.approx(9_000, abs=2)


def test_what_never_ran_is_bounded_with_a_margin() -> None:
    assert times().bound(16) == pytest.approx(1.25 * 9_000, abs=3)


def test_a_fit_that_tells_the_runs_needs_a_smaller_margin() -> None:
    learned = times()
    for rows in (1, 2, 4, 8) * 4:
        learned.observe(rows, 5_000 + 250 * rows)

    assert learned.bound(20) == pytest.approx(1.05 * 10_000, rel=0.001)


def test_a_fit_that_does_not_tell_the_runs_keeps_its_margin() -> None:
    learned = times()
    for rows in (1, 2, 4, 8) * 4:
        learned.observe(rows, 40_000 if rows == 8 else 5_000)

    assert learned.bound(20) >= 1.249 * learned.expected(20)


def test_the_tail_of_what_never_ran_is_twice_the_next_larger_probed_time() -> None:
    assert times().extreme(3) == pytest.approx(26_000, abs=2)
    assert times({}).extreme(1) == pytest.approx(10_000_000, abs=2)


def test_steady_runs_are_expected_and_bounded_as_measured() -> None:
    learned = times()
    for _ in range(64):
        learned.observe(32, 14_000)

    assert learned.expected(32) == pytest.approx(14_000, rel=0.01)
    assert learned.bound(32) == pytest.approx(14_000, rel=0.01)


def test_a_stepped_profile_is_followed_within_its_steps() -> None:
    profile = {1: 17_500, 2: 17_700, 4: 17_700, 8: 28_900, 16: 48_500}
    learned = times(profile, rows_max=16)
    for _ in range(64):
        for rows, run_us in profile.items():
            learned.observe(rows, run_us)

    for rows, run_us in profile.items():
        assert learned.expected(rows) == pytest.approx(run_us, rel=0.05)


def test_one_outlier_hardly_moves_the_bound() -> None:
    learned = times()
    for number in range(56):
        learned.observe(32, 13_000 + number % 7)
    before = learned.bound(32)
    for run_us in (130_000, *[13_000] * 7):
        learned.observe(32, run_us)

    assert learned.bound(32) < 1.1 * before


def test_a_device_that_slows_down_is_believed_within_a_hundred_batches() -> None:
    learned = times()
    for _ in range(100):
        learned.observe(32, 13_000)
    late = sum(_overran(learned, 26_000) for _ in range(100))

    assert late <= 20
    assert learned.bound(32) >= 26_000


def test_a_device_that_became_slower_is_believed_after_five_runs() -> None:
    learned = times()
    for rows in (1, 8, 16, 32):
        for _ in range(20):
            learned.observe(rows, 5_000 + 250 * rows)
    late = sum(_overran(learned, 26_000) for _ in range(20))

    assert late <= 6
    # What it does with other sizes follows the shape that the probe saw.
    assert learned.expected(8) == pytest.approx(14_000, rel=0.1)


def _known_well() -> RunTimes:
    learned = times()
    for rows in (1, 8, 16, 32):
        for _ in range(20):
            assert not learned.observe(rows, 5_000 + 250 * rows)
    return learned


def test_two_runs_settle_what_other_versions_have_told_of_the_device() -> None:
    learned = _known_well()
    learned.suspect()
    learned.observe(8, 21_000)
    assert learned.expected(8) == pytest.approx(7_000, rel=0.01)

    learned.observe(32, 39_000)

    for rows in (1, 8, 16, 32):
        assert learned.expected(rows) == pytest.approx(3 * (5_000 + 250 * rows), 0.01)


def test_one_run_as_before_clears_a_version_of_suspicion() -> None:
    learned = _known_well()
    learned.suspect()
    for run_us in (21_000, 7_000, 21_000, 21_000, 21_000):
        learned.observe(8, run_us)

    assert learned.expected(32) == pytest.approx(13_000, rel=0.1)


def test_a_run_that_nothing_explains_counts_once_others_have_followed() -> None:
    learned = _known_well()
    told = [learned.observe(8, run_us) for run_us in (9_000, 9_000, *[7_000] * 8)]

    assert not any(told)
    assert learned.bound(8) == pytest.approx(9_000, rel=0.05)


def test_a_device_that_became_faster_is_believed_after_sixteen_runs() -> None:
    learned = times()
    for _ in range(64):
        learned.observe(32, 26_000)
    for _ in range(17):
        learned.observe(32, 13_000)

    assert learned.expected(32) == pytest.approx(13_000, rel=0.01)


def test_runs_of_two_kinds_are_bounded_by_the_longer() -> None:
    learned = times()
    for number in range(64):
        learned.observe(32, 13_000 if number % 2 else 15_000)

    assert learned.bound(32) <= 1.1 * 15_000 + 1


def _overran(learned: RunTimes, run_us: int) -> bool:
    late = run_us > learned.bound(32)
    learned.observe(32, run_us)
    return late


def test_runs_too_short_to_be_measured_still_take_time() -> None:
    learned = times()
    for rows in (1, 2, 32):
        for _ in range(64):
            learned.observe(rows, 0)

    assert learned.expected(1) >= 1


def test_rows_within_is_the_inverse_of_the_bound() -> None:
    learned = times()

    assert learned.rows_within(learned.bound(7)) == 7
    assert learned.rows_within(learned.bound(7) - 1) == 6
    assert learned.rows_within(0) == 0
    assert learned.rows_within(1 << 40) == 32


@given(
    runs=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 10_000_000)), max_size=90)
)
def test_times_never_fall_with_more_rows_and_stay_finite(
    runs: list[tuple[int, int]],
) -> None:
    """I15."""
    learned = times({1: 100, 2: 120, 6: 300}, rows_max=6)
    for rows, run_us in runs:
        learned.observe(rows, run_us)

    for told in (learned.expected, learned.bound, learned.extreme):
        values = [told(rows) for rows in range(1, 7)]
        assert values == sorted(values)
        assert values[0] > 0
        assert values[-1] < 1 << 50
    assert all(learned.bound(rows) <= learned.extreme(rows) + 1 for rows in range(1, 7))
