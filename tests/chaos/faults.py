"""What goes wrong, when and for how long: drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["EVERY", "Fault", "Kind", "draw", "one_of_each"]


class Kind(StrEnum):
    """All that is done to a platform that runs."""

    KILL_WORKER = "kill-worker"
    KILL_FORMER = "kill-former"
    KILL_INGRESS = "kill-ingress"
    RESTART_WORKER = "restart-worker"
    RESTART_FORMER = "restart-former"
    RESTART_INGRESS = "restart-ingress"
    FREEZE_WORKER = "freeze-worker"
    FREEZE_FORMER = "freeze-former"
    FREEZE_INGRESS = "freeze-ingress"
    REBALANCE = "rebalance"
    """A former is frozen until the group goes on without it."""

    KILL_BROKER = "kill-broker"
    RESTART_BROKER = "restart-broker"
    FREEZE_BROKER = "freeze-broker"
    SLOW_NETWORK = "slow-network"
    STALL_NETWORK = "stall-network"
    CUT_NETWORK = "cut-network"
    STORE_AWAY = "store-away"
    """What is in the payload store cannot be had, nor anything put there."""

    POISON = "poison"
    """What is no request lies among the requests."""

    FAILING_ROW = "failing-row"
    HANGING_ROW = "hanging-row"
    """A client asks for a row with which a run fails, or goes on for ever; over when
    that is answered."""


_SPANS_S = {
    Kind.FREEZE_WORKER: (1.5, 4.0),
    Kind.FREEZE_FORMER: (0.6, 3.0),
    Kind.FREEZE_INGRESS: (0.3, 2.0),
    Kind.REBALANCE: (8.0, 9.0),
    Kind.FREEZE_BROKER: (0.5, 3.0),
    Kind.SLOW_NETWORK: (1.0, 3.0),
    Kind.STALL_NETWORK: (0.5, 3.0),
    Kind.STORE_AWAY: (0.5, 3.0),
}
"""Seconds from and to; what is not here lasts as long as a process takes to be back."""

_PAUSE_S = (0.2, 1.5)
EVERY = tuple(Kind)


@dataclass(frozen=True, slots=True)
class Fault:
    """``slot`` picks the process, and the partition of a poison record; ``after_s`` is
    the pause before it."""

    kind: Kind
    slot: int
    after_s: float
    for_s: float

    def __str__(self) -> str:
        lasting = f" for {self.for_s:.1f} s" if self.for_s else ""
        return f"{self.kind}{lasting} [{self.slot}]"


def draw(rng: random.Random, kind: Kind) -> Fault:
    return Fault(
        kind,
        rng.randrange(1 << 16),
        rng.uniform(*_PAUSE_S),
        rng.uniform(*_SPANS_S[kind]) if kind in _SPANS_S else 0.0,
    )


def one_of_each(rng: random.Random, kinds: Sequence[Kind] = EVERY) -> list[Fault]:
    """Each kind once, in a random order."""
    return [draw(rng, kind) for kind in rng.sample(kinds, len(kinds))]
