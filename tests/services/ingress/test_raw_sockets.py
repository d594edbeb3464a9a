"""Bytes that no well-behaved client sends: each gets a clear error, and the connection
is closed or in step afterwards."""

import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from headrace.domain import Reason
from tests.services.ingress.pipeline import (
    CLIENT_WAITS_MS,
    HASTE_MS,
    IngressProcess,
    Pipeline,
)

pytestmark = pytest.mark.kafka

ONE_ROW = struct.pack("<4f", 1, 2, 3, 4)
PATH = "/v2/models/echo/infer"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        (text,) = json.loads(self.body).values()
        return str(text)


def check_head(answer: Answer) -> None:
    """What the head of every answer says, whoever made it."""
    status, headers, _ = answer
    if status == 100:
        return
    assert len(bytes.fromhex(headers["headrace-request-id"])) == 16
    assert (status == 200) == ("headrace-reason" not in headers)
    assert status == 200 or headers["headrace-reason"] in set(Reason)
    assert ("retry-after" in headers) == (status in {429, 503})


class Connection:
    """A client's socket that reads whole answers."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, CLIENT_WAITS_MS / 1000)
        self._file = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self, *, with_body: bool = True) -> Answer:
        line = self._file.readline()
        assert line, "the connection was closed without an answer"
        headers = {}
        while (field := self._file.readline().strip()) != b"":
            name, _, value = field.decode().partition(": ")
            headers[name.lower()] = value
        size = int(headers.get("content-length", 0)) if with_body else 0
        answer = Answer(int(line.split()[1]), headers, self._file.read(size))
        check_head(answer)
        return answer

    def is_closed(self) -> bool:
        """Whether the server ends the connection before the client's patience does."""
        try:
            return self._file.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._file.close()
        self.socket.close()


@contextmanager
def connected(ingress: IngressProcess) -> Iterator[Connection]:
    connection = Connection(ingress.address)
    try:
        yield connection
    finally:
        connection.close()


def head(length: int | str, *fields: str, path: str = PATH) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: h", f"content-length: {length}", *fields]
    return "\r\n".join([*lines, "", ""]).encode()


def a_json(**others: Any) -> bytes:
    one = {"name": "X", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}
    return json.dumps({"inputs": [one | others]}).encode()


def a_binary(size: Any, **others: Any) -> bytes:
    one = {
        "name": "X",
        "shape": [1, 4],
        "datatype": "FP32",
        "parameters": {"binary_data_size": size},
    }
    return json.dumps({"inputs": [one | others]}).encode()


def a_request(body: bytes, *fields: str, path: str = PATH) -> bytes:
    return head(len(body), *fields, path=path) + body


def json_length(length: object) -> str:
    return f"Inference-Header-Content-Length: {length}"


GOOD = a_request(a_json())


@pytest.mark.parametrize(
    ("size", "told"),
    [
        (15, ["'X'", "15", "16"]),
        (17, ["'X'", "17", "16"]),
        (0, ["'X'", "0 bytes", "16"]),
        (-1, ["'X'", "-1", "16"]),
        (2**31, ["'X'", str(2**31), "16"]),
        (2**63, ["'X'", str(2**63), "16"]),
        ("16", ["'X'", "str"]),
        (16.0, ["'X'", "integer"]),
    ],
)
def test_a_wrong_size_is_told_at_once_and_nothing_reaches_the_log(
    ingress: IngressProcess, pipeline: Pipeline, size: Any, told: list[str]
) -> None:
    """At once: without the wait for a rest of the body that does not come."""
    text = a_binary(size)
    raw = (ONE_ROW + b"!")[: {15: 15, 17: 17}.get(size, 16)]
    seen = len(pipeline.requests)
    with connected(ingress) as client:
        client.send(a_request(text + raw, json_length(len(text))))
        answer = client.read()
        assert answer.status == 400
        assert all(word in answer.error for word in told)
        # In step: the same connection takes the next request.
        client.send(GOOD)
        assert client.read().status == 200
    assert len(pipeline.requests) == seen + 1


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [json_length(len(a_binary(16)) - 1)],
        [json_length(len(a_binary(16)) + 1)],
        [json_length(10**6)],
        [json_length("abc")],
        [json_length(-1)],
        [json_length("+5")],
        [json_length(len(a_binary(16)))] * 2,
        [json_length(len(a_binary(16))), json_length(0)],
        [json_length("9" * 30)],
    ],
)
def test_a_wrong_json_length_is_refused_in_step(
    ingress: IngressProcess, fields: list[str]
) -> None:
    with connected(ingress) as client:
        client.send(a_request(a_binary(16) + ONE_ROW, *fields))
        answer = client.read()
        assert (answer.status, answer.headers["headrace-reason"]) == (400, "invalid")
        client.send(GOOD)
        assert client.read().status == 200


@pytest.mark.parametrize(
    "body",
    [
        a_binary(16, data=[1, 2, 3, 4]) + ONE_ROW,
        a_binary(16) + ONE_ROW + b"?" * 20,
    ],
)
def test_too_much_is_refused_in_step(ingress: IngressProcess, body: bytes) -> None:
    length = body.index(b"}]}") + 3
    with connected(ingress) as client:
        client.send(a_request(body, json_length(length)))
        assert client.read().status == 400
        client.send(GOOD)
        assert client.read().status == 200


def test_a_short_body_ends_at_the_body_deadline(
    hasty: IngressProcess, pipeline: Pipeline
) -> None:
    seen = len(pipeline.requests)
    with connected(hasty) as client:
        started = time.monotonic()
        client.send(head(len(a_json()) + 10) + a_json())
        answer = client.read()
        assert time.monotonic() - started > HASTE_MS / 2000
        assert answer.status == 408
        assert answer.headers["connection"] == "close"
        assert f"{HASTE_MS} ms" in answer.error
        assert client.is_closed()
    assert len(pipeline.requests) == seen


def test_a_transfer_encoding_beside_chunked_is_not_implemented(
    ingress: IngressProcess,
) -> None:
    fields = b"POST %b HTTP/1.1\r\nhost: h\r\ntransfer-encoding: gzip, chunked\r\n\r\n"
    with connected(ingress) as client:
        client.send(fields % PATH.encode() + b"5\r\nabcde\r\n0\r\n\r\n")
        answer = client.read()
        assert (answer.status, answer.headers["headrace-reason"]) == (501, "invalid")
        assert "gzip, chunked" in answer.error
        client.send(GOOD)
        assert client.read().status == 200


def test_an_answer_waits_for_the_end_of_a_slow_body(ingress: IngressProcess) -> None:
    body = a_json()
    with connected(ingress) as client:
        client.send(head(len(body)))
        for at in range(0, len(body), 20):
            client.send(body[at : at + 20])
            time.sleep(0.01)
        assert client.read().status == 200


def test_a_chunked_body(ingress: IngressProcess) -> None:
    chunked = b"POST %b HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n"
    body = a_json()
    with connected(ingress) as client:
        client.send(chunked % PATH.encode())
        for piece in (body[:7], body[7:]):
            client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        client.send(b"0\r\n\r\n")
        assert client.read().status == 200
        client.send(chunked % PATH.encode())
        try:
            for _ in range(5):
                client.send(b"%x\r\n%b\r\n" % (2**20, bytes(2**20)))
        except ConnectionError:
            pytest.fail("closed before the answer could be read")
        answer = client.read()
        assert (answer.status, answer.headers["connection"]) == (413, "close")


def test_framing_without_a_body_has_an_end(ingress: IngressProcess) -> None:
    with connected(ingress) as client:
        client.send(
            b"POST %b HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
            % PATH.encode()
        )
        trailers = (b"x-a: " + b"a" * 2**16 + b"\r\n") * 1000
        with pytest.raises(ConnectionError):
            client.send(trailers)


def test_a_query_and_an_absolute_target_change_nothing(
    ingress: IngressProcess,
) -> None:
    with connected(ingress) as client:
        for path in (f"{PATH}?a=b%20c", f"http://somewhere{PATH}"):
            client.send(a_request(a_json(), path=path))
            assert client.read().status == 200


def test_pipelined_requests_are_answered_in_order(ingress: IngressProcess) -> None:
    requests = []
    for number in range(6):
        one = {"name": "X", "shape": [1, 4], "datatype": "FP32", "data": [number] * 4}
        body = json.dumps({"id": str(number), "inputs": [one]}).encode()
        requests.append(a_request(body))
    with connected(ingress) as client:
        client.send(
            b"".join(requests) + b"GET /v2/health/live HTTP/1.1\r\nhost: h\r\n\r\n"
        )
        answers = [json.loads(client.read().body) for _ in range(6)]
        assert [answer["id"] for answer in answers] == list("012345")
        assert json.loads(client.read().body) == {"live": True}


@pytest.mark.parametrize(
    "rubbish",
    [
        b"rubbish\r\n\r\n",
        head("abc"),
        head(-5),
        head(5, "content-length: 6"),
        head(5, "transfer-encoding: chunked"),
        b"GET /v2\xff HTTP/1.1\r\nhost: h\r\n\r\n",
        b"CONNECT h:1 HTTP/1.1\r\nhost: h\r\n\r\n",
    ],
)
def test_what_is_no_request_is_told_in_json_and_closed(
    ingress: IngressProcess, rubbish: bytes
) -> None:
    with connected(ingress) as client:
        client.send(rubbish)
        answer = client.read()
        assert (answer.status, list(json.loads(answer.body))) == (400, ["error"])
        assert client.is_closed()


def test_a_broken_chunk_is_refused_and_closed(ingress: IngressProcess) -> None:
    with connected(ingress) as client:
        client.send(
            b"POST %b HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"
            % PATH.encode()
        )
        assert client.read().status == 400
        assert client.is_closed()


@pytest.mark.parametrize("ended", [True, False])
def test_a_head_above_the_limit_is_refused(
    ingress: IngressProcess, *, ended: bool
) -> None:
    with connected(ingress) as client:
        client.send(b"GET /v2 HTTP/1.1\r\nhost: h\r\n" + b"x-a: " + b"a" * 40_000)
        if ended:
            client.send(b"\r\n\r\n")
        answer = client.read()
        assert (answer.status, list(json.loads(answer.body))) == (431, ["error"])
        assert client.is_closed()


def test_http_1_0_is_answered_and_closed(ingress: IngressProcess) -> None:
    with connected(ingress) as client:
        client.send(GOOD.replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert client.read().status == 200
        assert client.is_closed()


@pytest.mark.parametrize("expected", ["100-continue", " 100-Continue \t"])
def test_a_client_may_wait_for_100_continue(
    ingress: IngressProcess, expected: str
) -> None:
    body = a_json()
    with connected(ingress) as client:
        client.send(head(len(body), f"expect:{expected}"))
        assert client.read(with_body=False).status == 100
        client.send(body)
        assert client.read().status == 200
        client.send(GOOD)
        assert client.read().status == 200


@pytest.mark.parametrize("model", ["echo", "nobody"])
def test_a_client_of_http_1_0_gets_no_100_continue(
    ingress: IngressProcess, model: str
) -> None:
    """It would not skip it (RFC 9110, 10.1.1), and sends its body unasked."""
    asked = head(500_000, "expect: 100-continue", path=f"/v2/models/{model}/infer")
    with connected(ingress) as client:
        client.send(asked.replace(b"HTTP/1.1", b"HTTP/1.0"))
        client.send(a_json() + b" " * (500_000 - len(a_json())))
        assert client.read().status == {"echo": 200, "nobody": 404}[model]
        assert client.is_closed()


def test_a_body_above_the_limit_is_refused_before_100_continue(
    ingress: IngressProcess,
) -> None:
    with connected(ingress) as client:
        client.send(head(5 * 2**20, "expect: 100-continue"))
        answer = client.read()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert client.is_closed()


def test_an_upgrade_is_not_taken_up(ingress: IngressProcess) -> None:
    fields = ("connection: upgrade", "upgrade: h2c")
    with connected(ingress) as client:
        client.send(a_request(a_json(), *fields))
        answer = client.read()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert "upgrade" in answer.error
        assert client.is_closed()
    with connected(ingress) as client:
        lines = "\r\n".join(["GET /v2 HTTP/1.1", "host: h", *fields, "", ""])
        client.send(lines.encode())
        answer = client.read()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert client.is_closed()


def test_a_connection_is_kept_as_the_client_asks(ingress: IngressProcess) -> None:
    with connected(ingress) as client:
        client.send(a_request(a_json(), "connection: close"))
        answer = client.read()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert client.is_closed()


@pytest.mark.parametrize(
    ("model", "version"),
    [
        ("..", None),
        ("../x", None),
        ("..%2fx", None),
        ("%2e%2e/x", None),
        ("..\\x", None),
        ("/etc", None),
        ("a%00b", None),
        ("a/../../b", None),
        ("echo", "../1"),
        ("echo", "1/../../x"),
        ("echo", "1%2f..%2f1"),
        ("echo%2f", None),
        ("e%63ho", None),
        ("", None),
        ("echo/", None),
        ("echo", ""),
        ("echo", "1/"),
        ("echo", "%31"),
        ("", "1"),
    ],
)
def test_a_name_that_is_no_name_is_not_found(
    ingress: IngressProcess, model: str, version: str | None
) -> None:
    base = f"/v2/models/{model}" + ("" if version is None else f"/versions/{version}")
    with connected(ingress) as client:
        client.send(a_request(a_json(), path=f"{base}/infer"))
        answer = client.read()
        assert (answer.status, list(json.loads(answer.body))) == (404, ["error"])
        for tail in ("", "/ready", "/config", "/stats"):
            client.send(f"GET {base}{tail} HTTP/1.1\r\nhost: h\r\n\r\n".encode())
            assert client.read().status in (400, 404)
