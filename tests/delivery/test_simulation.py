"""The whole protocol under faults drawn from a seed."""

from collections.abc import Iterator

import pytest

from headrace.domain import Scheduler
from headrace.scheduling import BatchFormer, SchedulingSettings
from tests.delivery.world import World


@pytest.mark.parametrize("seed", range(150))
def test_everything_ends_well_whatever_strikes(seed: int) -> None:
    world = World(seed)
    world.start(asks=40)
    world.run()
    world.check_end()


@pytest.mark.parametrize("seed", range(1_000, 1_050))
def test_everything_ends_well_under_the_products_own_policy(seed: int) -> None:
    def policy(batch_ids: Iterator[str]) -> Scheduler:
        return BatchFormer(SchedulingSettings(), batch_ids=batch_ids)

    world = World(seed, policy=policy)
    world.start(asks=40)
    world.run()
    world.check_end()
