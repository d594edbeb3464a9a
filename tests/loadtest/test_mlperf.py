"""LoadGen's summaries, and what they make of a server."""

from __future__ import annotations

import pytest

from headrace.errors import SetupError
from loadtest.mlperf.outcome import OFFLINE, SERVER, SINGLE, Outcome, held, outcome_of

SUMMARY = """\
================================================
MLPerf Results Summary
================================================
SUT name : PySUT
Scenario : Server
Mode     : PerformanceOnly
Completed samples per second    : 188.44
Result is : INVALID
  Performance constraints satisfied : Yes
  Early stopping satisfied: NO
Recommendations:
Early Stopping Result:
 * Would need to run at least 171 more queries,
================================================
Additional Stats
================================================
Scheduled samples per second : 188.73
50.00 percentile latency (ns)   : 2222401
99.00 percentile latency (ns)   : 6332519
99.90 percentile latency (ns)   : 6563864
"""
OTHERS = {
    OFFLINE: "Samples per second: 188.44",
    SINGLE: "QPS w/ loadgen overhead         : 188.44",
}


def test_a_server_run_is_read() -> None:
    assert outcome_of(SUMMARY, 3) == Outcome(
        SERVER,
        valid=False,
        per_second=188.44,
        p50_ms=2.222401,
        p99_ms=6.332519,
        failed=3,
    )


@pytest.mark.parametrize("scenario", [OFFLINE, SINGLE])
def test_each_scenario_names_its_rate_in_its_own_way(scenario: str) -> None:
    text = SUMMARY.replace("Completed samples per second    : 188.44", OTHERS[scenario])
    text = text.replace("INVALID", "VALID").replace(": Server", f": {scenario}")
    found = outcome_of(text, 0)
    assert (found.scenario, found.valid, found.per_second) == (scenario, True, 188.44)


def test_what_is_no_summary_is_refused_with_what_it_lacks() -> None:
    with pytest.raises(SetupError, match="lacks 'Result is'"):
        outcome_of("Scenario : Server\n", 0)


def an_outcome(scenario: str, per_second: float, *, valid: bool = True) -> Outcome:
    return Outcome(scenario, valid, per_second, p50_ms=1, p99_ms=2, failed=0)


def test_the_best_valid_server_rate_is_held_against_the_offline_rate() -> None:
    offline = an_outcome(OFFLINE, 2000)
    high = an_outcome(SERVER, 1960, valid=False)
    enough, low = an_outcome(SERVER, 1800), an_outcome(SERVER, 1780)
    assert held([offline, high, enough]) == (0.9, True)
    assert held([offline, high, low]) == (0.89, False)
    assert held([offline, high]) == (0.0, False)
    assert held([enough]) is None
