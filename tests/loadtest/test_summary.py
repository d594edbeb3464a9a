"""Rounds, targets and baselines."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headrace.errors import SetupError
from loadtest import summary
from loadtest.bench import Result
from loadtest.figures import figures_of, timeline_of
from loadtest.report import write_report
from loadtest.scenario import Run, Scenario, Simulated, Stream, Target
from loadtest.summary import (
    judge,
    read_baseline,
    summarise,
    write_baseline,
)
from tests.loadtest.builders import Ended, a_host, the_records


def a_result(run: str = "r", platform: str = "", **figures: float) -> Result:
    records = the_records([Ended(0, 10)])
    base = {
        "answered": 1.0,
        "goodput": 1.0,
        "attainment": 1.0,
        "p50_ms": 10.0,
        "p99_ms": 10.0,
        "refused_p99_ms": 0.0,
        "mean_batch": 32.0,
        "cpu_us": 100.0,
        "cpu_of_floor": 3.0,
        "ingress_us": 40.0,
        "batch_former_us": 20.0,
        "gpu_worker_us": 10.0,
        "kafka_us": 30.0,
    }
    return Result(
        run,
        platform,
        0,
        [figures_of(records, "m", sent_s=1, slo_ms=100)],
        a_host(),
        base | figures,
        timeline_of(records, sent_s=1, slo_ms=100),
        0.0,
    )


def a_scenario(**targets: Target) -> Scenario:
    return Scenario(
        title="t",
        models={"m": Simulated(kind="simulated", alpha_ms=1, beta_ms=1)},
        runs=(Run(name="r", streams=(Stream(model="m", load=1),), targets=targets),),
    )


def test_rounds_become_a_median_with_its_range() -> None:
    rounds = [a_result(goodput=value) for value in (3.0, 1.0, 2.0)]
    (found,) = summarise(rounds)
    value = found.figures["goodput"]
    assert (value.median, value.least, value.most) == (2, 1, 3)


def test_later_platforms_are_compared_with_the_first() -> None:
    results = [
        a_result(platform="", mean_batch=30.0),
        a_result(platform="ingress=4", mean_batch=24.0),
    ]
    first, second = summarise(results)
    assert "mean_batch_of_first" not in first.figures
    assert second.figures["mean_batch_of_first"].median == 0.8
    assert second.name == "r (ingress=4)"


def test_targets_are_judged_by_the_median() -> None:
    scenario = a_scenario(
        goodput=Target(at_least=2), p99_ms=Target(at_most=9), busy=Target(at_least=0)
    )
    rounds = [a_result(goodput=value) for value in (0.0, 2.0, 5.0)]
    judged = judge(scenario, summarise(rounds))
    assert [(each.figure, each.met, each.value) for each in judged] == [
        ("goodput", True, 2.0),
        ("p99_ms", False, 10.0),
        ("busy", False, None),
    ]


def test_a_comparison_of_platforms_needs_two() -> None:
    scenario = a_scenario(mean_batch_of_first=Target(at_least=0.9))
    assert judge(scenario, summarise([a_result()])) == []


def test_a_baseline_keeps_ratios_and_runs_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary, "BASELINES", tmp_path)
    assert read_baseline("s") == {}
    write_baseline("s", summarise([a_result("a"), a_result("b")]))
    write_baseline("s", summarise([a_result("b", mean_batch=8.0)]))
    kept = read_baseline("s")
    assert kept["a"] == {"attainment": 1, "mean_batch": 32, "cpu_of_floor": 3}
    assert kept["b"]["mean_batch"] == 8
    (tmp_path / "s.json").write_text("{")
    with pytest.raises(SetupError, match=r"s\.json cannot be read"):
        read_baseline("s")


def test_a_report_holds_the_rows_and_the_plots(tmp_path: Path) -> None:
    host = a_host(memory_mb={"ingress": 61.2}, log_bytes={"requests": 412.0})
    result = msgspec.structs.replace(a_result("<run>", recovery_s=1.0), host=host)
    summaries = summarise([result])
    page = write_report(tmp_path, "s", "Title & more", summaries, [])
    text = page.read_text("utf-8")
    assert "<h1>Title &amp; more</h1>" in text
    assert "<td>&lt;run&gt;<td>1<td>1" in text
    assert text.count("<svg") == 3
    assert "<th>ingress MB<th>requests bytes" in text
    assert "<td>61<td>412" in text
    assert (tmp_path / "s.json").stat().st_size > 100
