"""How long it takes until everything is as if nothing had happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.clients import Clients, now_us
from tests.chaos.faults import Fault, Kind
from tests.chaos.history import Ask
from tests.chaos.stand import Stand

__all__ = ["LIMIT_MS", "Recovery", "asking", "watch"]

LIMIT_MS = 5_000
NOTICED_US = 1_000_000
MODELS = ("echo", "simulated")


@dataclass(frozen=True)
class Recovery:
    """What the clients saw of one fault."""

    struck_us: int
    over_us: int
    """The fault was over: whoever was killed may still be starting."""
    asks: Sequence[Ask]

    @property
    def slowest_ms(self) -> float:
        """Longest that a request waited since then which was asked before it struck or
        within the second after: until others do the work."""
        waited = (
            ask.ended_us - max(ask.sent_us, self.struck_us)
            for ask in self.asks
            if ask.ended_us > self.struck_us
            and ask.sent_us < self.struck_us + NOTICED_US
        )
        return max(waited) / 1000

    @property
    def resumed_ms(self) -> float:
        """From the fault's end to the answer of the first that was sent after it."""
        return (
            min(
                ask.ended_us
                for ask in self.asks
                if ask.is_right and ask.sent_us >= self.over_us
            )
            - self.over_us
        ) / 1000


def asking(stand: Stand, *limits_ms: int) -> Clients:
    """A few clients; each request has one of the time limits."""
    limits = limits_ms or (LIMIT_MS,)
    return Clients(stand.urls, now_us(), limits_ms=limits, keyed=0, models=MODELS)


def watch(
    stand: Stand,
    clients: Clients,
    kind: Kind,
    slot: int = 0,
    *,
    stays_away_s: float = 0,
) -> Recovery:
    """Strike once under load, and ask on until all processes are ready again. Whoever
    was killed is not started anew before ``stays_away_s``."""
    struck_us = over_us = 0

    def strike() -> None:
        nonlocal struck_us, over_us
        struck_us = now_us()
        with stand.unsupervised(stays_away_s):
            stand.commit(Fault(kind, slot, 0, 0))
        over_us = now_us()
        stand.await_ready()

    clients.ask_during(strike)
    return Recovery(struck_us, over_us, clients.asks)
