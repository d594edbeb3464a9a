"""The tools of an operator, on a platform that has answered."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from headrace.broker import KafkaAdmin
from headrace.lifecycle import BusSettings
from headrace.wire import results_topic
from services.ctl.client import infer_request
from tests.end_to_end.platforms import Platform, eventually
from tests.end_to_end.test_records import addsub_request, put

pytestmark = pytest.mark.kafka


def headrace(platform: Platform, *arguments: str) -> tuple[int, Any]:
    """Exit status, and the document on stdout."""
    servers = platform.document.bootstrap_servers
    done = subprocess.run(
        [
            *(sys.executable, "-m", "services.ctl", *arguments),
            *("--bootstrap", servers),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def test_what_was_answered_passes_the_audit(platform: Platform) -> None:
    for value in range(20):
        platform.infer("rowmean", {"X": np.full((1, 8), value, np.float32)})

    status, report = headrace(
        platform, "audit", "--from", "-5m", "--model", "rowmean", "--json"
    )

    assert report["findings"] == []
    assert (status, report["is_truncated"]) == (0, False)
    assert report["counts"]["successes"] >= 20
    assert report["counts"]["commits"] > 0


def test_a_request_and_its_batch_are_explained(platform: Platform) -> None:
    body = {
        "id": uuid4().hex,
        "inputs": [
            {"name": "X", "shape": [2, 4], "datatype": "FP32", "data": [1.0] * 8}
        ],
    }
    answer = platform.post("quick/infer", body)
    request_id = answer.headers["headrace-request-id"]

    def explained(name: str) -> Any:
        return headrace(platform, "explain", name, "--output", "json")[1]

    eventually(lambda: len(explained(request_id)["steps"]) == 4)
    trail = explained(request_id)
    assert (trail["id"], trail["client_id"]) == (request_id, body["id"])
    asked, sent, *ends = [step["what"] for step in trail["steps"]]
    assert asked == "asked"
    assert {end.partition(":")[0] for end in ends} >= {"answered"}
    assert explained(str(body["id"])) == trail

    batch_id = sent.split("in batch ")[1][:32]
    batch = explained(batch_id)
    assert batch["batch"] == batch_id
    assert request_id in {member["id"] for member in batch["members"]}
    assert batch["ran"]["run_us"] >= 20_000
    assert batch["sent"]["predicted_us"] > 0
    assert all(member["queued_us"] is not None for member in batch["members"])


def test_a_request_is_shown_whole_and_its_records_as_lines(platform: Platform) -> None:
    value = np.arange(8, dtype=np.float32).reshape(1, 8)
    request = infer_request({"X": value})
    answer = platform.client.post(
        f"{platform.url}/v2/models/rowmean/infer",
        content=request.body,
        headers=dict(request.headers),
    )
    request_id = answer.headers["headrace-request-id"]

    shown: list[Any] = []

    def is_whole() -> bool:
        shown.append(headrace(platform, "show", request_id, "--json")[1])
        return bool(shown[-1]["stages"])

    eventually(is_whole)
    life = shown[-1]
    assert life["payload"]["inputs"][0]["first"].startswith("[0.0,1.0,2.0,3.0")
    assert [each["outputs"][0]["first"] for each in life["answers"]] == ["[3.5]"]
    *parts, whole = [stage["us"] for stage in life["stages"]]
    assert (
        whole == sum(parts) == life["answers"][0]["at_us"] - life["steps"][0]["at_us"]
    )

    lines = subprocess.run(
        [
            *(sys.executable, "-m", "services.ctl", "tail", "requests", "replies"),
            *("batches", "--from", "-5m", "--no-follow", "--json"),
            *("--id", request_id, "--model", "rowmean"),
            *("--bootstrap", platform.document.bootstrap_servers),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.splitlines()
    entries = [json.loads(line) for line in lines]
    assert [each["kind"] for each in entries] == ["requests", "batches", "replies"]
    assert (entries[2]["status"], entries[2]["id"]) == ("ok", request_id)


def test_a_name_that_is_not_there_is_told_from_those_that_are(
    platform: Platform,
) -> None:
    servers = platform.document.bootstrap_servers

    def said(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "services.ctl", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stderr

    at = ("--bootstrap", servers)
    place = "headrace.requests.rowmean/99/0"
    status, text = said("show", place, *at)
    assert (status, "rowmean has no partition 99: it has the part" in text) == (2, True)
    status, text = said("infer", "nosuch", "-i", "x=1", "--url", platform.url)
    assert (status, "; the models there are: " in text, "rowmean" in text) == (
        (1, True, True)
    )
    status, text = said("tail", "--id", "nosuch", "--no-follow", *at)
    assert (status, text.startswith("The log has nothing of nosuch since")) == (1, True)


def test_a_dead_letter_is_put_back_once_its_cause_is_gone(platform: Platform) -> None:
    bus = BusSettings(bootstrap_servers=platform.document.bootstrap_servers)
    job, identity = uuid4().hex[:8], uuid4().hex
    results = results_topic(bus.topics, "acme", job, bus)
    put(
        bus.connection("test"),
        "addsub",
        addsub_request(typed=False).SerializeToString(),
        [("ce_id", identity.encode()), ("reply-topic", results.name.encode())],
    )

    def found() -> tuple[int, Any]:
        return headrace(platform, "deadletters", "show", identity, "--output", "json")

    eventually(lambda: found()[0] == 0)
    (details,) = found()[1]
    assert details["row"]["reason"] == "reply_address"
    assert [each["name"] for each in details["payload"]["inputs"]] == [
        "INPUT0",
        "INPUT1",
    ]

    KafkaAdmin(bus.connection("test")).create_topics([results], 20)

    def redriven() -> tuple[int, str]:
        status, (row,) = headrace(
            platform, "deadletters", "redrive", identity, "--output", "json"
        )
        return status, row["fate"]

    assert redriven() == (0, "sent")

    def ends() -> list[str]:
        trail = headrace(platform, "explain", identity, "--output", "json")[1]
        return [step["what"] for step in trail["steps"]]

    eventually(lambda: "answered: success" in ends())
    assert redriven() == (0, "redriven")
