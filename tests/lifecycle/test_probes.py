"""The server of probes, asked by clients that behave and that do not."""

import socket
import struct
import threading
from collections.abc import Iterator

import httpx
import pytest

from headrace.lifecycle import AdminSettings, Health, ProbeServer, Pulse
from headrace.telemetry import MetricsRegistry
from headrace.testing import ManualClock

RESET = struct.pack("ii", 1, 0)


class SlowHealth(Health):
    """Answers when the test says so."""

    def __init__(self) -> None:
        super().__init__(Pulse(ManualClock()), {})
        self.asked = threading.Event()
        self.may_answer = threading.Event()

    def why_not_alive(self) -> str | None:
        self.asked.set()
        assert self.may_answer.wait(10)
        return super().why_not_alive()


@pytest.fixture
def health() -> SlowHealth:
    return SlowHealth()


@pytest.fixture
def server(health: SlowHealth) -> Iterator[ProbeServer]:
    server = ProbeServer(AdminSettings(), health, MetricsRegistry())
    server.start()
    yield server
    server.stop()


def test_a_client_that_does_not_wait_leaves_nothing_in_the_log(
    server: ProbeServer, health: SlowHealth, capsys: pytest.CaptureFixture[str]
) -> None:
    url = httpx.URL(server.url)
    before = set(threading.enumerate())
    with socket.create_connection((url.host, url.port)) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\nhost: h\r\n\r\n")
        assert health.asked.wait(10)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    health.may_answer.set()
    for answering in set(threading.enumerate()) - before:
        answering.join(10)
    assert capsys.readouterr().err == ""
    assert httpx.get(f"{server.url}/livez").text == "ok\n"
