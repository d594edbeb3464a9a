"""An ingress as a process: it starts, drains, refuses a bad start, and shares a log."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from headrace.lifecycle import ExitCode
from headrace.wire import ServiceState
from tests.chaos.proxy import Direction, Proxy
from tests.services.ingress.pipeline import (
    CLIENT_WAITS_MS,
    ROOT,
    IngressProcess,
    Pipeline,
    until,
)

pytestmark = pytest.mark.kafka

BODY = {"inputs": [{"name": "X", "shape": [1, 4], "datatype": "FP32", "data": [1] * 4}]}


def infer(ingress: IngressProcess | str, model: str, **headers: str) -> httpx.Response:
    url = ingress if isinstance(ingress, str) else ingress.url
    return httpx.post(
        f"{url}/v2/models/{model}/infer",
        json=BODY,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        timeout=20,
        verify=False,  # noqa: S501 - it is http, and loading authorities is slow
    )


LIMIT_MS, DRAIN_MS = 3_000, 4_000
"""Time to ask everything, and then for all limits to pass before the drain ends."""


def test_sigterm_drains_tells_whoever_is_left_and_ends_with_0(
    pipeline: Pipeline,
) -> None:
    with (
        IngressProcess(pipeline.bus, slot=3, LIMITS__DRAIN_MS=DRAIN_MS) as ingress,
        ThreadPoolExecutor(10) as pool,
    ):
        idle = connected(ingress)
        waiting = [
            pool.submit(infer, ingress, "silent", headrace_timeout_ms=str(LIMIT_MS))
            for _ in range(8)
        ]
        unending = pool.submit(infer, ingress, "silent", headrace_timeout_ms="30000")
        path = infer(ingress, "silent", prefer="respond-async").headers["location"]
        polling = pool.submit(httpx.get, f"{ingress.url}{path}?wait=30", timeout=20)
        halves = [begun(ingress, text) for text in HALVES]
        until(lambda: len(unanswered(ingress)) == 9)
        ingress.process.send_signal(signal.SIGTERM)
        asked_s = time.monotonic()
        poll = polling.result()
        assert time.monotonic() - asked_s < DRAIN_MS / 1000
        assert [each.result().status_code for each in waiting] == [504] * 8
        assert unending.result().headers["headrace-reason"] == "draining"
        for half in halves:
            assert_told(half)
        for answer in (poll, unending.result(), *(each.result() for each in waiting)):
            assert answer.headers["connection"] == "close"
            assert answer.headers["headrace-request-id"]
        assert (poll.status_code, poll.headers["location"]) == (202, path)
        assert idle.recv(1) == b""
        idle.close()
        assert ingress.process.wait(30) == 0
    assert ingress.logged("drain.started", unanswered=9)
    assert ingress.logged("drain.ended", unanswered=0)
    assert not ingress.logged("unstructured")


_HEAD = b"POST /v2/models/echo/infer HTTP/1.1\r\nhost: h\r\n"
HALVES = {
    "in the head": _HEAD,
    "in the body": _HEAD + b"content-length: 9\r\n\r\n{",
    "behind ASGI": _HEAD + b"expect: 100-continue\r\ncontent-length: 9\r\n\r\n{",
}


def begun(ingress: IngressProcess, half: str) -> socket.socket:
    """A request that stops where its name says."""
    connection = socket.create_connection(
        ingress.address, timeout=CLIENT_WAITS_MS / 1000
    )
    connection.sendall(HALVES[half])
    return connection


def assert_told(half: socket.socket) -> None:
    """It is answered 503 in the end, with the reason and an id."""
    with half, half.makefile("rb") as file:
        text = (
            file.read().decode().lower().removeprefix("http/1.1 100 continue\r\n\r\n")
        )
    assert text.startswith("http/1.1 503 ")
    for field in ("headrace-reason: draining", "connection: close", "retry-after: 1"):
        assert f"\r\n{field}\r\n" in text
    assert "\r\nheadrace-request-id: " in text


def test_an_ingress_that_starts_before_its_log_says_so_and_goes_on(
    pipeline: Pipeline,
) -> None:
    proxy = Proxy()
    port = pipeline.bus.bootstrap_servers.rpartition(":")[2]
    proxy.lead_to(int(port))
    proxy.stall(*Direction)
    bus = pipeline.bus.model_copy(
        update={"bootstrap_servers": f"127.0.0.1:{proxy.port}"}
    )
    ingress = IngressProcess(bus, slot=2)
    try:
        until(lambda: accepts(ingress))
        live = httpx.get(f"{ingress.url}/livez")
        ready = httpx.get(f"{ingress.url}/readyz")
        asked = infer(ingress, "echo")
        model = httpx.get(f"{ingress.url}/v2/models/echo")
        assert (live.status_code, "has not answered" in ready.text) == (200, True)
        for refused in (ready, asked, model):
            assert refused.status_code == 503
            assert refused.headers["headrace-reason"] == "log_unavailable"
            assert refused.headers["retry-after"] == "1"
            assert refused.headers["headrace-request-id"]
        proxy.flow()
        with ingress:
            assert infer(ingress, "echo").status_code == 200
            assert httpx.get(f"{ingress.url}/readyz").status_code == 200
        assert ingress.process.returncode == 0
    finally:
        ingress.process.kill()
        proxy.close()


def test_without_its_log_an_ingress_still_drains_at_once(pipeline: Pipeline) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        bus = pipeline.bus.model_copy(update={"bootstrap_servers": address})
        ingress = IngressProcess(bus, slot=2)
        until(lambda: accepts(ingress))
        ingress.process.send_signal(signal.SIGTERM)
        assert ingress.process.wait(DRAINS_WITHIN_S) == 0
        ingress.__exit__()


DRAINS_WITHIN_S = 12.0
"""Less than `drain_ms`, which is for those who wait for something."""


def connected(ingress: IngressProcess) -> socket.socket:
    return socket.create_connection(ingress.address, CLIENT_WAITS_MS / 1000)


def accepts(ingress: IngressProcess) -> bool:
    if not ingress.logged("http.listening"):
        return False
    with contextlib.suppress(ConnectionRefusedError):
        socket.create_connection(ingress.address).close()
        return True
    return False


def unanswered(ingress: IngressProcess) -> list[str]:
    """As many entries as requests are in flight."""
    text = httpx.get(f"{ingress.url}/metrics").text
    (line,) = (
        line for line in text.splitlines() if line.startswith("headrace_requests_in_f")
    )
    return ["request"] * int(float(line.split()[1]))


def test_two_ingresses_get_the_answers_to_their_own_requests(
    pipeline: Pipeline,
) -> None:
    with (
        IngressProcess(pipeline.bus, slot=4) as first,
        IngressProcess(pipeline.bus, slot=5) as second,
        ThreadPoolExecutor(16) as pool,
    ):
        asked = [
            pool.submit(infer, (first, second)[number % 2], "echo")
            for number in range(100)
        ]
        assert {each.result().status_code for each in asked} == {200}


def test_without_a_batch_former_requests_are_refused(pipeline: Pipeline) -> None:
    with IngressProcess(pipeline.bus, slot=6) as ingress:
        assert infer(ingress, "echo").status_code == 200
        try:
            pipeline.former_state = None
            until(lambda: infer(ingress, "echo").status_code == 503)
            answer = infer(ingress, "echo", headrace_timeout_ms="1000")
            assert answer.headers["headrace-reason"] == "no_former"
            assert answer.headers["retry-after"] == "1"
        finally:
            pipeline.former_state = ServiceState.READY
        until(lambda: infer(ingress, "echo").status_code == 200)


def test_without_its_workers_a_model_is_not_ready(pipeline: Pipeline) -> None:
    with IngressProcess(pipeline.bus, slot=7) as ingress:
        ready = f"{ingress.url}/v2/models/echo/ready"
        assert httpx.get(ready).status_code == 200
        try:
            pipeline.worker_beats = False
            until(lambda: httpx.get(ready).status_code == 503)
            assert infer(ingress, "echo").headers["headrace-reason"] == (
                "model_unavailable"
            )
            assert httpx.get(f"{ingress.url}/v2/health/ready").status_code == 200
        finally:
            pipeline.worker_beats = True
        until(lambda: httpx.get(ready).status_code == 200)


def test_connections_have_limits(pipeline: Pipeline) -> None:
    with IngressProcess(
        pipeline.bus,
        slot=8,
        LIMITS__HTTP_KEEP_ALIVE_MS=2_000,
        LIMITS__CONNECTIONS_MAX=3,
    ) as ingress:
        with httpx.Client(base_url=ingress.url) as client:
            # A running request keeps its connection, however long it takes.
            answer = client.post(
                "/v2/models/silent/infer",
                json=BODY,
                headers={"headrace-timeout-ms": "2500"},
            )
            assert answer.status_code == 504
        silent, slow = (connected(ingress) for _ in range(2))
        slow.sendall(b"POST /v2/models/echo/infer HTTP/1.1\r\nhost: h\r\n")
        third, fourth = (connected(ingress) for _ in range(2))
        assert fourth.recv(100).startswith(b"HTTP/1.1 503 ")
        for connection in (silent, slow, third):
            assert connection.recv(1) == b""
        for connection in (silent, slow, third, fourth):
            connection.close()
        assert infer(ingress, "echo").status_code == 200


def test_a_client_that_reads_no_answers_is_let_go(pipeline: Pipeline) -> None:
    request = large_request()
    with (
        IngressProcess(pipeline.bus, slot=9, LIMITS__HTTP_KEEP_ALIVE_MS=600) as ingress,
        socket.socket() as client,
    ):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(ingress.address)
        client.settimeout(1)
        with contextlib.suppress(TimeoutError, ConnectionError):
            for _ in range(64):
                client.sendall(request)
        until(lambda: connections(ingress) > 0)
        until(lambda: connections(ingress) == 0)


def large_request() -> bytes:
    size = 2**20
    one = {"name": "X", "shape": [1, size // 4], "datatype": "FP32"}
    one["parameters"] = {"binary_data_size": size}
    asked = {"inputs": [one], "parameters": {"binary_data_output": True}}
    text = json.dumps(asked).encode()
    head = (
        "POST /v2/models/ident_fp32/infer HTTP/1.1\r\nhost: h\r\n"
        f"inference-header-content-length: {len(text)}\r\n"
        f"content-length: {len(text) + size}\r\n\r\n"
    )
    return head.encode() + text + bytes(size)


def connections(ingress: IngressProcess) -> int:
    """As the last sweep of the process has seen them."""
    (line,) = (
        line
        for line in httpx.get(f"{ingress.url}/metrics").text.splitlines()
        if line.startswith("headrace_http_connections")
    )
    return int(float(line.split()[1]))


@pytest.mark.parametrize(
    ("slot", "settings", "told"),
    [
        (16, {}, "--slot 16: an ingress's slot is from 0 to 15"),
        (0, {"HTTP__PROT": "1"}, "HEADRACE_HTTP__PROT is not a setting"),
        (0, {"LIMITS__IN_FLIGHT_MAX": "0"}, "HEADRACE_LIMITS__IN_FLIGHT_MAX=0"),
    ],
)
def test_a_bad_start_is_one_clear_sentence(
    pipeline: Pipeline, slot: int, settings: dict[str, Any], told: str
) -> None:
    given = {"BUS__BOOTSTRAP_SERVERS": pipeline.bus.bootstrap_servers, **settings}
    ended = run_to_end(slot, given)
    assert (ended.returncode, told in ended.stderr) == (78, True)
    assert "Traceback" not in ended.stderr


def test_a_taken_port_is_told(pipeline: Pipeline) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = run_to_end(
            0,
            {
                "BUS__BOOTSTRAP_SERVERS": pipeline.bus.bootstrap_servers,
                "HTTP__PORT": str(port),
            },
        )
    assert ended.returncode == 78
    assert f"127.0.0.1:{port} cannot be listened on" in ended.stderr


def run_to_end(slot: int, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    environment = {f"HEADRACE_{name}": value for name, value in settings.items()}
    return subprocess.run(
        [sys.executable, "-m", "services.ingress", "--slot", str(slot)],
        cwd=ROOT,
        env={**os.environ, "HEADRACE_LOG__FORMAT": "json", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_connections_wait_for_the_next_ingress_and_what_comes_late_is_answered(
    pipeline: Pipeline,
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=16) as shared:
        url = f"http://127.0.0.1:{shared.getsockname()[1]}"

        def ingress(*passed: int, **more: object) -> IngressProcess:
            number = shared.fileno()
            return IngressProcess(
                pipeline.bus,
                3,
                pass_fds=(number, *passed),
                HTTP__SOCKET=number,
                LIMITS__DRAIN_IDLE_MS=CLIENT_WAITS_MS,
                **more,
            )

        with ingress() as first:
            assert first.url == url
            with httpx.Client(base_url=url, timeout=20) as client:
                kept = client.post("/v2/models/echo/infer", json=BODY)
                assert kept.headers.get("connection") != "close"
                first.process.send_signal(signal.SIGTERM)
                until(lambda: bool(first.logged("drain.started")))
                assert_last(client)
            assert first.process.wait(30) == 0
        with ThreadPoolExecutor(8) as pool:
            # Nobody runs: they connect, and wait.
            asked = [pool.submit(infer, url, "echo") for _ in range(8)]
            supervisor, theirs = socket.socketpair()
            number = theirs.fileno()
            haste = {"LIMITS__DRAIN_MS": 1}
            with (
                ingress(number, HTTP__SUCCESSION=number, **haste) as second,
                httpx.Client(base_url=url, timeout=20) as client,
            ):
                assert {each.result().status_code for each in asked} == {200}
                patient = pool.submit(
                    infer, url, "silent", headrace_timeout_ms="600000"
                )
                until(lambda: len(unanswered(second)) == 1)
                assert client.get("/livez").is_success
                second.process.send_signal(signal.SIGTERM)
                assert supervisor.recv(1) == b"\n"
                served = infer(url, "echo")
                assert served.status_code == 200
                assert served.headers.get("connection") != "close"
                assert not second.logged("drain.started")
                with ingress(number, HTTP__SUCCESSION=number) as third:
                    until(lambda: bool(second.logged("drain.started")))
                    assert_last(client)
                    assert infer(url, "echo").status_code == 200
                    assert not patient.done()
                    # Nobody starts another one, and somebody waits for their end.
                    supervisor.close()
                    assert patient.result().headers["headrace-reason"] == "draining"
                    assert second.process.wait(DRAINS_WITHIN_S) == 0
                    third.process.send_signal(signal.SIGTERM)
                    assert third.process.wait(DRAINS_WITHIN_S) == 0
            theirs.close()


def assert_last(client: httpx.Client) -> None:
    """What comes on an open connection is answered, however long it may wait."""
    limit = {"headrace-timeout-ms": "60000"}
    last = client.post("/v2/models/echo/infer", json=BODY, headers=limit)
    assert (last.status_code, last.headers["connection"]) == (200, "close")


@pytest.mark.parametrize(
    ("is_passed", "sentence"), [(False, "is no socket"), (True, "does not listen")]
)
def test_a_socket_that_cannot_be_taken_over_is_refused(
    pipeline: Pipeline, *, is_passed: bool, sentence: str
) -> None:
    with socket.socket() as silent:
        number = silent.fileno()
        refused = IngressProcess(
            pipeline.bus, pass_fds=(number,) if is_passed else (), HTTP__SOCKET=number
        )
        assert refused.process.wait(30) == ExitCode.SETUP
        until(lambda: bool(refused.logged("setup.refused")))
    (line,) = refused.logged("setup.refused")
    assert sentence in line["text"]
