"""What urgent requests are served like among less urgent ones that are lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.simulation import Summary
from loadtest.pools import DEVICE, Floor, Section, a_scenario, run

__all__ = ["urgency_floors"]


def urgency_floors() -> Iterator[Floor]:
    """Three online priorities of one model, twice what its worker can do together:
    realtime loses nothing to it, and batches stay as full."""
    slow = {"alpha_ms": 20.0, "beta_ms": 5.0, "max_batch": 8}
    for name, model, limit_ms, rates in (
        ("20 + 5 ms", slow, 400.0, (5.0, 100.0, 160.0)),
        ("device", DEVICE, 100.0, (50.0, 2000.0, 2000.0)),
    ):
        for admission in (True, False):

            def urgent(
                seconds: float,
                model: Section = model,
                limit_ms: float = limit_ms,
                rates: tuple[float, ...] = rates,
                admission: bool = admission,  # noqa: FBT001 - bound here
            ) -> Summary:
                priorities = ("realtime", "interactive", "standard")
                streams = [
                    {"priority": priority, "rate": rate, "limit_ms": limit_ms}
                    for priority, rate in zip(priorities, rates, strict=True)
                ]
                return run(
                    a_scenario(
                        model,
                        *streams,
                        workers=1,
                        seconds=seconds,
                        admission=admission,
                    )
                )[0]

            def in_time(seconds: float, urgent: Any = urgent) -> float:
                return float(urgent(seconds).priorities["realtime"].attainment)

            def filled(
                seconds: float, urgent: Any = urgent, model: Section = model
            ) -> float:
                return float(urgent(seconds).mean_batch / model["max_batch"])

            door = "" if admission else ", no door"
            beside = f"among twice what a worker can do, {name}{door}"
            yield Floor(f"realtime {beside}: in time", 0.99, in_time)
            yield Floor(f"batches {beside}: filled", 0.95, filled)
