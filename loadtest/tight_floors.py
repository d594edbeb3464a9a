"""Where a time limit holds few batches of models that share workers."""

from __future__ import annotations

from collections.abc import Iterator

from loadtest.pools import Floor, Section, a_scenario, run

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

    yield Floor("62 ms of 100, 0.8x, M=5: in time", 0.97, shared)
    yield Floor("72 ms of 100, one worker, M=20: in time of what is sent", 0.99, kept)


def _slow(alpha_ms: float) -> Section:
    return {"alpha_ms": alpha_ms, "beta_ms": 1.0, "max_batch": 32}
