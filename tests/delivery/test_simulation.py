"""The whole protocol under faults drawn from a seed."""

import pytest

from tests.delivery.world import World


@pytest.mark.parametrize("seed", range(150))
def test_everything_ends_well_whatever_strikes(seed: int) -> None:
    world = World(seed)
    world.start(asks=40)
    world.run()
    world.check_end()
