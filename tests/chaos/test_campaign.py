"""The short form of `make chaos`: always the same faults, those that no other test
makes and the two kills that bulk items must outlive (case G1), each as short as it can
be felt."""

from __future__ import annotations

import pytest

from tests.chaos.campaign import campaign
from tests.chaos.conftest import BUSY_GRACE_US, SEED
from tests.chaos.faults import Fault, Kind
from tests.chaos.stand import Stand

pytestmark = pytest.mark.kafka

FAULTS = (
    Fault(Kind.FREEZE_WORKER, 0, 0.1, 1.3),
    Fault(Kind.POISON, 1, 0.1, 0),
    Fault(Kind.KILL_INGRESS, 0, 0.1, 0),
    Fault(Kind.KILL_WORKER, 1, 0.1, 0),
    Fault(Kind.FREEZE_FORMER, 1, 0.1, 0.8),
    Fault(Kind.STALL_NETWORK, 1, 0.1, 0.8),
    Fault(Kind.FREEZE_INGRESS, 1, 0.1, 0.4),
    Fault(Kind.SLOW_NETWORK, 0, 0.1, 0.8),
    Fault(Kind.FREEZE_BROKER, 0, 0.1, 0.8),
    Fault(Kind.STORE_AWAY, 0, 0.1, 0.5),
    Fault(Kind.KILL_FORMER, 0, 0.1, 0),
    Fault(Kind.CUT_NETWORK, 0, 0.1, 0),
)


def test_nothing_is_lost_nothing_comes_twice_and_nothing_is_silent(
    stand: Stand,
) -> None:
    verdict = campaign(
        stand, SEED, FAULTS, requests=300, items=300, grace_us=BUSY_GRACE_US
    )

    print(verdict)
    assert verdict.is_clean, str(verdict)
