"""What LoadGen says of a run, and what that makes of a server: pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from headrace.errors import SetupError

__all__ = ["OFFLINE", "SERVER", "SHARES", "SINGLE", "Outcome", "held", "outcome_of"]

SERVER = "Server"
"""One request at a time, as Poisson says; the 99th percentile within a bound."""
OFFLINE = "Offline"
"""All requests at once."""
SINGLE = "SingleStream"
"""The next request when the last is answered."""

SHARES = (0.98, 0.95, 0.92, 0.9, 0.85, 0.8, 0.7, 0.5)
"""Of the offline rate, tried as the server's from the highest down."""

_AT_LEAST = 0.9
_RATES = {
    SERVER: "Completed samples per second",
    OFFLINE: "Samples per second",
    SINGLE: "QPS w/ loadgen overhead",
}


class Outcome(msgspec.Struct, frozen=True):
    """LoadGen's own summary of a run, and how many requests failed in it; LoadGen
    counted those as a second late."""

    scenario: str
    valid: bool
    per_second: float
    p50_ms: float
    p99_ms: float
    failed: int


def outcome_of(summary: str, failed: int) -> Outcome:
    """What ``mlperf_log_summary.txt`` says.

    Raises SetupError if it is no summary of a finished run.
    """
    values: dict[str, str] = {}
    for line in summary.splitlines():
        name, _, value = line.partition(":")
        values.setdefault(name.strip(), value.strip())
    try:
        scenario = values["Scenario"]
        return Outcome(
            scenario,
            values["Result is"] == "VALID",
            float(values[_RATES[scenario]]),
            float(values["50.00 percentile latency (ns)"]) / 1e6,
            float(values["99.00 percentile latency (ns)"]) / 1e6,
            failed,
        )
    except (KeyError, ValueError) as error:
        raise SetupError(f"LoadGen's summary lacks {error}:\n{summary}") from error


def held(outcomes: Sequence[Outcome]) -> tuple[float, bool] | None:
    """The best valid server rate over the offline rate, and whether that is what is
    promised. None: there is no offline rate."""
    offline = [each.per_second for each in outcomes if each.scenario == OFFLINE]
    if not offline:
        return None
    best = max(_valid(outcomes), default=0.0)
    return best / offline[-1], best / offline[-1] >= _AT_LEAST


def _valid(outcomes: Sequence[Outcome]) -> Iterator[float]:
    for each in outcomes:
        if each.scenario == SERVER and each.valid:
            yield each.per_second
