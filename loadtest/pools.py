"""The pools of the floors: two models, and a scenario around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from headrace.simulation import Results, Scenario, Summary, simulate

__all__ = ["DEVICE", "SHAPES", "Floor", "Section", "a_scenario", "run"]

Section = Mapping[str, Any]
SHAPES: Mapping[str, Section] = {
    "a5.2": {"alpha_ms": 5.204, "beta_ms": 1.082, "max_batch": 64},
    "a11.6": {"alpha_ms": 11.56, "beta_ms": 4.588, "max_batch": 32},
}
DEVICE: Section = {"alpha_ms": 5.0, "beta_ms": 0.25, "max_batch": 32}


class Floor(NamedTuple):
    """``measure(seconds)`` is at least ``least``, as long as a run lasts seconds."""

    name: str
    least: float
    measure: Callable[[float], float]


def a_scenario(
    model: Section, *streams: Section, models: int = 1, workers: int = 8, **more: Any
) -> Scenario:
    return Scenario.model_validate(
        {
            "seed": 1,
            "pool": {"workers": workers} | more.pop("pool", {}),
            "models": [
                {"name": "m", "count": models, **model},
                *more.pop("beside", ()),
            ],
            "streams": [{"models": ("m",), **stream} for stream in streams],
            **more,
        }
    )


def run(scenario: Scenario) -> tuple[Summary, Results]:
    return simulate(scenario)
