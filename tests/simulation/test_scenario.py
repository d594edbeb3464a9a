"""What a scenario's file means, and what is said when it means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.domain import Priority
from headrace.errors import SetupError
from headrace.simulation import Scenario, Stream, read_scenario, simulate

TOML = """
seconds = 2
[pool]
workers = 2
speeds = [1.0, 2.0]
[[models]]
name = "twin"
count = 2
alpha_ms = 5
beta_ms = 0.25
[[models]]
name = "steps"
run_ms = { 1 = 10, 4 = 20 }
reading = "stepped"
max_batch = 4
[[streams]]
load = 0.5
models = ["steps"]
[[streams]]
rate = 10
priority = "interactive"
tenant = "b"
arrivals = "gamma:4"
[[streams]]
arrivals = "backlog:7"
priority = "bulk"
"""


def read(tmp_path: Path, text: str) -> Scenario:
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    return read_scenario(path)


def test_models_alike_are_numbered_and_tables_are_read_as_said(tmp_path: Path) -> None:
    models = read(tmp_path, TOML).build_models()

    assert [model.name for model in models] == ["twin-0", "twin-1", "steps"]
    assert [models[0].run_us(rows) for rows in (1, 32)] == [5_250, 13_000]
    assert [models[2].run_us(rows) for rows in (1, 2, 4)] == [10_000, 20_000, 20_000]


def test_a_load_is_a_part_of_what_the_workers_could_do(tmp_path: Path) -> None:
    steps, named, bulk = read(tmp_path, TOML).build_streams(factor=2.0)

    # 5 ms a row; a worker and one of half its speed; half of that, twice.
    assert steps == Stream(rate=pytest.approx(300.0), end_s=2.0, models=(2,))
    assert (named.rate, named.models, named.tenant) == (20.0, (0, 1, 2), "b")
    assert named.priority is Priority.INTERACTIVE
    assert (bulk.backlog, bulk.limit_us) == (7, None)


@pytest.mark.parametrize(
    ("right", "wrong", "text"),
    [
        ("workers = 2", "wrokers = 2", "pool.wrokers: Extra inputs"),
        ("load = 0.5", "load = 0.5\nrate = 3", "streams.0: say either rate"),
        ("rate = 10\n", "", "streams.1: say either rate"),
        ('"gamma:4"', '"gamma"', "streams.1.arrivals: gamma: names no variation"),
        ('"backlog:7"', '"backlog:0"', "say how many requests always wait"),
        ('"backlog:7"', '"backlog:7"\nrate = 3', "a backlog has neither"),
        ('"bulk"', '"batch"', "priorities are realtime, interactive, standard, bulk"),
        ('["steps"]', '["stpes"]', "no model is called stpes"),
        ('"twin"', '"steps"', "two models have one name"),
        ("max_batch = 4", "max_batch = 4\n[[pool.losses]]", "pool.losses"),
        ("load = 0.5", "load = 0.5\nrows = 8", "8 rows of a stream pass max_batch"),
        ("load = 0.5", "load = 0.5\nstart_s = 2", "ends before it starts"),
        ("seconds = 2", "seconds = 2\npolicy = 'x'", "policy: Input should be"),
    ],
)
def test_a_scenario_that_cannot_be_is_refused_by_its_place(
    tmp_path: Path, right: str, wrong: str, text: str
) -> None:
    assert right in TOML
    with pytest.raises(SetupError, match=text):
        read(tmp_path, TOML.replace(right, wrong))


def test_what_is_no_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="cannot be read"):
        read(tmp_path, "seconds = ")
    with pytest.raises(SetupError, match="cannot be read"):
        read_scenario(tmp_path / "nowhere.toml")


def test_a_run_is_summed_up_by_tenant_and_priority(tmp_path: Path) -> None:
    summary, results = simulate(read(tmp_path, TOML))

    assert set(summary.tenants) == {"default", "b"}
    assert set(summary.priorities) == {"standard", "interactive", "bulk"}
    parts = sum(share.device_part for share in summary.priorities.values())
    assert parts == pytest.approx(1.0)
    assert summary.unlimited == summary.priorities["bulk"].goodput > 0
    limited = results.of(limited=True)
    assert summary.offered * 2.0 == limited.offered
    assert summary.goodput <= summary.bound


def test_a_bound_follows_what_arrives_when() -> None:
    scenario = Scenario.model_validate(
        {
            "seconds": 10,
            "models": [{"name": "m", "alpha_ms": 0, "beta_ms": 1, "max_batch": 1}],
            "streams": [
                {"rate": 4_000, "end_s": 5, "limit_ms": 10},
                {"rate": 100, "start_s": 5, "limit_ms": 10},
            ],
        }
    )

    summary, _ = simulate(scenario)

    # A thousand a second for the first half, and for the last limit's length more.
    assert summary.bound == pytest.approx(0.5 * 1_001 + 0.5 * 100)
