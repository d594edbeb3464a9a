"""Where a time limit holds few batches of models that share workers."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.simulation import Scenario
from loadtest.pools import DEVICE, Floor, Section, a_scenario, run

__all__ = ["tight_floors"]


def tight_floors() -> Iterator[Floor]:
    def shared(seconds: float) -> float:
        """No model may shrink the batches of those that share its workers."""
        summary, _ = run(
            a_scenario(_slow(30.0), {"load": 0.8}, models=5, seconds=seconds)
        )
        return summary.attainment

    def kept(seconds: float) -> float:
        """Of what is sent to the worker, though most is not sent in time."""
        scenario = a_scenario(
            _slow(40.0), {"load": 0.8}, models=20, workers=1, seconds=seconds
        )
        tallies = run(scenario)[1].of()
        return tallies.on_time / (tallies.on_time + tallies.late)

    for cheap, dear, limits_ms in ((0.5, 1.4, (100, 100)), (1.0, 1.4, (60, 120))):

        def unlike(
            seconds: float,
            loads: tuple[float, float] = (cheap, dear),
            limits_ms: tuple[int, int] = limits_ms,
        ) -> float:
            """Of the dear one's requests each takes the time of thirteen others."""
            summary, _ = run(_unlike(loads, limits_ms, seconds))
            return summary.goodput / summary.bound

        name = f"models of 0.4 ms a row at {cheap}x and 5.3 at {dear}x"
        yield Floor(f"{name}: goodput of the bound", 0.8, unlike)

    def kept_dear(seconds: float) -> float:
        """However much is asked of the cheap one: of a part of the device."""
        scenario = _unlike((1.4, 0.5), (100, 100), seconds)
        of_dear = run(scenario)[1].of(model=1)
        return sum(of_dear.device_us_by_second) / (4e6 * seconds)

    yield Floor(
        "5.3 ms a row at 0.5x beside 0.4 at 1.4x: of the device", 0.08, kept_dear
    )
    yield Floor("62 ms of 100, 0.8x, M=5: in time", 0.97, shared)
    yield Floor("72 ms of 100, one worker, M=20: in time of what is sent", 0.99, kept)


def _unlike(
    loads: tuple[float, float], limits_ms: tuple[int, int], seconds: float
) -> Scenario:
    dear = {"name": "dear", "alpha_ms": 11.56, "beta_ms": 4.588, "max_batch": 16}
    streams = [
        {"models": (name,), "load": load, "limit_ms": limit_ms}
        for name, load, limit_ms in zip(("m", "dear"), loads, limits_ms, strict=True)
    ]
    return a_scenario(DEVICE, *streams, beside=(dear,), workers=4, seconds=seconds)


def _slow(alpha_ms: float) -> Section:
    return {"alpha_ms": alpha_ms, "beta_ms": 1.0, "max_batch": 32}
