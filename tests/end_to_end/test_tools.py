"""The commands that ask a running platform."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.end_to_end.platforms import Platform

pytestmark = pytest.mark.kafka


def headrace(
    platform: Platform, *arguments: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "services.ctl", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        env={
            **os.environ,
            "HEADRACE_URL": platform.url,
            "KAFKA_BOOTSTRAP_SERVERS": platform.document.bootstrap_servers,
        },
        check=False,
    )


def test_models_say_what_is_served_and_why_not(platform: Platform) -> None:
    done = headrace(platform, "models", "--output", "json")

    assert done.returncode == 0, done.stderr
    rows = {(row["model"], row["version"]): row for row in json.loads(done.stdout)}
    served = rows["lookup", "1"]
    assert (served["slots"], served["max_batch"]) == ({"ready": [0]}, 8)
    assert set(served["run_ms"]) == {"1", "2", "3", "8"}
    refused = rows["refused", "1"]
    assert refused["slots"] == {"refused": [0]}
    assert "FancyOp" in refused["reasons"][0]


def test_topics_show_every_priority_of_a_model(platform: Platform) -> None:
    platform.post("lookup/infer", LOOKUP)

    done = headrace(platform, "topics", "--output", "json")

    assert done.returncode == 0, done.stderr
    rows = [row for row in json.loads(done.stdout) if row["model"] == "lookup"]
    assert [row["priority"] for row in rows] == [
        "realtime",
        "interactive",
        "standard",
        "bulk",
    ]
    assert all(row["lane"] == 0 and row["held"] is not None for row in rows)
    assert rows[2]["end"] > 0
    assert rows[0]["end"] == rows[0]["waiting"] == 0


LOOKUP = {
    "inputs": [{"name": "IDX", "datatype": "INT64", "shape": [1, 1], "data": [3]}]
}


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (["--input", "IDX=[[3]]"], ""),
        (["--input", "IDX=3"], ""),
        (["-i", json.dumps(LOOKUP)], ""),
        (["--input", "-"], json.dumps(LOOKUP)),
    ],
)
def test_infer_takes_input_as_people_write_it(
    platform: Platform, arguments: list[str], stdin: str
) -> None:
    done = headrace(
        platform, "infer", "lookup", *arguments, "--output", "json", stdin=stdin
    )

    assert done.returncode == 0, done.stderr
    (output,) = json.loads(done.stdout)["outputs"]
    assert output["data"] == [12, 13, 14, 15]


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["lookup"], 2, "it takes IDX (INT64 [-1, 1])"),
        (["lookup", "--input", "X=1"], 2, "there is no input 'X': it takes IDX."),
        (["lookup", "--input", "IDX=[[1],[2,3]]"], 2, "rows differ in length"),
        (["lookup", "--input", "IDX=[1000000]"], 1, "400: "),
        (["nothing", "--input", "X=1"], 1, "404: unknown model 'nothing'"),
    ],
)
def test_infer_says_in_one_sentence_what_is_wrong(
    platform: Platform, arguments: list[str], status: int, sentence: str
) -> None:
    done = headrace(platform, "infer", *arguments)

    assert (done.returncode, done.stdout) == (status, "")
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_strings_need_no_quotes(platform: Platform) -> None:
    done = headrace(
        platform, "infer", "identity_bytes", "--input", "X=größe", "--output", "json"
    )

    assert json.loads(done.stdout)["outputs"][0]["data"] == ["größe"]
