"""Answers that are asked for later, from any ingress, whatever has died meanwhile."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest

from services.ctl.client import infer_request
from tests.end_to_end.platforms import (
    Platform,
    Wire,
    eventually,
    occupied,
    outputs_of,
    running,
)
from tests.models.folders import put_simulated

pytestmark = pytest.mark.kafka

JSON = {
    "id": "mine",
    "inputs": [
        {"name": "X", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}
    ],
}


UNHURRIED = {"headrace_timeout_ms": "60000"}


def ask(platform: Platform, path: str = "quick/infer", **headers: str) -> str:
    """A request to be answered later; the path of its answer."""
    answer = platform.post(path, JSON, Prefer="respond-async", **headers)
    assert answer.status_code == 202, answer.text
    name = answer.json()["id"]
    assert answer.headers["location"] == f"/v2/requests/{name}"
    assert answer.headers["preference-applied"] == "respond-async"
    return str(answer.headers["location"])


def test_the_answer_is_the_very_one_that_a_waiting_client_gets(
    platform: Platform,
) -> None:
    at_once = platform.post("quick/infer", JSON, x_request_id="a")
    path = ask(platform, x_request_id="a")

    for url in platform.document.http:
        later = platform.client.get(f"{url}{path}?wait=30")
        assert later.status_code == 200
        assert later.content == at_once.content
        for name in ("content-type", "x-request-id"):
            assert later.headers[name] == at_once.headers[name]
        assert later.headers["headrace-request-id"] in path


def test_an_answer_in_binary_form_stays_binary(platform: Platform) -> None:
    values = np.array([[1, 2, 3, 4]], np.float32)
    row = infer_request({"X": values})
    accepted = platform.post(
        "quick/infer", row.body, **dict(row.headers), prefer="respond-async"
    )
    later = platform.client.get(
        f"{platform.url}{accepted.headers['location']}?wait=30",
        headers={"accept-encoding": "identity"},
    )
    (output,) = outputs_of(later).values()
    assert np.array_equal(output, values)


def test_a_request_without_an_answer_yet_is_pending(platform: Platform) -> None:
    with occupied(platform):
        path = ask(platform, "paced/infer", **UNHURRIED)
        pending = platform.client.get(f"{platform.url}{path}")
    assert pending.status_code == 202
    assert pending.headers["location"] == path
    assert platform.client.get(f"{platform.url}{path}?wait=20").status_code == 200
    # Without a wait, too, once it is there.
    assert platform.client.get(f"{platform.url}{path}").status_code == 200


@pytest.mark.parametrize(
    "name",
    ["x", "0" * 32, "0" * 32 + ".quick.2.99999", "0" * 32 + ".nobody.2.0", "..%2f"],
)
def test_an_unknown_request_is_not_found(platform: Platform, name: str) -> None:
    answer = platform.client.get(f"{platform.url}/v2/requests/{name}")
    assert answer.status_code == 404
    assert "error" in answer.json()


def test_a_request_is_its_tenants_alone(platform: Platform) -> None:
    path = ask(platform, headrace_tenant="acme")

    def status(tenant: str) -> int:
        url = f"{platform.url}{path}?wait=20"
        return httpx.get(url, headers={"headrace-tenant": tenant}).status_code

    assert (status("acme"), status("other")) == (200, 404)


def test_what_is_queued_can_be_cancelled(platform: Platform) -> None:
    with occupied(platform):
        paths = [ask(platform, "lone/infer", **UNHURRIED) for _ in range(2)]
        last = f"{platform.document.http[1]}{paths[-1]}"
        assert platform.client.delete(last).status_code == 204
    answer = platform.client.get(f"{last}?wait=20")
    assert (answer.status_code, answer.headers["headrace-reason"]) == (499, "cancelled")
    assert platform.client.delete(last).status_code == 204
    first = f"{platform.url}{paths[0]}"
    assert platform.client.get(f"{first}?wait=20").status_code == 200
    assert platform.client.delete(first).status_code == 409


def test_an_error_is_kept_like_an_answer(platform: Platform) -> None:
    index = {"name": "IDX", "shape": [1, 1], "datatype": "INT64", "data": [99]}
    bad = {"inputs": [index]}
    at_once = platform.post("lookup/infer", bad)
    accepted = platform.post("lookup/infer", bad, Prefer="respond-async")

    url = f"{platform.url}{accepted.headers['location']}?wait=20"
    later = platform.client.get(url)
    assert later.status_code == at_once.status_code >= 400
    assert later.json() == at_once.json()
    assert later.headers["headrace-reason"] == at_once.headers["headrace-reason"]


@pytest.mark.parametrize("wait", ["x", "-1", "1.5"])
def test_a_wait_that_is_no_number_of_seconds_is_refused(
    platform: Platform, wait: str
) -> None:
    path = ask(platform)
    answer = platform.client.get(f"{platform.url}{path}?wait={wait}")
    assert answer.status_code == 400
    assert "wait must be" in answer.json()["error"]


@dataclass
class SecondLife:
    platform: Platform
    data: Path
    asked: list[str]
    """Requests of the first life; the first of them was answered in it."""
    answered: bytes


@pytest.fixture(scope="module")
def second_life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondLife]:
    """A platform on the data of one of which every process was killed."""
    folder = tmp_path_factory.mktemp("lives")
    models, data = folder / "models", folder / "data"
    put_simulated(models, "slow", "1", alpha_ms=500, max_batch=1)
    with running(models, folder, data=data) as platform:
        # Longer than any machine takes to start everything anew.
        limit = {"headrace_timeout_ms": "120000"}
        paths = [ask(platform, "slow/infer", **limit) for _ in range(3)]
        early = platform.client.get(f"{platform.url}{paths[0]}?wait=20")
        assert early.status_code == 200
        processes = psutil.Process(platform.process.pid).children(recursive=True)
        platform.process.kill()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, 60)

    with running(models, folder, data=data) as platform:
        yield SecondLife(platform, data, paths, early.content)


def test_answers_outlive_every_process(second_life: SecondLife) -> None:
    """One was answered, one ran, one was queued when all was killed."""
    url = second_life.platform.url
    for path in second_life.asked:
        late = second_life.platform.client.get(f"{url}{path}?wait=30")
        assert late.status_code == 200
        assert late.content == second_life.answered


def test_a_stop_drains_what_was_accepted_and_ends_in_time(
    second_life: SecondLife,
) -> None:
    """The last test of ``second_life``."""
    platform = second_life.platform
    row = infer_request({"X": np.ones((1, 4), np.float32)})
    headers = [f"{name}: {value}" for name, value in row.headers.items()]
    headers.append("headrace-timeout-ms: 20000")
    with ExitStack() as stack:
        wires = [
            stack.enter_context(closing(Wire(platform.url, "slow"))) for _ in range(4)
        ]
        ran = platform.stats("slow")[1]
        for wire in wires:
            wire.send(row.body, *headers)
        eventually(lambda: platform.stats("slow")[1] > ran)
        pids = [pid for group in platform.document.pids.values() for pid in group]

        began = time.monotonic()
        # From another shell, as an operator does.
        down = subprocess.run(
            [
                *(sys.executable, "-m", "services.ctl"),
                *("down", "--data", str(second_life.data)),
            ],
            check=False,
        )
        status = platform.process.wait(20)
        took_s = time.monotonic() - began
        statuses = [answer and answer[0] for answer in (w.answer() for w in wires)]

    assert (down.returncode, status) == (0, 0)
    assert took_s < 40
    assert statuses == [200] * 4
    assert not any(psutil.pid_exists(pid) for pid in pids)
