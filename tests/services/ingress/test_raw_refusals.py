"""Every answer that is no success says why in its head, whoever made it."""

import json
import re

import httpx
import pytest

from tests.services.ingress.pipeline import IngressProcess
from tests.services.ingress.test_raw_sockets import (
    GOOD,
    PATH,
    Answer,
    a_json,
    a_request,
    connected,
    head,
)

pytestmark = pytest.mark.kafka

CHUNKED = b"POST %b HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n"
UPGRADE = ("connection: upgrade", "upgrade: h2c")


def ask(ingress: IngressProcess, request: bytes) -> Answer:
    """The answer; its head is checked as it is read."""
    with connected(ingress) as client:
        client.send(request)
        return client.read(with_body=not request.startswith(b"HEAD"))


def a_get(path: str, *fields: str, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: h", *fields, "", ""]
    return "\r\n".join(lines).encode()


@pytest.mark.parametrize(
    ("request_", "status", "reason"),
    [
        (a_get("/ready"), 404, "invalid"),
        (a_get("/v2/models/m/ready"), 404, "model_unknown"),
        (a_get("/v2/models/m"), 404, "model_unknown"),
        (a_get("/v2/models/echo/versions/7/config"), 404, "model_unknown"),
        (a_get(PATH), 405, "invalid"),
        (a_get(PATH, method="HEAD"), 405, "invalid"),
        (a_get(PATH, method="OPTIONS"), 405, "invalid"),
        (a_get("*", method="OPTIONS"), 404, "invalid"),
        (a_get("/v2/logging"), 501, "invalid"),
        (a_request(b"{}", path="/v2/models/echo/generate"), 501, "invalid"),
        (a_request(b"{}", path="/v2/models/x/infer"), 404, "model_unknown"),
        (a_request(b"{}", path="/inference.GRPCInferenceService/S"), 404, "invalid"),
        (a_request(b"{}", "content-encoding: br"), 415, "invalid"),
        (a_request(a_json(), *UPGRADE), 400, "invalid"),
        (a_get(PATH, *UPGRADE), 405, "invalid"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "invalid"),
        (b"rubbish\r\n\r\n", 400, "invalid"),
        (b"\x16\x03\x01\x02\x00\x01", 400, "invalid"),
        (a_get("/v2").replace(b"1.1", b"3.7"), 400, "invalid"),
        (GOOD.replace(b"HTTP/1.1", b"HTTP/2.0"), 505, "invalid"),
        (a_get("/v2").replace(b"1.1", b"0.9"), 505, "invalid"),
        (GOOD.replace(b"host: h\r\n", b""), 400, "invalid"),
        (a_get("/v2").replace(b"host: h\r\n", b""), 400, "invalid"),
        (a_get("/v2", "host: g"), 400, "invalid"),
        (a_request(a_json(), "expect: foo"), 417, "invalid"),
        (CHUNKED % PATH.encode() + b"zz\r\n", 400, "invalid"),
        (CHUNKED % b"/v2/repository/index" + b"zz\r\n", 400, "invalid"),
        (a_get("/v2", "x-a: " + "a" * 40_000), 431, "too_large"),
        (a_get("/" + "a" * 40_000), 431, "too_large"),
        (head(5 * 2**20), 413, "too_large"),
        (
            GOOD.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"echo", b"xxxx"),
            404,
            "model_unknown",
        ),
    ],
)
def test_an_error_answer_says_why(
    ingress: IngressProcess, request_: bytes, status: int, reason: str
) -> None:
    answer = ask(ingress, request_)
    assert (answer.status, answer.headers["headrace-reason"]) == (status, reason)
    if not request_.startswith(b"HEAD"):
        assert "error" in json.loads(answer.body)


def test_a_body_that_does_not_come_is_answered_with_a_reason(
    hasty: IngressProcess,
) -> None:
    answer = ask(hasty, head(10))
    assert (answer.status, answer.headers["headrace-reason"]) == (408, "invalid")
    assert "error" in json.loads(answer.body)


@pytest.mark.parametrize(
    ("request_", "allowed"),
    [
        (a_get(PATH), "POST"),
        (a_get("/v2/requests/x", method="PUT"), "DELETE, GET, HEAD"),
    ],
)
def test_a_path_takes_what_its_answer_allows(
    ingress: IngressProcess, request_: bytes, allowed: str
) -> None:
    answer = ask(ingress, request_)
    assert answer.headers["allow"] == allowed
    assert f"this path takes {allowed}, not " in answer.body.decode()


@pytest.mark.parametrize("path", ["/nowhere", "/v2/models/x/infer", "/v2"])
def test_whoever_is_answered_without_100_continue_may_leave_its_body_out(
    ingress: IngressProcess, path: str
) -> None:
    with connected(ingress) as client:
        client.send(head(10, "expect: 100-continue", path=path))
        assert client.read().headers["connection"] == "close"
        assert client.is_closed()


def test_a_client_of_http_2_is_told_what_is_spoken(ingress: IngressProcess) -> None:
    answer = ask(ingress, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4")
    assert "HTTP/1.1" in answer.error


@pytest.mark.parametrize(
    "request_",
    [
        a_get("/v2/models/echo", "x-request-id: theirs-7"),
        a_get("/nowhere", "x-request-id: theirs-7"),
        a_get("/v2", "x-request-id: theirs-7", "x-a: " + "a" * 40_000),
        CHUNKED.replace(b"\r\n\r\n", b"\r\nx-request-id: theirs-7\r\n\r\n")
        % PATH.encode()
        + b"zz\r\n",
    ],
)
def test_the_clients_id_is_echoed_on_every_way(
    ingress: IngressProcess, request_: bytes
) -> None:
    assert ask(ingress, request_).headers["x-request-id"] == "theirs-7"


@pytest.mark.parametrize(
    ("request_", "status"), [(b"rubbish\r\n\r\n", 400), (a_get("/nowhere"), 404)]
)
def test_what_never_was_an_inference_request_is_logged_and_counted_too(
    ingress: IngressProcess, request_: bytes, status: int
) -> None:
    def fail() -> str:
        before = counted(ingress, status)
        ours = ask(ingress, request_).headers["headrace-request-id"]
        assert counted(ingress, status) == before + 1
        return ours

    assert ingress.line_of(fail)["status"] == status


def counted(ingress: IngressProcess, status: int) -> float:
    """Requests of no model that ended so."""
    found = re.search(
        'headrace_requests_total{model="unknown",priority="standard",'
        f'reason="invalid",status="{status}",version="unknown"}} (.*)',
        httpx.get(f"{ingress.url}/metrics").text,
    )
    return 0 if found is None else float(found[1])
