"""Triton's own client, unchanged."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from tests.end_to_end.platforms import Platform

pytestmark = pytest.mark.kafka


@pytest.fixture
def client(platform: Platform) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(platform.url.removeprefix("http://")) as client:
        yield client


def inputs_of(*, binary: bool) -> list[triton.InferInput]:
    values = np.arange(32, dtype=np.int32).reshape(2, 16)
    inputs = []
    for name, value in (("INPUT0", values), ("INPUT1", values * 3)):
        one = triton.InferInput(name, list(value.shape), "INT32")
        one.set_data_from_numpy(value, binary_data=binary)
        inputs.append(one)
    return inputs


def test_health_and_metadata(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("addsub")
    assert client.is_model_ready("addsub", "1")
    assert not client.is_model_ready("refused")
    assert not client.is_model_ready("no-such-model")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    metadata = client.get_model_metadata("addsub")
    assert metadata["versions"] == ["1"]
    assert metadata["inputs"][0] == {
        "name": "INPUT0",
        "datatype": "INT32",
        "shape": [-1, 16],
    }


def test_configuration_statistics_and_index(
    client: triton.InferenceServerClient,
) -> None:
    config = client.get_model_config("addsub")
    assert (config["name"], config["max_batch_size"]) == ("addsub", 32)
    assert config["input"][0] == {
        "name": "INPUT0",
        "data_type": "TYPE_INT32",
        "dims": [16],
    }

    before = client.get_inference_statistics("addsub")["model_stats"][0]
    client.infer("addsub", inputs_of(binary=True))
    after = client.get_inference_statistics("addsub", "1")["model_stats"][0]
    assert after["inference_count"] - before["inference_count"] == 2
    assert after["execution_count"] - before["execution_count"] == 1
    successes = [s["inference_stats"]["success"]["count"] for s in (before, after)]
    assert successes[1] - successes[0] == 1

    index = {entry["name"]: entry for entry in client.get_model_repository_index()}
    assert index["addsub"]["state"] == "READY"
    assert index["refused"]["state"] == "UNAVAILABLE"
    assert "FancyOp" in index["refused"]["reason"]


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_inference(
    client: triton.InferenceServerClient, compression: str | None, *, binary: bool
) -> None:
    outputs = [
        triton.InferRequestedOutput(name, binary_data=binary)
        for name in ("OUTPUT1", "OUTPUT0")
    ]

    result = client.infer(
        "addsub",
        inputs_of(binary=binary),
        outputs=outputs,
        request_id="my-id",
        priority=1,
        timeout=5_000_000,
        request_compression_algorithm=compression,
        response_compression_algorithm=compression,
    )

    values = np.arange(32, dtype=np.int32).reshape(2, 16)
    assert result.get_response()["id"] == "my-id"
    assert result.get_response()["model_version"] == "1"
    assert np.array_equal(result.as_numpy("OUTPUT0"), values * 4)
    assert np.array_equal(result.as_numpy("OUTPUT1"), values * -2)


def test_unnamed_outputs_come_as_binary(client: triton.InferenceServerClient) -> None:
    result = client.infer("addsub", inputs_of(binary=True), model_version="1")

    assert result.as_numpy("OUTPUT0").shape == (2, 16)
    assert "binary_data_size" in result.get_output("OUTPUT0")["parameters"]


@pytest.mark.parametrize("binary", [True, False])
def test_strings(client: triton.InferenceServerClient, *, binary: bool) -> None:
    words = np.array([["größe", ""], ["a\nb", "\U0001f600"]], object)
    one = triton.InferInput("X", [2, 2], "BYTES")
    one.set_data_from_numpy(words, binary_data=binary)

    result = client.infer("identity_bytes", [one])

    got = result.as_numpy("Y")
    assert [v.decode() if isinstance(v, bytes) else v for v in got.ravel()] == list(
        words.ravel()
    )


def test_errors_are_sentences(client: triton.InferenceServerClient) -> None:
    short = triton.InferInput("INPUT0", [1, 16], "INT32")
    short.set_data_from_numpy(np.zeros((1, 16), np.int32))

    with pytest.raises(InferenceServerException, match="INPUT1"):
        client.infer("addsub", [short])
    with pytest.raises(InferenceServerException, match="no-such-model"):
        client.infer("no-such-model", [short])
    with pytest.raises(InferenceServerException, match="FancyOp"):
        client.infer("refused", [short])


def test_many_requests_at_once(client: triton.InferenceServerClient) -> None:
    handles = [client.async_infer("addsub", inputs_of(binary=True)) for _ in range(20)]

    for handle in handles:
        assert handle.get_result().as_numpy("OUTPUT0").shape == (2, 16)
