"""Scenario files, and the sentences about wrong ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.errors import SetupError
from loadtest.__main__ import main
from loadtest.figures import derived, figures_of
from loadtest.scenario import SCENARIOS, Scenario, Simulated, read_scenario
from tests.loadtest.builders import FLOOR, a_host, the_records

MODEL = '[models.m]\nkind = "simulated"\nalpha_ms = 5\nbeta_ms = 0.25\n'


def written(folder: Path, text: str) -> str:
    path = folder / "scenario.toml"
    path.write_text(text, "utf-8")
    return str(path)


def a_scenario(folder: Path, run: str, stream: str) -> Scenario:
    text = f'title = "t"\n{MODEL}[[runs]]\nname = "r"\n{run}\n[[runs.streams]]\n'
    return read_scenario(written(folder, f'{text}model = "m"\n{stream}\n'))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["tiny"], "--only nope is in the name of no run: there are tiny: "),
        (["tiny", "bulk"], "; bulk: "),
    ],
)
def test_a_run_that_no_scenario_has_is_refused_with_those_that_there_are(
    arguments: list[str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["loadtest", *arguments, "--only", "nope"])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_the_shipped_scenarios_are_right() -> None:
    names = sorted(path.stem for path in SCENARIOS.glob("*.toml"))
    assert names == [
        "accelerator",
        "bulk",
        "fused",
        "ingresses",
        "limits",
        "overload",
        "shapes",
        "tiny",
    ]
    for name in names:
        assert read_scenario(name).title


def test_capacity_is_that_of_full_batches() -> None:
    model = Simulated(kind="simulated", alpha_ms=5, beta_ms=0.25)
    assert model.capacity == pytest.approx(32 / 0.013)


def test_steps_make_the_length(tmp_path: Path) -> None:
    steps = "steps = [{ load = 1, seconds = 2 }, { load = 3, seconds = 1.5 }]"
    (run,) = a_scenario(tmp_path, "seconds = 99", steps).runs
    assert run.length_s == 3.5


@pytest.mark.parametrize(
    ("run", "stream", "sentence"),
    [
        ("", "", "say one of load, per_second and steps"),
        ("", "load = 1\nper_second = 5", "say one of load, per_second and steps"),
        ("", 'arrivals = "closed"\nload = 1', "a closed loop has no load"),
        ("", "load = 1\nlaod = 2", "runs.0.streams.0.laod: there is no such key"),
        ("targets.p50_ms = {}", "load = 1", "say either at_least or at_most"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, run: str, stream: str, sentence: str
) -> None:
    with pytest.raises(SetupError, match=sentence):
        a_scenario(tmp_path, run, stream)


def test_a_run_asks_for_a_model_that_is_there(tmp_path: Path) -> None:
    text = f'title = "t"\n{MODEL}[[runs]]\nname = "r"\n'
    text += 'streams = [{ model = "n", load = 1 }]\n'
    with pytest.raises(SetupError, match="the model 'n', which is not one of m"):
        read_scenario(written(tmp_path, text))


def test_an_unknown_scenario_names_those_that_there_are() -> None:
    with pytest.raises(SetupError, match="there are accelerator, bulk"):
        read_scenario("nothing")


def test_targets_name_figures_that_are_measured() -> None:
    stream = figures_of(the_records([]), "m", sent_s=1, slo_ms=1, last_step_s=0)
    services = ("ingress", "batch_former", "gpu_worker", "kafka", "generator")
    host = a_host(cpu_us=dict.fromkeys(services, 1.0), bare=1.0)
    known = set(derived([stream], host, capacity=1, floor=FLOOR))
    known.add("mean_batch_of_first")
    for path in SCENARIOS.glob("*.toml"):
        for run in read_scenario(path.stem).runs:
            assert set(run.targets) - known == set()
