"""``headrace simulate`` as it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.ctl.__main__ import main

POOL = ("--workers", "2", "--seconds", "1", "--load", "1.5")


@pytest.fixture
def simulate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """Run the command; its exit status, what it printed, what it said."""

    def call(*words: str) -> tuple[object, str, str]:
        monkeypatch.setattr("sys.argv", ["headrace", "simulate", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return ended.value.code, told.out, told.err

    return call


def test_json_has_the_figures_of_a_run(simulate: Any) -> None:
    status, out, err = simulate(*POOL, "--models", "3", "--json")

    told = msgspec.json.decode(out)
    assert (status, err) == (0, "")
    assert {
        *("offered", "goodput", "attainment", "p50_ms", "p99_ms", "mean_batch"),
        *("refused", "bound"),
    } <= set(told)
    assert told["goodput"] <= told["bound"]
    assert told["goodput"] <= told["attainment"] * told["offered"]
    assert told["refused"] == sum(told["reasons"].values()) > 0


def test_a_seed_repeats_a_run(simulate: Any) -> None:
    one, again, other = (
        simulate(*POOL, "--json", "--seed", seed)[1] for seed in ("1", "1", "2")
    )

    assert one == again
    assert one != other


def test_a_sweep_and_all_policies_are_a_row_each(simulate: Any) -> None:
    status, out, _ = simulate(*POOL, "--sweep", "0.5,1", "--compare")

    rows = [line.split()[:2] for line in out.splitlines() if "headrace" in line]
    assert status == 0
    assert rows == [["headrace", "0.5"], ["headrace", "1"]]
    assert out.count("symphony") == 2


@pytest.mark.parametrize("more", [(), ("--sweep", "0.5,1")])
def test_a_report_is_a_page_or_a_picture(
    simulate: Any, tmp_path: Path, more: tuple[str, ...]
) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "report.png"
    simulate(*POOL, *more, "--report", str(page))
    simulate(*POOL, *more, "--report", str(picture))

    text = page.read_text()
    assert text.count("<svg") == 1
    assert "<td>headrace</td>" in text
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("more", [(), ("--sweep", "0.5,1")])
def test_a_page_shows_the_bounds_and_what_each_tenant_had(
    simulate: Any, tmp_path: Path, more: tuple[str, ...]
) -> None:
    path, page = tmp_path / "scenario.toml", tmp_path / "report.html"
    path.write_text(
        'seconds = 1\n[[models]]\nname = "m"\n[[streams]]\nload = 0.5\n'
        '[[streams]]\ntenant = "greedy"\nload = 0.9\n'
    )

    simulate("--scenario", str(path), *more, "--report", str(page))

    text = page.read_text()
    assert ">overload bound</text>" in text
    assert ">zero-drop bound</text>" in text
    assert ">Device time by tenant" in text
    assert ">greedy</text>" in text


@pytest.mark.parametrize("more", [(), ("--sweep", "0.5,1")])
def test_a_model_that_starves_is_seen(
    simulate: Any, tmp_path: Path, more: tuple[str, ...]
) -> None:
    path, page = tmp_path / "scenario.toml", tmp_path / "report.html"
    path.write_text(
        'seconds = 1\n[[models]]\nname = "quick"\ncount = 3\n[[models]]\n'
        'name = "hopeless"\nalpha_ms = 150\n[[streams]]\nload = 0.5\n'
    )
    words = "--scenario", str(path), *more

    _, out, _ = simulate(*words, "--report", str(page))
    told = msgspec.json.decode(simulate(*words, "--json")[1])

    for each in told if more else [told]:
        assert set(each["models"]) == {"quick", "hopeless"}
        assert each["models"]["quick"]["attainment"] > 0.9
        assert each["models"]["hopeless"]["attainment"] == 0
        assert set(each["models"]["quick"]) == set(each["tenants"]["default"])
    assert ("model hopeless" in out) == (not more)
    assert ">Device time by model" in page.read_text()
    assert ("<td>model hopeless</td>" in page.read_text()) == (not more)


def test_a_scenario_file_says_it_all(simulate: Any, tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(
        'seconds = 1\n[[models]]\nname = "m"\n[[streams]]\nload = 0.5\n'
        '[[streams]]\ntenant = "b"\nload = 0.2\n'
    )

    status, out, _ = simulate("--scenario", str(path))
    refused, _, said = simulate("--scenario", str(path), "--workers", "2")

    assert status == 0
    assert "default" in out
    assert (refused, said) == (
        2,
        "headrace: --workers: the scenario's file says that already\n",
    )


def test_mlperf_scenarios_print_their_rates(simulate: Any) -> None:
    pool = "--workers", "2", "--seconds", "1"
    assert "samples/s" in simulate(*pool, "--mlperf", "offline")[1]
    assert "queries/s pass" in simulate(*pool, "--mlperf", "server")[1]


def test_mlperf_refuses_a_file_of_which_it_would_make_too_many_requests(
    simulate: Any, tmp_path: Path
) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(
        'seconds = 86400\n[[models]]\nname = "m"\n[[streams]]\nload = 0.1\n'
    )
    status, _, said = simulate("--scenario", str(path), "--mlperf", "offline")

    assert status == 2
    assert said.startswith("headrace: --mlperf offline: ")


def test_a_run_that_does_not_end_leaves_no_report(
    simulate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("services.ctl.simulate.simulate", interrupted)
    page = tmp_path / "report.html"
    status, _, _ = simulate(*POOL, "--report", str(page))

    assert status != 0
    assert not page.exists()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--workers", "0"), "--workers. Must be >= 1"),
        (("--arrivals", "gamma:x"), "say gamma:4 for bursts"),
        (("--alpha-ms", "0", "--beta-ms", "0"), "--alpha-ms, --beta-ms: alpha_ms and"),
        (
            ("--alpha-ms", "1e300"),
            "--alpha-ms: Input should be less than or equal to 3",
        ),
        (("--slo-ms", "nan"), "--slo-ms: Input should be a finite number, got nan"),
        (("--load", "1e12"), "--load: Input should be less than or equal to 1000, got"),
        (("--arrivals", "gamma:inf"), "--arrivals: gamma:inf names no variation"),
        (("--arrivals", "poisson:3"), "poisson takes nothing after it"),
        (("--seconds", "86400", "--load", "9"), "at most 100,000,000 do: lower load"),
        (("--sweep", "1,x"), "say multiples of the load"),
        (("--sweep", "1,inf"), "say multiples of the load, at most 1,000"),
        (("--sweep", "1,1000", "--seconds", "900"), "--sweep 1000: 2.22e+09 requests"),
        (("--sweep", "1e-9"), "--sweep 1e-9: 2.46e-05 requests would arrive in 10 s"),
        (("--workers", "1.5"), '--workers: "1.5" is no whole number'),
        (("--seed", "0.5"), '--seed: "0.5" is no whole number'),
        (("--arrivals", "trace:"), "none is named: say trace:FILE"),
        (("--arrivals", "trace"), "none is named: say trace:FILE"),
        (("--mlperf", "offline", "--slo-ms", "15"), "or none: omit --slo-ms"),
        (("--mlperf", "offline", "--load", "0.1"), "or none: omit --load"),
        (("--mlperf", "server", "--arrivals", "even"), "or none: omit --arrivals"),
        (("--mlperf", "server", "--report", "x.html"), "one rate: omit --report"),
        (("--mlperf", "offline", "--sweep", "1,2"), "one rate: omit --sweep"),
        (("--mlperf", "offline", "--compare"), "one rate: omit --compare"),
        (("--compare", "--policy", "fifo"), "runs every policy: omit --policy"),
        (("--policy", "triton", "--admission"), "has no door: omit --admission"),
        (("--report", "x.pdf"), "name a .html or a .png file"),
        (("--policy", "best"), "--policy"),
        (("--scenario", "nowhere.toml"), "nowhere.toml cannot be read"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    simulate: Any, words: tuple[str, ...], text: str
) -> None:
    status, out, err = simulate(*words)

    assert status in {1, 2}
    assert out == ""
    assert err.count("\n") == 1
    assert text in err
