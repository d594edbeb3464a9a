"""Processes die; requests are answered, and everything comes back by itself."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import httpx
import numpy as np
import psutil
import pytest

from headrace.audit import Kind
from headrace.broker import KafkaConnection, tail
from headrace.wire import Batch, Topics, decode_order
from services.ctl.client import infer_request
from tests.end_to_end.platforms import Platform, Wire, eventually, outputs_of, running
from tests.end_to_end.test_tools import headrace
from tests.models import graphs
from tests.models.folders import put_version

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def sturdy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Two of everything behind two lanes, so that one may die. Batches skip the log, so
    that links die with them; `tests/chaos` has the same without."""
    models = tmp_path_factory.mktemp("models")
    put_version(models, "echo", "1", graphs.identity("INT64"))
    folder = tmp_path_factory.mktemp("up")
    counts = ("--ingress", "2", "--formers", "2", "--workers", "2", "--lanes", "2")
    with running(models, folder, *counts, "--fused") as started:
        yield started


SILENT_S = 30.0


class Clients:
    """A few clients that each send unique values, one after another, and note every
    answer that is neither their own value nor an explicit refusal."""

    def __init__(self, url: str, count: int = 8) -> None:
        self._url = url
        self._stop = threading.Event()
        self.answered = 0
        self.refused = 0
        self.foreign: list[str] = []
        self.slowest_s = 0.0
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(number,))
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        with httpx.Client(timeout=SILENT_S) as client:
            value = number * 1_000_000
            while not self._stop.is_set():
                value += 1
                self._ask(client, value)

    def _ask(self, client: httpx.Client, value: int) -> None:
        request = infer_request({"X": np.array([[value]])})
        sent = time.monotonic()
        try:
            answer = client.post(
                f"{self._url}/v2/models/echo/infer",
                content=request.body,
                headers={**request.headers, "headrace-timeout-ms": "3000"},
            )
        except httpx.TimeoutException:
            with self._lock:
                self.foreign.append(f"no answer within {SILENT_S} s")
            return
        except httpx.TransportError:
            # The ingress itself died or is not back yet.
            time.sleep(0.05)
            return
        took_s = time.monotonic() - sent
        with self._lock:
            self.slowest_s = max(self.slowest_s, took_s)
            if answer.status_code == 200:
                self.answered += 1
                if outputs_of(answer)["Y"].tolist() != [[value]]:
                    self.foreign.append(answer.text)
            elif answer.status_code in {503, 504}:
                self.refused += 1
                time.sleep(0.05)
            else:
                self.foreign.append(f"{answer.status_code}: {answer.text}")


@pytest.mark.parametrize("service", ["gpu_worker", "batch_former"])
def test_a_killed_process_costs_no_foreign_answer_and_is_replaced(
    sturdy: Platform, service: str
) -> None:
    """Case F1, of a kill: whoever was on board is answered, and live is live."""
    clients = Clients(sturdy.url)
    eventually(lambda: clients.answered > 100)
    pid = sturdy.pids(service)[0]

    os.kill(pid, signal.SIGKILL)
    restarted = sturdy.restart_of(service)
    assert restarted["slot"] == 0
    assert restarted["previous_exit"] == "signal:SIGKILL"
    answered = clients.answered
    assert httpx.get(f"{sturdy.url}/v2/health/live").status_code == 200
    eventually(lambda: clients.answered > answered + 300)
    clients.stop()

    assert clients.foreign == []
    # By the time limit, but for what this process itself had to wait for a core.
    assert clients.slowest_s < 3.0 + 4.0
    # Two lanes, of which one went on: most were answered.
    assert clients.refused < clients.answered / 4, clients.answered
    await_calm(sturdy)


def test_a_killed_ingress_comes_back_on_its_port(sturdy: Platform) -> None:
    pid = sturdy.pids("ingress")[0]

    os.kill(pid, signal.SIGKILL)
    restarted = sturdy.restart_of("ingress")

    assert restarted["slot"] == 0
    eventually(lambda: is_ready(sturdy.url))
    got = sturdy.infer("echo", {"X": np.array([[5]])})
    assert got["Y"].tolist() == [[5]]


def test_an_ingress_that_is_asked_to_end_has_its_successor_beside_it(
    sturdy: Platform,
) -> None:
    pid = sturdy.pids("ingress")[0]
    with closing(Wire(sturdy.url, "echo")) as half:
        half.send(b"{", length=9)
        eventually(lambda: is_ready(sturdy.url))

        os.kill(pid, signal.SIGTERM)
        restarted = sturdy.restart_of("ingress")

        assert psutil.pid_exists(pid)
        assert (restarted["slot"], restarted["previous_exit"]) == (0, "exit:0")
        for value in range(5):
            with httpx.Client() as client:
                got = replace(sturdy, client=client).infer(
                    "echo", {"X": np.array([[value]])}
                )
            assert got["Y"].tolist() == [[value]]
    eventually(lambda: not psutil.pid_exists(pid))
    assert sturdy.pids("ingress")[0] == restarted["pid"]
    assert is_ready(sturdy.url)


def test_a_killed_broker_comes_back_with_its_data(sturdy: Platform) -> None:
    pid = sturdy.pids("kafka")[0]

    os.kill(pid, signal.SIGKILL)
    sturdy.restart_of("kafka")

    eventually(lambda: answers(sturdy))
    await_calm(sturdy)


async def test_batches_skip_the_log_and_every_answer_is_right_and_told_once(
    sturdy: Platform,
) -> None:
    """Behind all those deaths: whoever came in their place has links again."""
    links = [f"{url}/metrics" for url in sturdy.document.admin["batch_former"]]
    eventually(lambda: all("\nheadrace_links 1.0" in httpx.get(u).text for u in links))
    await_calm(sturdy)
    since_us = time.time_ns() // 1000
    clients = Clients(sturdy.url)
    eventually(lambda: clients.answered > 200)
    clients.stop()

    assert clients.foreign == []
    connection = KafkaConnection(sturdy.document.bootstrap_servers, "test")
    records = tail(connection, Topics().batches, since_us=since_us)
    orders = [decode_order(record) async for record in records]
    assert [order for order in orders if isinstance(order, Batch)] == []
    assert audited(sturdy) == ""


def test_a_request_whose_batch_skipped_the_log_is_explained(sturdy: Platform) -> None:
    answer = sturdy.post("echo/infer", infer_json(7))
    request_id = answer.headers["headrace-request-id"]

    def told() -> list[str]:
        trail = headrace(sturdy, "explain", request_id, "--output", "json")[1]
        return [step["what"] for step in trail["steps"]]

    eventually(lambda: len(told()) == 4)
    sent = next(what for what in told() if what.startswith("sent"))
    assert "by a link, past the log, in batch " in sent
    batch = sent.split("in batch ")[1][:32]
    trail = headrace(sturdy, "explain", batch, "--output", "json")[1]
    assert trail["sent"]["is_linked"]
    assert request_id in {member["id"] for member in trail["members"]}


def infer_json(value: int) -> dict[str, object]:
    tensor = {"name": "X", "shape": [1, 1], "datatype": "INT64", "data": [value]}
    return {"inputs": [tensor]}


def audited(platform: Platform) -> str:
    """What the audit finds, if anything but that an end came late, which is no fault
    where processes have died."""
    status, report = headrace(platform, "audit", "--json")
    assert status in {0, 1}
    totals = report["totals"]
    wrong = sum(totals[kind] for kind in Kind if kind is not Kind.LATE)
    return json.dumps(report) if wrong or report["is_truncated"] else ""


def answers(platform: Platform) -> bool:
    request = infer_request({"X": np.array([[5]])})
    answer = platform.client.post(
        f"{platform.url}/v2/models/echo/infer",
        content=request.body,
        headers={**request.headers, "headrace-timeout-ms": "1000"},
    )
    return answer.status_code == 200


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def await_calm(platform: Platform) -> None:
    """Every process is ready again, and both lanes answer."""
    admin = platform.document.admin
    urls = [*platform.document.http, *admin["batch_former"], *admin["gpu_worker"]]
    eventually(lambda: all(is_ready(url) for url in urls))
    for _ in range(20):
        eventually(lambda: answers(platform))


def test_children_end_with_their_supervisor(sturdy: Platform) -> None:
    """The last test of ``sturdy``."""
    processes = psutil.Process(sturdy.process.pid).children(recursive=True)
    sturdy.process.kill()
    eventually(lambda: not any(each.is_running() for each in processes), 30)
