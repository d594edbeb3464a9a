"""How much is sent of a version whose runs fail, and when it is tried again."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.delivery import Fitness, Ran, Remedy, VersionFitness, WorkerLimits
from tests.delivery.builders import SECOND

LIMITS = WorkerLimits()
OPEN = Fitness(is_open=True)
UNLIMITED = Fitness()
ONE = Fitness(1)


def a_version(max_batch: int = 32) -> VersionFitness:
    return VersionFitness(LIMITS, max_batch)


# -- memory


def test_out_of_memory_halves_the_rows_and_remembers_it_for_a_while() -> None:
    version = a_version()

    assert version.ran(Ran.OUT_OF_MEMORY, 32, 0) is Remedy.SHRINK_ARENA
    assert version.now == Fitness(16)
    version.ran(Ran.OK, 16, 1)
    assert version.wakeup_at_us() == LIMITS.memory_kept_us
    version.tick(LIMITS.memory_kept_us - 1)
    assert version.now == Fitness(16)
    version.tick(LIMITS.memory_kept_us)

    assert version.now == UNLIMITED
    assert version.wakeup_at_us() is None


def test_a_limit_doubles_step_by_step() -> None:
    version = a_version()
    for rows in (32, 16):
        version.ran(Ran.OUT_OF_MEMORY, rows, 0)
    assert version.now == Fitness(8)

    version.tick(LIMITS.memory_kept_us)

    assert version.now == Fitness(16)
    assert version.wakeup_at_us() == 2 * LIMITS.memory_kept_us


def test_remedies_escalate_while_no_run_succeeds() -> None:
    version = a_version()

    remedies = [version.ran(Ran.OUT_OF_MEMORY, 32 >> n, 0) for n in range(6)]

    assert remedies == [
        Remedy.SHRINK_ARENA,
        Remedy.REBUILD_SESSION,
        *[Remedy.FEWER_ROWS] * 3,
        Remedy.END_PROCESS,
    ]


def test_a_lone_row_is_given_every_remedy_before_the_process_ends() -> None:
    version = a_version()

    remedies = [version.ran(Ran.OUT_OF_MEMORY, 1, 0) for _ in range(3)]

    assert remedies == [
        Remedy.SHRINK_ARENA,
        Remedy.REBUILD_SESSION,
        Remedy.END_PROCESS,
    ]


def test_what_fits_in_the_end_costs_no_process() -> None:
    """An ended process takes its other models along, and forgets the limit."""
    version = a_version()

    remedies = {version.ran(Ran.OUT_OF_MEMORY, 32 >> n, 0) for n in range(5)}
    version.ran(Ran.OK, 1, 0)

    assert Remedy.END_PROCESS not in remedies
    assert version.now == ONE


def test_a_row_that_takes_too_much_leaves_others_their_batches() -> None:
    version = a_version()
    for n in range(6):
        version.ran(Ran.OUT_OF_MEMORY, 32 >> n, 0)

    version.other_row_fits()

    assert version.now == UNLIMITED
    assert version.wakeup_at_us() is None


def test_a_success_starts_the_remedies_anew() -> None:
    version = a_version()
    version.ran(Ran.OUT_OF_MEMORY, 32, 0)
    version.ran(Ran.OK, 16, 0)

    assert version.ran(Ran.OUT_OF_MEMORY, 16, 0) is Remedy.SHRINK_ARENA


def test_what_was_sent_before_the_limit_was_known_says_nothing_new() -> None:
    version = a_version()
    version.ran(Ran.OUT_OF_MEMORY, 32, 0)

    assert version.ran(Ran.OUT_OF_MEMORY, 32, 0) is None
    assert version.now == Fitness(16)


def test_one_row_is_always_taken() -> None:
    version = a_version()
    for _ in range(8):
        version.ran(Ran.OUT_OF_MEMORY, 1, 0)

    assert version.now == ONE


# -- the breaker


def test_failures_in_a_row_open_the_breaker_for_a_pause() -> None:
    version = a_version()
    for _ in range(LIMITS.breaker_failures - 1):
        version.ran(Ran.FAILED, 8, 0)
    assert version.now == UNLIMITED

    version.ran(Ran.FAILED, 8, 0)

    assert version.now == OPEN
    assert version.wakeup_at_us() == LIMITS.breaker_us


def test_failures_with_successes_between_them_open_nothing() -> None:
    version = a_version()
    for _ in range(20):
        version.ran(Ran.FAILED, 8, 0)
        version.ran(Ran.OK, 8, 0)

    assert version.now == UNLIMITED


def opened() -> VersionFitness:
    version = a_version()
    for _ in range(LIMITS.breaker_failures):
        version.ran(Ran.FAILED, 8, 0)
    return version


def test_after_the_pause_single_rows_try_and_a_success_closes_it() -> None:
    version = opened()
    version.tick(LIMITS.breaker_us)
    assert version.now == ONE

    version.ran(Ran.OK, 1, LIMITS.breaker_us)

    assert version.now == UNLIMITED
    version.ran(Ran.FAILED, 8, LIMITS.breaker_us)
    assert version.now == UNLIMITED


def test_each_try_that_fails_doubles_the_pause_up_to_its_most() -> None:
    version = opened()
    pauses_s = []
    for _ in range(6):
        at_us = version.wakeup_at_us()
        assert at_us is not None
        version.tick(at_us)
        version.ran(Ran.FAILED, 1, at_us)
        again_us = version.wakeup_at_us()
        assert again_us is not None
        pauses_s.append((again_us - at_us) // SECOND)

    assert pauses_s == [10, 20, 40, 60, 60, 60]


def test_what_was_on_its_way_does_not_count_as_a_try() -> None:
    version = opened()
    version.ran(Ran.FAILED, 8, SECOND)

    assert version.wakeup_at_us() == SECOND + LIMITS.breaker_us


@given(
    st.lists(
        st.tuples(st.sampled_from(Ran), st.integers(1, 32), st.integers(0, 90)),
        max_size=60,
    )
)
def test_whatever_happens_one_success_after_the_pauses_heals(
    runs: list[tuple[Ran, int, int]],
) -> None:
    version = a_version()
    now_us = 0
    for how, rows, later_s in runs:
        now_us += later_s * SECOND
        version.tick(now_us)
        version.ran(how, rows, now_us)
        rows_max = version.now.rows_max
        assert rows_max is None or 1 <= rows_max < 32
    while (at_us := version.wakeup_at_us()) is not None:
        version.tick(at_us)
        if not version.now.is_open:
            version.ran(Ran.OK, 1, at_us)

    assert version.now == UNLIMITED
