"""Figures of records that are known to the last answer."""

from __future__ import annotations

import pytest

from loadtest.figures import answers, derived, figures_of, timeline_of
from loadtest.stream import RESET, UNANSWERED, WRONG, Outcome
from tests.loadtest.builders import FLOOR, Ended, a_host, the_records


def test_late_and_refused_answers_miss_the_objective() -> None:
    records = the_records(
        [
            Ended(0, 100),
            Ended(0, 101),
            Ended(0, 2, Outcome(503, "overloaded")),
            Ended(0, 500, Outcome(UNANSWERED)),
            Ended(0, 3, Outcome(WRONG)),
        ]
    )
    found = figures_of(records, "m", sent_s=2.0, slo_ms=100)
    assert (found.offered, found.answered, found.goodput) == (2.5, 1.0, 0.5)
    assert found.attainment == 0.2
    assert found.lost == 2
    assert answers(records) == 3
    assert (found.succeeded.count, found.succeeded.max_ms) == (2, 101)
    assert (found.refused.count, found.refused.percentile(50)) == (1, 2)
    assert found.generator_us == 7
    assert found.outcomes == {
        "200": 2,
        "503 overloaded": 1,
        "unanswered": 1,
        "wrong answer": 1,
    }


def test_percentiles_are_of_successes_alone() -> None:
    refused = [Ended(0, 1, Outcome(429))] * 100
    ends = [Ended(0, took) for took in range(1, 101)]
    found = figures_of(the_records(refused + ends), "m", sent_s=1, slo_ms=1000)
    assert found.succeeded.percentile(50) == pytest.approx(50.5)
    assert found.succeeded.percentile(99) == pytest.approx(99.01)
    assert found.succeeded.percentile(99.9) == pytest.approx(99.901)


def test_nothing_offered_is_nothing_attained() -> None:
    found = figures_of(the_records([]), "m", sent_s=1, slo_ms=100)
    assert (found.offered, found.attainment, found.lost) == (0, 0, 0)


def recovery_of(late_until_ms: int) -> float | None:
    ends = [
        Ended(at_ms, 500 if at_ms < late_until_ms else 5)
        for at_ms in range(0, 3000, 10)
    ]
    return figures_of(
        the_records(ends), "m", sent_s=3, slo_ms=100, last_step_s=1
    ).recovery_s


def test_recovery_ends_with_the_last_bad_quarter_of_a_second() -> None:
    assert recovery_of(900) == 0
    assert recovery_of(1300) == 0.5
    assert recovery_of(3000) == 2


def test_a_timeline_shows_each_quarter_of_a_second() -> None:
    records = the_records(
        [Ended(0, 10), Ended(100, 200), Ended(300, 1, Outcome(503)), Ended(400, 20)]
    )
    first, second = timeline_of(records, sent_s=0.5, slo_ms=100)
    assert (first.offered, first.goodput, first.refused) == (8, 4, 0)
    assert (second.offered, second.goodput, second.refused) == (8, 4, 4)
    assert second.p99_ms == 20


def test_ratios_take_the_better_bare_accelerator() -> None:
    streams = [
        figures_of(the_records([Ended(0, 10)] * 90), "m", sent_s=1, slo_ms=100),
        figures_of(the_records([Ended(0, 10)] * 50), "m", sent_s=1, slo_ms=100),
    ]
    host = a_host(bare=100.0, bare_beside=80.0)
    found = derived(streams, host, capacity=200, floor=FLOOR)
    assert found["goodput_of_bare"] == 0.9
    assert found["company_of_capacity"] == 0.25
    assert found["cpu_us"] == 70
    assert found["ingress_us"] == 40
    assert found["cpu_of_floor"] == 3.5
    assert "recovery_s" not in found


def test_losses_of_the_company_are_losses() -> None:
    streams = [
        figures_of(the_records([Ended(0, 10)]), "m", sent_s=1, slo_ms=100),
        figures_of(
            the_records([Ended(0, 10, Outcome(RESET))]), "m", sent_s=1, slo_ms=100
        ),
    ]
    assert derived(streams, a_host(), capacity=1, floor=FLOOR)["lost"] == 1
