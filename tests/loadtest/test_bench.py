"""A whole load test, on a real platform."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from loadtest.bench import arrivals_ns
from loadtest.scenario import Step, Stream
from tests.architecture.checkout import ROOT

SCENARIO = """
title = "A short one"
warm_up_s = 1

[models.sim]
kind = "simulated"
alpha_ms = 2
beta_ms = 0.5
max_batch = 8
shape = [-1]

[[runs]]
name = "both"
seconds = 2
slo_ms = 5000
streams = [
  { model = "sim", per_second = 100, shapes = [[8], [16]], timeout_ms = 20000 },
  { model = "sim", arrivals = "closed", connections = 4, priority = "bulk" },
]
targets.answered = { at_least = 1 }
"""


def test_loads_are_multiples_of_the_capacity() -> None:
    stream = Stream(model="m", arrivals="even", load=0.5)
    found = arrivals_ns(stream, seconds=2, capacity=10, seed=0)
    assert found is not None
    assert list(found)[:3] == [200_000_000, 400_000_000, 600_000_000]
    assert len(found) in {9, 10}


def test_steps_follow_one_another() -> None:
    steps = (Step(load=1, seconds=10), Step(load=4, seconds=10))
    stream = Stream(model="m", steps=steps)
    found = arrivals_ns(stream, seconds=99, capacity=100, seed=0)
    assert found is not None
    assert list(found) == sorted(found)
    first = sum(instant < 10e9 for instant in found)
    assert first == pytest.approx(1000, rel=0.15)
    assert len(found) - first == pytest.approx(4000, rel=0.1)
    assert max(found) < 20e9
    assert found == arrivals_ns(stream, seconds=99, capacity=100, seed=0)
    assert found != arrivals_ns(stream, seconds=99, capacity=100, seed=1)


def test_a_trace_keeps_its_shape_at_the_rate_asked_for(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    instants = (0, 100, 200, 700)
    trace.write_text("".join(f'{{"timestamp": {each}}}\n' for each in instants))
    stream = Stream(model="m", arrivals=f"trace:{trace}", load=0.5)
    found = arrivals_ns(stream, seconds=9, capacity=2, seed=0)
    assert found is not None
    gaps = [after - before for before, after in pairwise(found)]
    assert sorted({round(gap / 1e9, 3) for gap in gaps}) == [0.429, 2.143]
    assert len(found) == pytest.approx(9, abs=2)


def test_closed_loops_have_no_arrivals() -> None:
    stream = Stream(model="m", arrivals="closed")
    assert arrivals_ns(stream, seconds=1, capacity=1, seed=0) is None


@pytest.mark.kafka
def test_a_scenario_from_start_to_report(tmp_path: Path) -> None:
    scenario = tmp_path / "short.toml"
    scenario.write_text(SCENARIO, "utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "loadtest", str(scenario)),
            *("--attempts", "1", "--out", str(tmp_path / "out")),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "met: both: answered >= 1" in done.stdout
    report = json.loads((tmp_path / "out" / "short.json").read_text("utf-8"))
    (result,) = report["runs"][0]["results"]
    online, bulk = result["streams"]
    assert online["lost"] == bulk["lost"] == 0
    assert bulk["outcomes"] == {"200": bulk["succeeded"]["count"]}
    assert online["offered"] == pytest.approx(100, rel=0.4)
    host = result["host"]
    assert set(host["cpu_us"]) == {
        *("ingress", "batch_former", "gpu_worker", "kafka", "generator")
    }
    assert min(host["cpu_us"].values()) > 0
    assert {"requests", "batches", "replies", "completions"} <= set(host["log_bytes"])
    # Eight rows in 6 ms: never sooner, and later where others take the processor.
    assert 8 / 0.06 < host["bare"] < 8 / 0.006 * 1.01
    assert 1 <= host["mean_batch"] <= 8
    assert set(host["hops_ms"]) == {"request", "control", "response"}
    assert (tmp_path / "out" / "short.html").read_text("utf-8").count("<svg") == 2
