"""The invariants of the protocol, whatever happens in whatever order.

Hypothesis chooses the kinds of faults, their number, the limits (so small that they
bind) and the seed of everything else; :class:`World` holds each promise at the instant
at which it could be broken: D10 and D13 at every commit and every write under an epoch,
D14 at every batch taken, and D12, D15, D17 and D20 when the faults are over.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.delivery import LaneLimits
from headrace.domain import Priority, Reason
from tests.delivery.builders import MS, SECOND
from tests.delivery.faults import HARMLESS, KINDS
from tests.delivery.records import LETHAL
from tests.delivery.world import World

TINY = st.builds(
    LaneLimits,
    cap=st.integers(1, 3),
    unsettled_max=st.integers(1, 4),
    unsettled_bytes_max=st.integers(10, 40),
    span_max=st.integers(1, 6),
    attempts_online=st.integers(1, 3),
    attempts_bulk=st.integers(1, 3),
    backoff_us=st.just(10_000),
)
FAULTS = st.frozensets(st.sampled_from(KINDS))
SEEDS = st.integers(0, 1 << 32)


@settings(max_examples=40, deadline=None)
@given(SEEDS, FAULTS, st.integers(0, 8), TINY)
def test_no_invariant_breaks_and_everything_ends(
    seed: int, kinds: frozenset[str], strikes: int, limits: LaneLimits
) -> None:
    """D10, D12 to D15, D17"""
    world = World(seed, kinds=kinds, strikes=strikes, limits=limits)
    world.start(asks=20)
    world.run()
    world.check_end()


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.sampled_from(sorted(set(KINDS) - {"slow_run"})))
def test_one_fault_causes_no_error(seed: int, kind: str) -> None:
    """D16: with two attempts, no request ends in an error because of a single fault."""
    world = World(seed, kinds=frozenset({kind}), strikes=1, wreckers=False)
    world.start(asks=20)
    world.run()
    world.check_end()
    assert world.exhausted() == []


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.frozensets(st.sampled_from(sorted(HARMLESS))), st.integers(1, 8))
def test_what_is_no_fault_causes_no_error_and_no_second_run(
    seed: int, kinds: frozenset[str], strikes: int
) -> None:
    """D3, D16: rebalances, restarts that drain, records read twice, a status topic
    that is late or stands still. What the predecessor began is adopted, and what it
    finished is found in the completions."""
    world = World(seed, kinds=kinds, strikes=strikes, wreckers=False)
    world.start(asks=20)
    world.run()
    world.check_end()
    assert world.exhausted() == []
    assert world.run_twice() == []


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.frozensets(st.sampled_from(sorted(HARMLESS))))
def test_what_kills_its_former_is_a_dead_letter_and_takes_nobody_along(
    seed: int, kinds: frozenset[str]
) -> None:
    """Two deaths until the partition is suspected, and two at the record by itself."""
    world = World(
        seed, kinds=kinds, strikes=4, wreckers=False, cancels=0, keyed=0, lethal=1
    )
    world.start(asks=20)
    world.run()
    world.check_end()
    for asks in world.history.asked.values():
        for ask in asks:
            letters = world.history.letters[ask.id]
            assert (Reason.CRASH in letters) == (ask.kind == LETHAL), ask
            assert world.deaths[ask.id] in ({4, 5, 6} if ask.kind == LETHAL else {0})


@settings(max_examples=40, deadline=None)
@given(SEEDS, FAULTS, st.integers(0, 8), TINY)
def test_no_request_runs_more_often_than_its_owners_have_attempts(
    seed: int, kinds: frozenset[str], strikes: int, limits: LaneLimits
) -> None:
    """D20, with the attempt alone that is granted to whoever was in company."""
    world = World(seed, kinds=kinds, strikes=strikes, wreckers=False, limits=limits)
    world.start(asks=20)
    world.run()
    owners = len(world.history.epochs)
    for priority in Priority:
        most = limits.attempts_max(bulk=priority is Priority.BULK) + 1
        runs = world.runs_of_asked_once(priority)
        assert max(runs, default=0) <= most * owners


@settings(max_examples=40, deadline=None)
@given(SEEDS, FAULTS, st.integers(0, 8), TINY)
def test_what_kills_formers_breaks_no_invariant_among_other_faults(
    seed: int, kinds: frozenset[str], strikes: int, limits: LaneLimits
) -> None:
    """Who loses the lane is not told from the dead, so others may pay for it here."""
    world = World(seed, kinds=kinds, strikes=strikes, limits=limits, lethal=3)
    world.start(asks=15)
    world.run()
    world.check_end()


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_a_lane_that_moves_in_the_middle_of_long_runs_runs_nothing_twice(
    seed: int,
) -> None:
    """What flies is adopted, what is done above the watermark is found by c."""
    world = World(
        seed,
        kinds=frozenset({"move", "reread"}),
        strikes=8,
        wreckers=False,
        run_us=(50 * MS, SECOND),
    )
    world.start(asks=60)
    world.run()
    world.check_end()
    assert world.run_twice() == []
