"""Models whose runs fail: everybody is answered, and the platform says what is."""

from __future__ import annotations

import os
import signal
import time

import httpx
import numpy as np
import pytest

from services.ctl.client import infer_request
from tests.end_to_end.platforms import Platform, eventually, outputs_of
from tests.end_to_end.test_cases import together
from tests.freezing import freeze

pytestmark = pytest.mark.kafka


async def test_memory_that_shrinks_costs_no_answer(platform: Platform) -> None:
    inputs = [{"X": np.full((1, 4), n, np.float32)} for n in range(32)]
    answers, runs = await together(platform, "tight", inputs)

    assert [answer.status for answer in answers] == [200] * 32
    # 32, both halves, and the four quarters.
    assert 7 in runs
    assert platform.worker_value("runs_total", model="tight", outcome="oom") == 3


def test_what_is_too_large_either_way_is_refused_with_the_reason(
    platform: Platform,
) -> None:
    """A payload is at most 4 MiB, of a request as of a reply."""
    rows = {n: infer_request({"X": np.full((n, 1), n, np.float32)}) for n in (2, 11)}
    got = [
        platform.post("spread/infer", body.body, **dict(body.headers))
        for body in rows.values()
    ]
    wide = infer_request({"X": np.zeros((2, 600_000), np.float32)})
    sent = platform.post("identity_fp32/infer", wide.body, **dict(wide.headers))

    assert got[0].status_code == 200
    assert outputs_of(got[0])["Y"].tolist() == [[2.0] * 100_000] * 2
    for answer in (got[1], sent):
        assert answer.status_code == 413
        assert answer.headers["headrace-reason"] == "too_large"
    assert "the reply has 4400000 bytes, at most 4194304" in got[1].json()["error"]


def ready(platform: Platform, model: str) -> set[bool]:
    """What the ingresses say of the model."""
    return {
        httpx.get(f"{url}/v2/models/{model}/ready").status_code == 200
        for url in platform.document.http
    }


def test_a_stopped_worker_turns_its_models_not_ready_and_back(
    platform: Platform,
) -> None:
    """Case F1, of a stop: live is not ready, and nobody waits beyond his limit."""
    worker = platform.pids("gpu_worker")[0]
    row = infer_request({"X": np.ones((1, 4), np.float32)})
    before = platform.runs_of("quick")
    freeze(worker)
    try:
        began = time.monotonic()
        answer = platform.post("quick/infer", row.body, **dict(row.headers), **LIMIT)
        answered_s = time.monotonic() - began
        eventually(lambda: ready(platform, "quick") == {False})
        silent_s = time.monotonic() - began
        refused = platform.post("quick/infer", row.body, **dict(row.headers), **LIMIT)
        lives = httpx.get(f"{platform.url}/v2/health/live").status_code
    finally:
        os.kill(worker, signal.SIGCONT)

    # To the microsecond: `test_handler`. Here, not at the default of five seconds.
    assert (answer.status_code, answered_s < 4.5) == (504, True)
    assert silent_s < 20
    assert (refused.status_code, refused.headers["headrace-reason"]) == (
        503,
        "model_unavailable",
    )
    assert lives == 200
    eventually(lambda: ready(platform, "quick") == {True})
    again = platform.post("quick/infer", row.body, **dict(row.headers))
    assert again.status_code == 200
    assert platform.runs_of("quick") - before == 1  # what had expired is not run


LIMIT = {"headrace_timeout_ms": "1000"}


def test_a_model_that_fails_turns_not_ready_and_comes_back(platform: Platform) -> None:
    """Case F1, of runs that raise."""

    def ask(number: int) -> httpx.Response:
        data = {"name": "X", "shape": [1, 1], "datatype": "INT64", "data": [number]}
        return platform.post("moody/infer", {"inputs": [data]})

    def refuses() -> bool:
        answer = ask(-9)
        assert (answer.status_code, answer.headers["headrace-reason"]) in {
            (500, "model_error"),
            (503, "model_unavailable"),
            (503, "no_capacity"),  # it was queued when the breaker opened
        }
        return "runs in a row failed" in answer.text

    eventually(refuses)
    # Each try that fails keeps it shut for twice as long.
    eventually(lambda: refuses() and ready(platform, "moody") == {False})
    eventually(lambda: ready(platform, "moody") == {True})
    assert ask(5).json()["outputs"][0]["data"] == [5.0]
    assert ready(platform, "moody") == {True}
