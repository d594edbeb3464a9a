"""What is said of a request whose body is at fault, to its sender and in the log."""

import json
from typing import Any

import httpx
import pytest

from tests.services.ingress.pipeline import IngressProcess
from tests.services.ingress.test_answers_http import an_input, infer

pytestmark = pytest.mark.kafka

MINE = "mine-7"


def refused(ingress: IngressProcess, model: str, body: bytes) -> httpx.Response:
    answer = infer(ingress, model, body)
    assert answer.status_code >= 400
    return answer


@pytest.mark.parametrize(
    ("model", "changes", "status"),
    [
        ("echo", {"inputs": [an_input(shape=[9, 4], data=[1] * 36)]}, 400),
        ("echo", {"inputs": [an_input(["a", 2, 3, 4])]}, 400),
        ("echo", {"inputs": [an_input() | {"shape": 5}]}, 400),
        ("echo", {"inputs": [{"name": 5}]}, 400),
        ("echo", {"inputs": 5}, 400),
        ("echo", {"inputs": [an_input([float("nan")] * 5)]}, 400),
        ("echo", {"inputs": [float("nan")]}, 400),
        ("echo", {"outputs": [{"name": "Z"}]}, 400),
        ("echo", {"parameters": {"priority": 9}}, 400),
        ("echo", {"parameters": {"timeout": 1}}, 503),
        ("ident_fp32", {"inputs": [an_input([1] * 262_200, shape=[1, 262_200])]}, 413),
        ("failing", {}, 500),
        ("silent", {"parameters": {"timeout": 1_000_000}}, 504),
    ],
)
def test_an_error_carries_the_id_that_its_body_gave(
    ingress: IngressProcess, model: str, changes: dict[str, Any], status: int
) -> None:
    body = {"id": MINE, "inputs": [an_input()], **changes}
    answer = infer(ingress, model, json.dumps(body).encode())
    assert answer.status_code == status
    assert answer.json().keys() == {"error", "id"}
    assert answer.json()["id"] == MINE


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"id":"mine-7"',
        b'{"id":5,"inputs":[]}',
        b'{"inputs":[]}',
        b'{"id":"' + b"x" * 2000 + b'","inputs":[]}',
        b"[NaN]",
    ],
)
def test_an_error_without_a_fit_id_carries_none(
    ingress: IngressProcess, body: bytes
) -> None:
    assert refused(ingress, "echo", body).json().keys() == {"error"}


PRIVATE = "Alice-4711"


@pytest.mark.parametrize(
    ("model", "datatype", "data"),
    [
        ("echo", "FP32", [1, 2, 3, PRIVATE]),
        ("ident_int8", "INT8", [47114711, 1, 1, 1]),
        ("ident_int8", "INT8", [47.11, 1, 1, 1]),
        ("ident_bool", "BOOL", [True, True, True, PRIVATE]),
        ("ident_bytes", "BYTES", [PRIVATE, PRIVATE, "\ud800", 1]),
        ("echo", "FP32", {PRIVATE: PRIVATE}),
        ("failing", "FP32", [47.11, 1, 1, 1]),
    ],
)
def test_the_log_of_a_failure_holds_no_data_of_the_request(
    ingress: IngressProcess, model: str, datatype: str, data: Any
) -> None:
    body = json.dumps({"inputs": [an_input(data, datatype=datatype)]}).encode()
    line = ingress.line_of(
        lambda: refused(ingress, model, body).headers["headrace-request-id"]
    )
    assert not any(secret in said(line) for secret in (PRIVATE, "4711", "47.11"))
    assert line["text"]


def said(line: dict[str, Any]) -> str:
    """All of a line but what may be any number."""
    numbers = ("request_id", "timestamp", "total_us")
    return json.dumps({name: line[name] for name in line.keys() - set(numbers)})


def test_a_number_out_of_range_beside_a_bare_token_is_not_logged(
    ingress: IngressProcess,
) -> None:
    text = b'{"inputs":[{"name":"X","shape":[1,2],"datatype":"FP32","data":[NaN,%b]}]}'

    def fail() -> str:
        answer = refused(ingress, "echo", text % b"4711e4711")
        assert "4711e4711" in answer.json()["error"]
        return answer.headers["headrace-request-id"]

    assert "4711e" not in said(ingress.line_of(fail))
