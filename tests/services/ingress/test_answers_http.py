"""Requests through the real log, answered over HTTP."""

import gzip
import json
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from math import inf, isnan
from typing import Any

import httpx
import pytest

from headrace.domain import Datatype, ModelState, Priority
from headrace.wire.headers import LENGTH, REQUEST_HEADERS
from tests.services.ingress.models import a_version
from tests.services.ingress.pipeline import IngressProcess, Pipeline, until

pytestmark = pytest.mark.kafka

ONE_ROW = struct.pack("<4f", 1, 2, 3, 4)


def an_input(data: Any = (1, 2, 3, 4), **changes: Any) -> dict[str, Any]:
    return {"name": "X", "shape": [1, 4], "datatype": "FP32", "data": data} | changes


def infer(
    ingress: IngressProcess,
    model: str = "echo",
    body: dict[str, Any] | bytes | None = None,
    **headers: str | bytes,
) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body or a_body()).encode()
    return httpx.post(
        f"{ingress.url}/v2/models/{model}/infer",
        content=content,
        headers={
            "accept-encoding": "identity",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        },
        timeout=20,
        verify=False,  # noqa: S501 - it is http, and loading authorities is slow
    )


def a_body(**others: Any) -> dict[str, Any]:
    return {"inputs": [an_input()], **others}


def binary_body(raw: bytes = ONE_ROW, **others: Any) -> tuple[bytes, dict[str, str]]:
    one = {
        "name": "X",
        "shape": [1, 4],
        "datatype": "FP32",
        "parameters": {"binary_data_size": len(raw)},
    }
    text = json.dumps({"inputs": [one], **others}).encode()
    return text + raw, {"Inference_Header_Content_Length": str(len(text))}


def split(answer: httpx.Response) -> tuple[dict[str, Any], bytes]:
    """The JSON part and the binary part of an answer."""
    at = int(answer.headers["inference-header-content-length"])
    return json.loads(answer.content[:at]), answer.content[at:]


def test_json_in_json_out(ingress: IngressProcess) -> None:
    answer = infer(ingress, body={"id": '4"2', "inputs": [an_input([1, -2, 0.5, 4])]})
    assert answer.json() == {
        "model_name": "echo",
        "model_version": "1",
        "id": '4"2',
        "outputs": [
            {
                "name": "Y",
                "datatype": "FP32",
                "shape": [1, 4],
                "data": [1.0, -2.0, 0.5, 4.0],
            }
        ],
    }
    assert answer.headers["content-type"] == "application/json"


def test_binary_in_binary_out(ingress: IngressProcess) -> None:
    body, headers = binary_body(parameters={"binary_data_output": True})
    answer = infer(ingress, body=body, **headers)
    described, raw = split(answer)
    assert (answer.headers["content-type"], raw) == (
        "application/octet-stream",
        ONE_ROW,
    )
    assert described["outputs"] == [
        {
            "name": "Y",
            "datatype": "FP32",
            "shape": [1, 4],
            "parameters": {"binary_data_size": 16},
        }
    ]


def test_outputs_in_the_order_and_form_that_was_asked(ingress: IngressProcess) -> None:
    body = {
        "inputs": [
            {"name": "B", "shape": [2, 1], "datatype": "BYTES", "data": ["é", ""]},
            {"name": "A", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4]},
        ],
        "outputs": [
            {"name": "Y1"},
            {"name": "Y", "parameters": {"binary_data": True}},
        ],
    }
    described, raw = split(infer(ingress, "two", body))
    assert [output["name"] for output in described["outputs"]] == ["Y1", "Y"]
    assert (described["outputs"][0]["data"], raw) == (["é", ""], ONE_ROW)


def test_a_raw_request(ingress: IngressProcess) -> None:
    answer = infer(ingress, body=ONE_ROW, Inference_Header_Content_Length="0")
    assert split(answer)[1] == ONE_ROW


@pytest.mark.parametrize(
    ("datatype", "data", "raw"),
    [
        (Datatype.BOOL, [True, False], b"\1\0"),
        (Datatype.UINT8, [0, 255], b"\0\xff"),
        (Datatype.INT8, [-128, 127], b"\x80\x7f"),
        (Datatype.UINT16, [0, 65535], struct.pack("<2H", 0, 65535)),
        (Datatype.INT16, [-32768, 7], struct.pack("<2h", -32768, 7)),
        (Datatype.UINT32, [0, 2**32 - 1], struct.pack("<2I", 0, 2**32 - 1)),
        (Datatype.INT32, [-(2**31), 7], struct.pack("<2i", -(2**31), 7)),
        (Datatype.UINT64, [0, 2**64 - 1], struct.pack("<2Q", 0, 2**64 - 1)),
        (Datatype.INT64, [-(2**63), 7], struct.pack("<2q", -(2**63), 7)),
        (Datatype.FP32, [0.5, -2.25], struct.pack("<2f", 0.5, -2.25)),
        (Datatype.FP64, [0.1, 1e300], struct.pack("<2d", 0.1, 1e300)),
        (Datatype.BYTES, ["a", "ü€"], b"\1\0\0\0a\5\0\0\0\xc3\xbc\xe2\x82\xac"),
        (Datatype.FP16, None, b"\0\x3c\0\xc0"),
        (Datatype.BF16, None, b"\x80\x3f\0\xc0"),
        # A signalling NaN with a payload, and an infinity.
        (Datatype.FP16, None, b"\1\x7d\0\xfc"),
        (Datatype.BF16, None, b"\x81\x7f\x80\xff"),
        (Datatype.FP32, None, b"\1\0\x81\x7f\0\0\x80\xff"),
        (Datatype.FP64, None, b"\1\0\0\0\0\0\xf1\x7f\0\0\0\0\0\0\xf0\xff"),
    ],
)
def test_every_datatype_both_ways(
    ingress: IngressProcess, datatype: Datatype, data: Any, raw: bytes
) -> None:
    model = f"ident_{datatype.lower()}"
    described = {"name": "X", "shape": [1, 2], "datatype": datatype}
    if data is not None:
        answer = infer(ingress, model, {"inputs": [described | {"data": data}]})
        assert answer.json()["outputs"][0]["data"] == data
    text = json.dumps(
        {
            "inputs": [described | {"parameters": {"binary_data_size": len(raw)}}],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    answer = infer(
        ingress, model, text + raw, Inference_Header_Content_Length=str(len(text))
    )
    assert split(answer)[1] == raw


def test_not_a_number_travels_as_the_bare_tokens(ingress: IngressProcess) -> None:
    answer = infer(ingress, "log", {"inputs": [an_input([-1, 0, 1, 1])]})
    assert b"[NaN,-Infinity,0.0,0.0]" in answer.content
    text = b'{"inputs":[{"name":"X","shape":[1,4],"datatype":"FP32","data":%b}]}'
    answer = infer(ingress, body=text % b"[NaN,Infinity,-Infinity,1]")
    nan, *others = json.loads(answer.content)["outputs"][0]["data"]
    assert (isnan(nan), others) == (True, [inf, -inf, 1.0])
    for wrong in (b"1e400", b"null", b'"NaN"'):
        refused = infer(ingress, body=text % (b"[1,2,3,%b]" % wrong))
        assert (refused.status_code, list(refused.json())) == (400, ["error"])


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
)
def test_a_compressed_body_is_read_before_its_json_length(
    ingress: IngressProcess, encoding: str, pack: Any
) -> None:
    # Long enough that the length of the JSON passes that of the compressed body.
    body, headers = binary_body(id="x" * 500, parameters={"binary_data_output": True})
    answer = infer(ingress, body=pack(body), content_encoding=encoding, **headers)
    assert int(headers["Inference_Header_Content_Length"]) > len(pack(body))
    assert split(answer)[1] == ONE_ROW
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("deflate, gzip;q=0.5", "gzip"),
        ("br", None),
        ("gzip;q=0", None),
        ("*;q=0, identity", None),
    ],
)
def test_an_answer_is_compressed_when_asked(
    ingress: IngressProcess, accepted: str, encoding: str | None
) -> None:
    answer = infer(ingress, accept_encoding=accepted)
    assert answer.headers.get("content-encoding") == encoding
    assert answer.json()["outputs"][0]["data"] == [1.0, 2.0, 3.0, 4.0]


def test_a_body_that_unpacks_too_large_is_refused(ingress: IngressProcess) -> None:
    bomb = gzip.compress(bytes(64 * 1024 * 1024))
    answer = infer(ingress, body=bomb, content_encoding="gzip")
    assert (answer.status_code, answer.headers["headrace-reason"]) == (413, "too_large")


def test_an_unknown_content_encoding_is_answered_with_the_known_ones(
    ingress: IngressProcess,
) -> None:
    answer = infer(ingress, content_encoding="br")
    assert (answer.status_code, answer.headers["accept-encoding"]) == (
        415,
        "gzip, deflate",
    )
    assert "gzip, deflate" in answer.json()["error"]


def test_ids_are_echoed_and_lie_in_the_log(
    ingress: IngressProcess, pipeline: Pipeline
) -> None:
    answer = infer(
        ingress, body=a_body(id="mine"), x_request_id="theirs-ü".encode("latin-1")
    )
    ours = answer.headers["headrace-request-id"]
    assert answer.headers["x-request-id"] == "theirs-ü"
    headers = pipeline.headers[ours]
    written = [name for name in headers if name in REQUEST_HEADERS]
    assert written == [name for name in REQUEST_HEADERS if name != LENGTH]
    assert headers["x-request-id"] == "theirs-ü".encode()
    (request,) = (one for one in pipeline.requests if one.id == ours)
    assert request.client_id == "mine"


@pytest.mark.parametrize(
    ("parameters", "headers", "priority", "limit_ms"),
    [
        ({}, {}, Priority.STANDARD, 5000),
        ({"priority": 1}, {}, Priority.REALTIME, 5000),
        ({}, {"headrace_priority": "bulk"}, Priority.BULK, 5000),
        (
            {"priority": "interactive", "timeout": 2_000_000},
            {"headrace_priority": "bulk", "headrace_timeout_ms": "9000"},
            Priority.INTERACTIVE,
            2000,
        ),
        (
            {"priority": 0, "timeout": 0},
            {"headrace_priority": "realtime", "headrace_timeout_ms": "9000"},
            Priority.REALTIME,
            9000,
        ),
    ],
)
def test_a_body_parameter_wins_over_a_header(
    ingress: IngressProcess,
    pipeline: Pipeline,
    parameters: dict[str, Any],
    headers: dict[str, str],
    priority: Priority,
    limit_ms: int,
) -> None:
    answer = infer(
        ingress,
        body=a_body(parameters=parameters),
        headrace_tenant="tenant-1",
        **headers,
    )
    ours = answer.headers["headrace-request-id"]
    (request,) = (one for one in pipeline.requests if one.id == ours)
    assert (request.priority, request.tenant) == (priority, "tenant-1")
    assert request.deadline_us is not None
    # Log time has milliseconds; the request was some time in the ingress before, and on
    # a busy machine longer, but not so long that its limit could be another one.
    left_ms = (request.deadline_us - request.arrived_us) / 1000
    assert limit_ms - 2_900 < left_ms < limit_ms + 20


def test_the_models_objective_is_the_default_limit(
    ingress: IngressProcess, pipeline: Pipeline
) -> None:
    pipeline.announce(a_version(model="brief", latency_objective_us=3_000_000))
    until(lambda: infer(ingress, "brief").status_code == 200)
    ours = infer(ingress, "brief").headers["headrace-request-id"]
    (request,) = (one for one in pipeline.requests if one.id == ours)
    assert request.deadline_us is not None
    assert 0 < (request.deadline_us - request.arrived_us) / 1000 < 3_020


@pytest.mark.parametrize(
    "headers",
    [
        {"headrace_priority": "urgent"},
        {"headrace_timeout_ms": "-1"},
        {"headrace_timeout_ms": "1.5"},
        {"headrace_timeout_ms": "600001"},
        {"headrace_tenant": "a.b"},
        {"headrace_tenant": ""},
        {"x_request_id": "x" * 300},
    ],
)
def test_a_header_out_of_range_is_named(
    ingress: IngressProcess, headers: dict[str, str]
) -> None:
    answer = infer(ingress, **headers)
    ((name, _),) = headers.items()
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(name.replace("_", "-"))
    assert answer.headers["headrace-reason"] == "invalid"


def test_no_answer_in_time_is_504_at_the_deadline(ingress: IngressProcess) -> None:
    """To the microsecond: `test_handler`. Here, not at the model's, five seconds on."""

    def fail() -> str:
        limit = {"headrace_timeout_ms": "1000", "x_request_id": "late-1"}
        answer = infer(ingress, "silent", **limit)
        reason = answer.headers["headrace-reason"]
        assert (answer.status_code, reason) == (504, "expired")
        assert 1.0 <= answer.elapsed.total_seconds() < 4.5
        return answer.headers["headrace-request-id"]

    line = ingress.line_of(fail)
    assert (line["x_request_id"], line["status"]) == ("late-1", 504)


def test_a_failure_of_the_model_is_told(ingress: IngressProcess) -> None:
    answer = infer(ingress, "failing")
    assert (answer.status_code, answer.json()) == (
        500,
        {"error": "the model failed on purpose"},
    )
    assert answer.headers["headrace-reason"] == "model_error"


def test_the_first_of_two_replies_wins(ingress: IngressProcess) -> None:
    assert infer(ingress, "twice").status_code == 200
    until(
        lambda: (
            'headrace_replies_total{kind="duplicate"} 1.0'
            in httpx.get(f"{ingress.url}/metrics").text
        )
    )


@pytest.mark.parametrize("more", [0, 4])
def test_tensors_up_to_the_limit_pass_and_no_larger_ones(
    ingress: IngressProcess, more: int
) -> None:
    size = 2**20 + more
    described = {
        "name": "X",
        "shape": [1, size // 4],
        "datatype": "FP32",
        "parameters": {"binary_data_size": size},
    }
    text = json.dumps(
        {
            "id": "x" * 1024,
            "inputs": [described],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    answer = infer(
        ingress,
        "ident_fp32",
        text + bytes(size),
        Inference_Header_Content_Length=str(len(text)),
        x_request_id="y" * 256,
    )
    if more:
        assert (answer.status_code, answer.headers["headrace-reason"]) == (
            413,
            "too_large",
        )
        assert "1048576" in answer.json()["error"]
    else:
        assert split(answer)[1] == bytes(size)


def test_every_answer_goes_to_its_own_request(ingress: IngressProcess) -> None:
    def one(number: int, client: httpx.Client) -> bool:
        rows = number % 3 + 1
        data = [number * 8 + place for place in range(rows * 2)]
        answer = client.post(
            f"{ingress.url}/v2/models/ident_int64/infer",
            json={
                "id": str(number),
                "inputs": [
                    an_input(data, shape=[rows, 2], datatype="INT64"),
                ],
            },
        ).json()
        return bool(
            answer["id"] == str(number)
            and answer["outputs"][0]["shape"] == [rows, 2]
            and answer["outputs"][0]["data"] == data
        )

    # One that closes the connections beyond so many idle ones may close one that
    # another thread has just begun to use.
    limits = httpx.Limits(max_keepalive_connections=None)
    client = httpx.Client(timeout=20, limits=limits)
    with client, ThreadPoolExecutor(32) as pool:
        assert all(pool.map(lambda number: one(number, client), range(600)))


def test_versions_come_and_go(ingress: IngressProcess, pipeline: Pipeline) -> None:
    first, second = (a_version(model="moving", version=v) for v in ("9", "10"))
    pipeline.announce(first)
    until(lambda: infer(ingress, "moving").status_code == 200)
    pipeline.announce(second)
    until(lambda: infer(ingress, "moving").json()["model_version"] == "10")
    assert infer(ingress, "moving/versions/9").json()["model_version"] == "9"
    pipeline.announce(second, ModelState.UNLOADING)
    until(lambda: infer(ingress, "moving").json()["model_version"] == "9")
    refused = infer(ingress, "moving/versions/10")
    assert (refused.status_code, refused.headers["headrace-reason"]) == (
        503,
        "model_unavailable",
    )
    assert int(refused.headers["retry-after"]) >= 1
    pipeline.retire(second)
    until(lambda: infer(ingress, "moving/versions/10").status_code == 404)
