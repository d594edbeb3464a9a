"""What a scenario's file means, and what is said when it means nothing."""

from __future__ import annotations

import tomllib
from collections import ChainMap
from pathlib import Path

import pytest

from headrace import simulation
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
        ("workers = 2", "wrokers = 2", "pool.wrokers: there is no such key"),
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

    summary, results = simulate(scenario)

    # A thousand a second for the first half and the limit's length more; then whoever
    # came, which the dice make some more than 500.
    came = results.kinds[1][1].offered
    assert came != 500
    assert summary.bound == pytest.approx((5_010 + came) / 10)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "streams",
    [
        [{"load": 1.0}],
        [{"load": 0.6, "end_s": 0.7}, {"load": 0.4, "start_s": 0.3}],
    ],
)
def test_dice_that_offer_more_than_expected_raise_the_bound(
    streams: list[dict[str, float]], seed: int
) -> None:
    """A run of 5 ms, however many rows, takes 6,400 a second; all that comes in a
    second is answered in it and the limit after it."""
    scenario = Scenario.model_validate(
        {
            "seconds": 1,
            "seed": seed,
            "models": [{"name": "m", "beta_ms": 0}],
            "streams": streams,
        }
    )

    summary, _ = simulate(scenario)

    assert summary.goodput <= summary.bound <= min(summary.offered, 6_400 * 1.1)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1", "1e300", "true", '"x"'])
@pytest.mark.parametrize(
    ("right", "place"),
    [
        ("seconds = 2", "seconds"),
        ("workers = 2", "pool.workers"),
        ("alpha_ms = 5", "models.0.alpha_ms"),
        ("beta_ms = 0.25", "models.0.beta_ms"),
        ("max_batch = 4", "models.1.max_batch"),
        ("load = 0.5", "streams.0.load"),
        ("rate = 10", "streams.1.rate"),
    ],
)
def test_a_number_that_means_nothing_is_refused_with_what_it_was(
    tmp_path: Path, right: str, place: str, value: str
) -> None:
    name = right.partition(" = ")[0]
    with pytest.raises(SetupError) as refused:
        read(tmp_path, TOML.replace(right, f"{name} = {value}", 1))

    text = str(refused.value)
    assert f"{place}: Input should be" in text
    given = {"true": "True", '"x"': "'x'", "1e300": "1e+300"}.get(value, value)
    assert text.count(", got ") == 1
    assert f", got {given}" in text


@pytest.mark.parametrize(
    ("right", "wrong", "text"),
    [
        ("alpha_ms = 5\nbeta_ms = 0.25", "alpha_ms = 0\nbeta_ms = 0", "no time"),
        ("alpha_ms = 5\nbeta_ms = 0.25", "alpha_ms = 0\nbeta_ms = 1e-9", "no time"),
        ("1 = 10", "1 = 0", "models.1: run_ms give a run no time"),
        ("rate = 10", "rate = 1e9", "requests would arrive in 2 s, at most 100,000,"),
        ('"gamma:4"', '"gamma:inf"', "gamma:inf names no variation from 0.001"),
        ('"gamma:4"', '"gamma:nan"', "gamma:nan names no variation"),
        ('"gamma:4"', '"gamma:1e9"', "gamma:1e9 names no variation"),
        ('"gamma:4"', '"poisson:3"', "poisson takes nothing after it"),
        ('"gamma:4"', '"even:"', "even takes nothing after it"),
        ('"gamma:4"', '"once:3"', "arrivals 'once:3' are unknown"),
        ('"backlog:7"', '"backlog:99999999"', "always wait, 1 to 1,000,000"),
        ("count = 2", "count = 10000\nmax_batch = 10000", "at most 1,000,000"),
        ('"twin"', '"steps-0"\n[[models]]\nname="steps"', "two models have one name"),
        ("load = 0.5", "load = 0.5\nstart_s = 2\nend_s = 3", "ends before it starts"),
    ],
)
def test_what_never_ends_or_tells_nothing_is_refused(
    tmp_path: Path, right: str, wrong: str, text: str
) -> None:
    assert right in TOML
    with pytest.raises(SetupError, match=text):
        read(tmp_path, TOML.replace(right, wrong, 1))


@pytest.mark.parametrize(
    "wrong",
    [
        "scheduling.tenant_weights = { a = inf }",
        "scheduling.tenant_weights = { a = 1e-9 }",
        "scheduling.burst_us = 86_400_000_001",
        "scheduling.control_hop_us = -1",
        "scheduling.batch_bytes_max = 99_999_999_999_999",
        "scheduling.queue_requests_max = 99_999_999_999_999",
        "scheduling.gate = nan",
        "door.choice = inf",
        "door.load_age_us_max = 86_400_000_001",
        "door.concurrency_max = 99_999_999",
        "door.batches_within_limit_min = 1_001",
    ],
)
def test_settings_of_the_product_have_limits_there_too(
    tmp_path: Path, wrong: str
) -> None:
    place = wrong.partition(" = ")[0]
    with pytest.raises(SetupError, match=rf"{place}.*: Input should be .*, got "):
        read(tmp_path, f"{wrong}\n{TOML}")


def test_counts_that_would_take_all_memory_are_refused() -> None:
    told = {
        "seconds": 86_400,
        "models": [{"name": "m", "count": 1_000}],
        "streams": [{"rate": 1}],
    }
    with pytest.raises(
        ValueError, match=r"1,000 kinds .* are 86,400,000 to be counted"
    ):
        Scenario.model_validate(told)


def test_a_run_without_requests_is_refused() -> None:
    told = {"models": [{"name": "m"}], "streams": [{"rate": 0.05}]}
    with pytest.raises(ValueError, match=r"0.5 requests would arrive in 10 s: raise"):
        Scenario.model_validate(told)


def test_the_readme_shows_every_key_in_a_scenario_that_runs(tmp_path: Path) -> None:
    told = Path(simulation.__file__).with_name("README.md").read_text()
    text = told.split("```toml\n")[1].split("```")[0]
    scenario = read(tmp_path, text)
    written = tomllib.loads(text)
    sections = [
        *((written, Scenario), (written["pool"], type(scenario.pool))),
        (written["pool"]["losses"][0], type(scenario.pool.losses[0])),
        (dict(ChainMap(*written["models"])), type(scenario.models[0])),
        (dict(ChainMap(*written["streams"])), type(scenario.streams[0])),
    ]

    for section, model in sections:
        assert set(section) == set(model.model_fields)
    summary, _ = simulate(scenario.model_copy(update={"seconds": 1.0}))
    assert summary.goodput > 0
