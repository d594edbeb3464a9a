"""How a connection ends: its client asks no more, stops in the middle, or sends what
is no request behind one that is."""

import socket
import struct
import time
from collections.abc import Callable

import pytest

from tests.services.ingress.pipeline import (
    CLIENT_WAITS_MS,
    HASTE_MS,
    IngressProcess,
    Pipeline,
    until,
)
from tests.services.ingress.test_raw_sockets import (
    GOOD,
    PATH,
    Connection,
    a_json,
    a_request,
    connected,
)

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize(
    "cut",
    [
        GOOD[:30],
        GOOD[:-5],
        GOOD[:-5].replace(b"HTTP/1.1", b"HTTP/1.0"),
        b"POST %b HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{"
        % PATH.encode(),
    ],
)
def test_a_client_that_ends_in_the_middle_is_told_and_leaves_nothing_behind(
    ingress: IngressProcess, pipeline: Pipeline, cut: bytes
) -> None:
    seen = len(pipeline.requests)
    with connected(ingress) as client:
        client.send(cut)
        client.socket.shutdown(socket.SHUT_WR)
        answer = client.read()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert "before its end" in answer.error
        assert client.is_closed()
    with connected(ingress) as client:
        client.send(GOOD)
        assert client.read().status == 200
    assert len(pipeline.requests) == seen + 1


@pytest.mark.parametrize(
    "requests",
    [
        [GOOD],
        [GOOD, GOOD, GOOD],
        [GOOD.replace(b"HTTP/1.1", b"HTTP/1.0")],
        [b"GET /v2/health/live HTTP/1.1\r\nhost: h\r\n\r\n"],
    ],
)
def test_a_client_that_has_asked_all_is_answered_before_the_end(
    ingress: IngressProcess, requests: list[bytes]
) -> None:
    with connected(ingress) as client:
        client.send(b"".join(requests))
        client.socket.shutdown(socket.SHUT_WR)
        for _ in requests:
            assert client.read().status == 200
        assert client.is_closed()


def test_a_cut_request_behind_a_running_one_does_not_pass_its_answer(
    ingress: IngressProcess,
) -> None:
    for cut in (GOOD[:30], GOOD[:-5]):
        with connected(ingress) as client:
            client.send(GOOD + cut)
            client.socket.shutdown(socket.SHUT_WR)
            assert [client.read().status for _ in range(2)] == [200, 400]
            assert client.is_closed()


@pytest.mark.parametrize("before", [[GOOD], [GOOD, GOOD]])
def test_rubbish_behind_running_requests_is_told_after_their_answers(
    ingress: IngressProcess, before: list[bytes]
) -> None:
    rubbish = b"\0\1\2 rubbish\r\n\r\n"
    with connected(ingress) as client:
        client.send(b"".join(before) + rubbish)
        for _ in before:
            assert client.read().status == 200
        answer = client.read()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert client.is_closed()


@pytest.mark.parametrize("before", [b"", GOOD])
def test_a_head_that_trickles_in_has_a_time_limit(
    hasty: IngressProcess, before: bytes
) -> None:
    patience_s = CLIENT_WAITS_MS / 1000
    with connected(hasty) as client:
        started = time.monotonic()
        client.send(before + b"POST /v2/models/echo/infer HTTP/1.1\r\n")
        if before:
            assert client.read().status == 200
        client.socket.settimeout(0.1)
        while time.monotonic() - started < patience_s:
            client.send(b"x-a: b\r\n")
            try:
                client.socket.recv(1, socket.MSG_PEEK)
                break
            except TimeoutError:
                pass
        client.socket.settimeout(patience_s)
        answer = client.read()
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        assert f"{HASTE_MS} ms" in answer.error
        assert "http_head_timeout_ms" in answer.error
        assert HASTE_MS / 2000 < time.monotonic() - started < patience_s
        assert client.is_closed()


def test_rubbish_behind_a_finished_request_is_told(ingress: IngressProcess) -> None:
    with connected(ingress) as client:
        client.send(GOOD)
        assert client.read().status == 200
        client.send(b"\0\1\2 rubbish\r\n\r\n")
        answer = client.read()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert client.is_closed()


def test_rubbish_behind_the_last_request_is_dropped(ingress: IngressProcess) -> None:
    with connected(ingress) as client:
        client.send(a_request(a_json(), "connection: close") + b"\0 rubbish\r\n\r\n")
        answer = client.read()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert client.is_closed()


SILENT = "/v2/models/silent/infer"
HTTP_1_0 = a_request(a_json(), path=SILENT).replace(b"HTTP/1.1", b"HTTP/1.0")


def leave_by_closing(client: Connection) -> None:
    client.close()


def leave_by_reset(client: Connection) -> None:
    client.socket.setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )
    client.close()


@pytest.mark.parametrize(
    ("leave", "requests"),
    [
        (leave_by_closing, a_request(a_json(), path=SILENT)),
        (leave_by_reset, a_request(a_json(), path=SILENT)),
        (leave_by_reset, HTTP_1_0),
        (leave_by_closing, GOOD + a_request(a_json(), path=SILENT)),
    ],
    ids=["closed", "reset", "reset, behind ASGI", "closed, pipelined"],
)
def test_a_client_that_leaves_cancels_what_it_waits_for(
    ingress: IngressProcess,
    pipeline: Pipeline,
    leave: Callable[[Connection], None],
    requests: bytes,
) -> None:
    asked, cancelled = len(pipeline.requests), len(pipeline.cancels)
    client = Connection(ingress.address)
    client.send(requests)
    if requests.startswith(GOOD):
        assert client.read().status == 200
    until(lambda: any(r.model == "silent" for r in pipeline.requests[asked:]))
    leave(client)
    until(lambda: len(pipeline.cancels) > cancelled)

    (request,) = (r for r in pipeline.requests[asked:] if r.model == "silent")
    assert [each.key for each in pipeline.cancels[cancelled:]] == [request.key]


def test_a_client_that_asks_no_more_waits_on_and_may_skip_an_interim_answer(
    ingress: IngressProcess, pipeline: Pipeline
) -> None:
    cancelled = len(pipeline.cancels)
    with connected(ingress) as client:
        limit = "headrace-timeout-ms: 1500"
        client.send(a_request(a_json(), limit, path=SILENT))
        client.socket.shutdown(socket.SHUT_WR)
        assert client.read().status == 100
        answer = client.read()
        assert (answer.status, answer.headers["headrace-reason"]) == (504, "expired")
    assert len(pipeline.cancels) == cancelled


def pipelined(first: bytes, unread: int = 1) -> bytes:
    return first + GOOD * unread


def test_a_client_that_leaves_pipelined_requests_cancels_the_one_that_waits(
    ingress: IngressProcess, pipeline: Pipeline
) -> None:
    """Nothing is read of it by then, neither the requests behind nor the end."""
    waits = a_request(a_json(), path=SILENT)
    behind_asgi = a_request(a_json(), "expect: 100-continue", path=SILENT)
    # More than one read takes, and more than the sockets have room for.
    much, too_much = 3 * 2**18 // len(GOOD), 2**25 // len(GOOD)
    ways = [
        (leave_by_closing, pipelined(waits)),
        (leave_by_reset, pipelined(waits)),
        (leave_by_closing, pipelined(behind_asgi)),
        (leave_by_closing, pipelined(waits, much)),
        (leave_by_closing, pipelined(waits, too_much)),
    ]
    asked, cancelled = len(pipeline.requests), len(pipeline.cancels)
    clients = [Connection(ingress.address) for _ in ways]
    for client, (_, requests) in zip(clients, ways, strict=True):
        client.socket.settimeout(0)
        client.socket.send(requests)
    until(lambda: len(pipeline.requests) - asked == len(ways))
    for client, (leave, _) in zip(clients, ways, strict=True):
        leave(client)
    until(lambda: len(pipeline.cancels) - cancelled == len(ways))

    keys = sorted(each.key for each in pipeline.cancels[cancelled:])
    assert keys == sorted(each.key for each in pipeline.requests[asked:])


def test_a_client_that_pipelines_and_asks_no_more_gets_its_answers(
    ingress: IngressProcess, pipeline: Pipeline
) -> None:
    cancelled = len(pipeline.cancels)
    limit = "headrace-timeout-ms: 1600"
    with connected(ingress) as client:
        client.send(pipelined(a_request(a_json(), limit, path=SILENT)))
        client.socket.shutdown(socket.SHUT_WR)
        statuses = [client.read().status for _ in range(2)]
        if statuses[0] == 100:  # where the sweep came before the time limit
            statuses = [statuses[1], client.read().status]
        assert statuses == [504, 200]
        assert client.is_closed()
    assert len(pipeline.cancels) == cancelled
