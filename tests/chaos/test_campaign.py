"""The short form of `make chaos`: a third of the faults, whichever the seed draws."""

from __future__ import annotations

import random

import pytest

from tests.chaos.campaign import campaign
from tests.chaos.faults import EVERY, one_of_each
from tests.chaos.stand import Stand

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

FAULTS = 6


def test_nothing_is_lost_nothing_comes_twice_and_nothing_is_silent(
    stand: Stand, seed: int
) -> None:
    faults = one_of_each(random.Random(seed), EVERY)[:FAULTS]

    verdict = campaign(stand, seed, faults, requests=500)

    print(verdict)
    assert verdict.is_clean, f"seed {seed}\n{verdict}"
