"""What only a process of its own can show."""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import msgspec
import pytest

from headrace.errors import SetupError
from headrace.lifecycle import (
    AdminSettings,
    ExitCode,
    Health,
    ProbeServer,
    Pulse,
    answer_probe,
)
from headrace.telemetry import IngressMetrics, MetricsRegistry
from headrace.testing import ManualClock

START = """
import sys
import threading
import time
from headrace.errors import BusTimeout, SetupError
from headrace.lifecycle import *
from headrace.telemetry import LogSettings, configure_logs

configure_logs(LogSettings(), service="test", slot=3)
asked = drain_on_signals()
end_with_any_thread()

def refuse():
    raise SetupError("the way out")

def break_():
    raise ZeroDivisionError("a bug")

def lose():
    raise BusTimeout("nobody answers", code="_TIMED_OUT")

def thread():
    one = threading.Thread(target=break_, name="reader")
    one.start()
    one.join()
    await_drain()
    return ExitCode.OK

def leave_behind():
    threading.Thread(target=time.sleep, args=(600,)).start()
    lose()

def drain():
    print("up", flush=True)
    return ExitCode.OK if await_drain() else ExitCode.STALLED

def await_drain():
    until = time.monotonic() + 10
    while not asked.is_set() and time.monotonic() < until:
        time.sleep(0.01)
    return asked.is_set()

def outlast():
    print("up", flush=True)
    sys.stdin.read()
    return ExitCode.OK if asked.is_set() else ExitCode.STALLED

"""


def run(body: str) -> tuple[int, dict[str, object]]:
    """Exit code and the last event."""
    ended = subprocess.run(
        [sys.executable, "-c", START + body],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return ended.returncode, msgspec.json.decode(ended.stderr.splitlines()[-1])


@pytest.mark.parametrize(
    ("body", "code", "event", "text"),
    [
        ("run_to_exit(refuse)", ExitCode.SETUP, "setup.refused", "the way out"),
        ("run_to_exit(lose)", ExitCode.LOG_UNAVAILABLE, "log.unavailable", "nobody"),
        (
            "run_to_exit(leave_behind)",
            ExitCode.LOG_UNAVAILABLE,
            "log.unavailable",
            "nobody",
        ),
        ("run_to_exit(break_)", ExitCode.FAILED, "process.failed", "a bug"),
        ("run_to_exit(thread)", ExitCode.FAILED, "process.failed", "a bug"),
    ],
)
def test_a_process_ends_with_the_code_of_its_error(
    body: str, code: ExitCode, event: str, text: str
) -> None:
    returned, last = run(body)
    assert returned == code
    assert (last["event"], last["service"], last["slot"]) == (event, "test", 3)
    assert last["level"] == "critical"
    assert text in str(last.get("text", last.get("exception")))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_to_drain(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", START + "run_to_exit(drain)"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == ExitCode.OK


def test_signals_upon_signals_ask_to_drain() -> None:
    """A handler that interrupts another in the middle waits for nothing of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", START + "run_to_exit(outlast)"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "up\n"
    for number in (signal.SIGTERM, signal.SIGINT) * 20_000:
        os.kill(process.pid, number)
    process.communicate(timeout=30)
    assert process.returncode == ExitCode.OK


def ask(url: str) -> tuple[int, str, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.headers["content-type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["content-type"], error.read()


def test_probes_are_answered_over_http() -> None:
    health = Health(Pulse(ManualClock()), {"kafka": "no heartbeat read back yet"})
    registry = MetricsRegistry()
    IngressMetrics(registry).lanes_heard.set(3)
    probes = ProbeServer(AdminSettings(), health, registry)
    probes.start()
    text = "text/plain; charset=utf-8"

    assert ask(f"{probes.url}/livez") == (200, text, b"ok\n")
    assert ask(f"{probes.url}/readyz") == (503, text, b"no heartbeat read back yet\n")
    health.met("kafka")
    assert ask(f"{probes.url}/readyz?verbose") == (200, text, b"ok\n")
    status, content_type, body = ask(f"{probes.url}/metrics")
    assert (status, content_type.split(";")[0]) == (200, "text/plain")
    assert b"\nheadrace_lanes_heard 3.0\n" in body
    assert ask(f"{probes.url}/elsewhere")[0] == 404
    probes.stop()


def test_a_taken_port_is_refused_with_the_way_out() -> None:
    health, registry = Health(Pulse(ManualClock()), {}), MetricsRegistry()
    first = ProbeServer(AdminSettings(), health, registry)
    first.start()
    port = int(first.url.rpartition(":")[2])
    with pytest.raises(SetupError, match=rf"127.0.0.1:{port}.*HEADRACE_ADMIN__PORT"):
        ProbeServer(AdminSettings(port=port), health, registry)
    first.stop()


def test_what_is_no_probe_is_left_to_others() -> None:
    health, registry = Health(Pulse(ManualClock()), {}), MetricsRegistry()
    assert answer_probe("/v2/health/live", health, registry) is None
