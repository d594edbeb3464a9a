"""The unchanged client of Triton Inference Server."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from tests.services.ingress.pipeline import IngressProcess

pytestmark = pytest.mark.kafka


@pytest.fixture
def client(ingress: IngressProcess) -> Iterator[Any]:
    opened = triton.InferenceServerClient(ingress.url.removeprefix("http://"))
    yield opened
    opened.close()


def an_input(value: Any, *, name: str = "X", binary: bool = True) -> Any:
    datatype = {"float32": "FP32", "int64": "INT64", "object": "BYTES"}[
        str(value.dtype)
    ]
    given = triton.InferInput(name, value.shape, datatype)
    given.set_data_from_numpy(value, binary_data=binary)
    return given


ROWS = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("packed", [None, "gzip", "deflate"])
def test_inference(client: Any, *, binary: bool, packed: str | None) -> None:
    result = client.infer(
        "echo",
        [an_input(ROWS, binary=binary)],
        outputs=[triton.InferRequestedOutput("Y", binary_data=binary)],
        request_id="42",
        priority=1,
        timeout=4_000_000,
        request_compression_algorithm=packed,
        response_compression_algorithm=packed,
        headers={"x-request-id": "abc"},
        parameters={"mine": "yes"},
    )
    assert np.array_equal(result.as_numpy("Y"), ROWS)
    assert result.get_response()["id"] == "42"


def test_inference_with_the_clients_defaults(client: Any) -> None:
    text = np.array([["é"], ["b"]], object)
    pair = np.array([[1, 2], [3, 4]], np.float32)
    result = client.infer("two", [an_input(pair, name="A"), an_input(text, name="B")])
    assert np.array_equal(result.as_numpy("Y"), pair)
    assert [cell.decode() for cell in result.as_numpy("Y1").ravel()] == ["é", "b"]


def test_an_error_is_told(client: Any) -> None:
    with pytest.raises(InferenceServerException, match=r"no input 'Z'.*'X'"):
        client.infer("echo", [an_input(ROWS, name="Z")])
    classified = [triton.InferRequestedOutput("Y", class_count=2)]
    with pytest.raises(InferenceServerException, match="classification"):
        client.infer("echo", [an_input(ROWS)], outputs=classified)
    with pytest.raises(InferenceServerException, match="unknown model"):
        client.infer("nothing", [an_input(ROWS)])


def test_health_and_metadata(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("echo")
    assert client.is_model_ready("echo", "1")
    assert not client.is_model_ready("nothing")
    server = client.get_server_metadata()
    assert (server["name"], "binary_tensor_data" in server["extensions"]) == (
        "headrace",
        True,
    )
    assert client.get_model_metadata("echo") == {
        "name": "echo",
        "versions": ["1"],
        "platform": "onnx_onnxv1",
        "inputs": [{"name": "X", "datatype": "FP32", "shape": [-1, 4]}],
        "outputs": [{"name": "Y", "datatype": "FP32", "shape": [-1, 4]}],
    }


def test_configuration(client: Any) -> None:
    assert client.get_model_config("two", "1") == {
        "name": "two",
        "platform": "onnxruntime_onnx",
        "backend": "onnxruntime",
        "max_batch_size": 8,
        "input": [
            {"name": "A", "data_type": "TYPE_FP32", "dims": [2]},
            {"name": "B", "data_type": "TYPE_STRING", "dims": [1]},
        ],
        "output": [
            {"name": "Y", "data_type": "TYPE_FP32", "dims": [2]},
            {"name": "Y1", "data_type": "TYPE_STRING", "dims": [1]},
        ],
    }


def test_the_repository_index(client: Any) -> None:
    index = client.get_model_repository_index()
    (echo,) = (entry for entry in index if entry["name"] == "echo")
    assert echo == {"name": "echo", "version": "1", "state": "READY", "reason": ""}


def test_statistics(client: Any) -> None:
    def of_model() -> Any:
        (entry,) = client.get_inference_statistics("ident_int64")["model_stats"]
        return entry

    before = of_model()
    rows = np.array([[1], [2], [3]], np.int64)
    client.infer("ident_int64", [an_input(rows)])
    after = of_model()
    assert after["inference_count"] - before["inference_count"] == 3
    assert after["execution_count"] - before["execution_count"] == 1
    success = after["inference_stats"]["success"]
    assert success["count"] - before["inference_stats"]["success"]["count"] == 1
    assert success["ns"] > 0
    (times,) = (each for each in after["batch_stats"] if each["batch_size"] == 3)
    runs = times["compute_infer"]
    # The stand-in for the worker says that each run took 0.3 ms.
    assert runs["ns"] == runs["count"] * 300_000
    everything = client.get_inference_statistics()["model_stats"]
    assert {entry["name"] for entry in everything} >= {"echo", "two", "ident_int64"}


@pytest.mark.parametrize(
    "asked",
    [
        lambda client: client.load_model("echo"),
        lambda client: client.unload_model("echo"),
        lambda client: client.get_trace_settings(),
        lambda client: client.get_log_settings(),
        lambda client: client.get_system_shared_memory_status(),
        lambda client: client.get_cuda_shared_memory_status(),
    ],
)
def test_what_is_not_offered_says_so(client: Any, asked: Any) -> None:
    with pytest.raises(InferenceServerException, match="does not offer"):
        asked(client)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/models/echo/infer", 405),
        ("PUT", "/v2/models/echo/infer", 405),
        ("POST", "/v2/models/echo", 405),
        ("DELETE", "/v2", 405),
        ("GET", "/", 404),
        ("GET", "/v2/nothing", 404),
        ("POST", "/v2/models//infer", 404),
        ("POST", "/v2/models/echo/versions/1/infer/", 404),
        ("GET", "/v2/models/nothing", 404),
        ("GET", "/v2/models/nothing/config", 404),
        ("GET", "/v2/models/echo/versions/7", 404),
        ("GET", "/v2/models/echo/versions/x/stats", 404),
    ],
)
def test_other_paths_and_verbs_answer_in_json(
    ingress: IngressProcess, method: str, path: str, status: int
) -> None:
    answer = httpx.request(method, f"{ingress.url}{path}")
    assert (answer.status_code, list(answer.json())) == (status, ["error"])


def test_head_is_get_without_a_body(ingress: IngressProcess) -> None:
    with httpx.Client(base_url=ingress.url) as client:
        for path in ("/v2", "/v2/health/live", "/livez", "/metrics"):
            answer = client.head(path)
            assert (answer.status_code, answer.content) == (200, b"")
        assert client.get("/v2").status_code == 200


def test_probes(ingress: IngressProcess) -> None:
    assert httpx.get(f"{ingress.url}/livez").text == "ok\n"
    assert httpx.get(f"{ingress.url}/readyz").text == "ok\n"
    metrics = httpx.get(f"{ingress.url}/metrics")
    # Clients of other tests may be in flight still.
    assert re.search(r"^headrace_requests_in_flight \d", metrics.text, re.MULTILINE)


def test_made_up_names_add_no_series(ingress: IngressProcess) -> None:
    def series() -> set[str]:
        lines = httpx.get(f"{ingress.url}/metrics").text.splitlines()
        return {line.rpartition(" ")[0] for line in lines if not line.startswith("#")}

    with httpx.Client(base_url=ingress.url) as client:

        def ask(number: int) -> None:
            name = f"m{number}" + ('"\\' if number % 2 else "x" * 5000)
            client.post(
                f"/v2/models/{name}/versions/{number}/infer",
                json={},
                headers={"headrace-tenant": f"t{number}", "x-request-id": str(number)},
            )
            client.get(f"/v2/models/{name}")
            client.request("PATCH" if number % 3 else "GET", f"/{name}")

        ask(1)
        ask(2)
        before = series()
        for number in range(3, 120):
            ask(number)
    assert series() == before
