"""Both generators, held to the same promises on real sockets."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from array import array
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.errors import SetupError
from loadtest.sending import generator_command, send
from loadtest.stream import (
    CONNECT_FAILED,
    RESET,
    UNANSWERED,
    WRONG,
    Outcome,
    Prepared,
    Records,
    Stream,
)
from tests.addresses import nobody_listens
from tests.loadtest.server import answer, ok, serving

MS = 1_000_000
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.fixture(params=["python", "c"], scope="module")
def command(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Sequence[str]:
    if request.param == "c" and shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    return generator_command(request.param, tmp_path_factory.mktemp("built"))


def a_stream(address: tuple[str, int], **given: object) -> Stream:
    values: dict[str, object] = {
        "addresses": [address],
        "requests": [request(b"x")],
        "connections": 1,
        "opened": 0,
        "send_ns": 100 * MS,
        "drain_ns": 30_000 * MS,
    }
    return Stream(**(values | given))  # type: ignore[arg-type] # by name


def request(body: bytes, answer_end: bytes = b"") -> Prepared:
    head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    return Prepared(head + body, answer_end)


def at_ms(*instants: int) -> array[int]:
    return array("q", [instant * MS for instant in instants])


def outcomes(records: Records) -> Counter[Outcome]:
    return Counter(records.outcomes[code] for code in records.outcome)


def test_each_arrival_is_sent_once_at_its_time(command: Sequence[str]) -> None:
    with serving(lambda body, _: ok(body)) as address:
        stream = a_stream(address, connections=8, arrivals_ns=at_ms(0, 50, 50, 90))
        (records,) = send(command, [stream])
    assert sorted(records.scheduled_ns) == [0, 50 * MS, 50 * MS, 90 * MS]
    assert outcomes(records) == {Outcome(200): 4}
    assert all(
        sent >= scheduled
        for sent, scheduled in zip(records.sent_ns, records.scheduled_ns, strict=True)
    )


def test_a_stalling_server_is_charged_for_those_that_wait(
    command: Sequence[str],
) -> None:
    def stall_at_first(body: bytes, number: int) -> bytes:
        if number == 0:
            time.sleep(0.3)
        return ok(body)

    with serving(stall_at_first) as address:
        stream = a_stream(address, arrivals_ns=at_ms(0, 10, 20))
        (records,) = send(command, [stream])
    took_ms = {
        scheduled // MS: (ended - scheduled) / MS
        for scheduled, ended in zip(records.scheduled_ns, records.ended_ns, strict=True)
    }
    assert took_ms[0] >= 300
    assert took_ms[10] >= 290
    assert took_ms[20] >= 280
    assert records.connections == 1


def test_a_closed_loop_asks_again_on_each_connection(command: Sequence[str]) -> None:
    def slow(body: bytes, _: int) -> bytes:
        time.sleep(0.02)
        return ok(body)

    with serving(slow) as address:
        stream = a_stream(address, connections=3, send_ns=1000 * MS)
        (records,) = send(command, [stream])
    assert records.connections == 3
    # At most fifty per connection, since each takes 20 ms; a busy machine does fewer.
    assert 6 <= len(records.outcome) <= 153
    assert set(outcomes(records)) == {Outcome(200)}


def test_refusals_are_told_apart_by_status_and_reason(command: Sequence[str]) -> None:
    replies = [
        answer("503 No", b"{}", "headrace-reason: overloaded"),
        answer("503 No", b"{}", "Headrace-Reason: queue_full"),
        answer("429 No", b"{}"),
        ok(b""),
    ]
    with serving(lambda _, number: replies[number % 4]) as address:
        stream = a_stream(address, arrivals_ns=at_ms(0, 40, 80, 120))
        (records,) = send(command, [stream])
    assert outcomes(records) == {
        Outcome(503, "overloaded"): 1,
        Outcome(503, "queue_full"): 1,
        Outcome(429): 1,
        Outcome(200): 1,
    }


def test_an_answer_to_another_request_is_wrong(command: Sequence[str]) -> None:
    requests = [request(b"one", b"one"), request(b"two", b"two")]
    with serving(lambda body, number: ok(b"one" if number else body)) as address:
        stream = a_stream(
            address, requests=requests, arrivals_ns=at_ms(0, 50, 100, 150)
        )
        (records,) = send(command, [stream])
    assert outcomes(records) == {Outcome(200): 2, Outcome(WRONG): 2}


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (None, Outcome(RESET)),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort", Outcome(UNANSWERED)),
        (b"HTTP/1.1 200 OK\r\nContent-Length:5\r\n\r\nwhole", Outcome(200)),
        (CHUNKED + b"5\r\nwhole\r\n0\r\n\r\n", Outcome(200)),
        (CHUNKED + b"5\r\nwhole\r\n", Outcome(UNANSWERED)),
    ],
)
def test_an_answer_counts_when_it_is_complete(
    command: Sequence[str], reply: bytes | None, outcome: Outcome
) -> None:
    # Who gets no whole answer waits in vain; who gets one has it, however late.
    drain_ms = 300 if outcome.status == UNANSWERED else 30_000
    with serving(lambda _body, _number: reply) as address:
        stream = a_stream(address, drain_ns=drain_ms * MS, arrivals_ns=at_ms(0))
        (records,) = send(command, [stream])
    assert outcomes(records) == {outcome: 1}


def test_a_connection_that_the_server_closes_is_replaced(
    command: Sequence[str],
) -> None:
    with serving(lambda body, _: ok(body, "Connection: close")) as address:
        stream = a_stream(address, arrivals_ns=at_ms(0, 50, 50, 100))
        (records,) = send(command, [stream])
    assert outcomes(records) == {Outcome(200): 4}


def test_what_found_no_connection_is_counted(command: Sequence[str]) -> None:
    over = threading.Event()

    def too_late(body: bytes, _: int) -> bytes:
        over.wait()
        return ok(body)

    with serving(too_late) as address:
        stream = a_stream(address, drain_ns=200 * MS, arrivals_ns=at_ms(0, 10, 20))
        (records,) = send(command, [stream])
        over.set()
    assert outcomes(records) == {
        Outcome(UNANSWERED): 1,
        Outcome(UNANSWERED, "not_sent"): 2,
    }


def test_nobody_listens(command: Sequence[str]) -> None:
    with nobody_listens() as address:
        closed = a_stream(address, connections=2, drain_ns=100 * MS)
        opened = a_stream(address, connections=2, arrivals_ns=at_ms(0, 50))
        for records in send(command, [closed, opened]):
            assert outcomes(records) == {Outcome(CONNECT_FAILED): 2}


def test_bodies_larger_than_a_socket_takes_at_once(command: Sequence[str]) -> None:
    body = bytes(range(256)) * 16_384
    with serving(lambda received, _: ok(received)) as address:
        stream = a_stream(
            address, requests=[request(body, body)], arrivals_ns=at_ms(0, 50)
        )
        (records,) = send(command, [stream])
    assert outcomes(records) == {Outcome(200): 2}


def test_requests_are_dealt_over_the_addresses(command: Sequence[str]) -> None:
    seen: Counter[str] = Counter()
    # Nobody is answered before each connection has a request.
    all_asked = threading.Barrier(4, timeout=30)

    def count(name: str, body: bytes) -> bytes:
        seen[name] += 1
        all_asked.wait()
        return ok(body)

    with (
        serving(lambda body, _: count("a", body)) as first,
        serving(lambda body, _: count("b", body)) as second,
    ):
        stream = a_stream(
            first,
            addresses=[first, second],
            connections=4,
            opened=4,
            arrivals_ns=at_ms(0, 10, 20, 30),
        )
        (records,) = send(command, [stream])
    assert seen == {"a": 2, "b": 2}
    assert records.connections == 4


def test_the_c_generator_is_built_once(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    (first,) = generator_command("auto", tmp_path)
    built_ns = Path(first).stat().st_mtime_ns
    assert generator_command("c", tmp_path) == (first,)
    assert Path(first).stat().st_mtime_ns == built_ns


def test_it_compiles_without_a_warning(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source = Path(__file__).parents[2] / "loadtest" / "generator.c"
    made = subprocess.run(
        [compiler, "-O2", "-Wall", "-Wextra", "-o", tmp_path / "generator", source],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (made.returncode, made.stderr) == (0, "")


def test_without_a_compiler_python_generates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert generator_command("auto", tmp_path)[1:] == ("-m", "loadtest.generator")
    with pytest.raises(SetupError, match="needs a compiler named cc"):
        generator_command("c", tmp_path)
