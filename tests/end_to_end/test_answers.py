"""Answers equal those of ONNX Runtime called directly, however they were asked for."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from services.ctl.demo import digits
from tests.end_to_end.platforms import (
    DTYPES,
    Array,
    Direct,
    Platform,
    from_raw,
    outputs_of,
    to_raw,
)
from tests.models import graphs, zoo

pytestmark = pytest.mark.kafka

NO_JSON_FORM = {"FP16", "BF16"}


def values_of(datatype: str) -> Array:
    """Three rows of four elements with the extremes of the type."""
    if datatype == "BYTES":
        words = ["", "a", "äöü", "line\nend", '"quoted"', "\\", "{}", "0"]
        words += ["x" * 300, "\u0000", "\U0001f600", " "]
        return np.array([word.encode() for word in words], object).reshape(3, 4)
    if datatype == "BOOL":
        return np.array([True, False] * 6).reshape(3, 4)
    if datatype == "BF16":
        return np.arange(0x3F80, 0x3F8C, dtype=np.uint16).reshape(3, 4)
    dtype = DTYPES[datatype]
    edges: list[Any]
    if dtype.kind == "f":
        floats = np.finfo(dtype)
        edges = [floats.max, floats.min, floats.tiny, -0.0, 1 / 3, 1e-3]
    else:
        whole = np.iinfo(dtype)
        edges = [whole.max, whole.min, 0, 1, whole.max - 1, 7]
    return np.array([*edges, *range(6)], dtype).reshape(3, 4)


def tensor_header(datatype: str, values: Array, **facts: Any) -> dict[str, Any]:
    return {
        "name": "X",
        "datatype": datatype,
        "shape": list(values.shape),
        **facts,
    }


@pytest.mark.parametrize("datatype", list(graphs.DATATYPES))
@pytest.mark.parametrize("rows", [1, 3])
def test_binary_tensors_come_back_bit_by_bit(
    platform: Platform, datatype: str, rows: int
) -> None:
    values = values_of(datatype)[:rows]
    raw = to_raw(values, datatype)
    parameters = {"binary_data_size": len(raw)}
    header = json.dumps(
        {
            "inputs": [tensor_header(datatype, values, parameters=parameters)],
            "outputs": [{"name": "Y", "parameters": {"binary_data": True}}],
        }
    ).encode()

    answer = platform.post(
        f"identity_{datatype.lower()}/infer",
        header + raw,
        inference_header_content_length=str(len(header)),
    )

    assert answer.status_code == 200, answer.text
    assert to_raw(outputs_of(answer)["Y"], datatype) == raw


@pytest.mark.parametrize("datatype", sorted(set(graphs.DATATYPES) - NO_JSON_FORM))
def test_json_tensors_come_back_as_they_were(platform: Platform, datatype: str) -> None:
    values = values_of(datatype)
    listed = (
        [[v.decode() for v in row] for row in values]
        if datatype == "BYTES"
        else values.tolist()
    )
    for data in (listed, [value for row in listed for value in row]):
        answer = platform.post(
            f"identity_{datatype.lower()}/infer",
            {"id": "mine", "inputs": [tensor_header(datatype, values, data=data)]},
        )

        assert answer.status_code == 200, answer.text
        body = answer.json()
        assert (body["id"], body["model_version"]) == ("mine", "1")
        (output,) = body["outputs"]
        assert (output["shape"], output["datatype"]) == ([3, 4], datatype)
        flat = [value for row in listed for value in row]
        if datatype == "FP32":
            assert np.array(output["data"], np.float32).tolist() == flat
        else:
            assert output["data"] == flat


@pytest.mark.parametrize("datatype", sorted(NO_JSON_FORM))
def test_a_type_without_json_form_is_refused_with_the_way_out(
    platform: Platform, datatype: str
) -> None:
    answer = platform.post(
        f"identity_{datatype.lower()}/infer",
        {"inputs": [tensor_header(datatype, np.zeros((1, 1)), data=[1.0])]},
    )

    assert answer.status_code == 400
    assert "binary" in answer.json()["error"]


@pytest.mark.parametrize("datatype", sorted(set(graphs.DATATYPES) - {"BYTES"}))
def test_a_raw_request_is_one_row(platform: Platform, datatype: str) -> None:
    values = values_of(datatype)[:1]
    raw = to_raw(values, datatype)

    answer = platform.post(
        f"identity_{datatype.lower()}/infer", raw, inference_header_content_length="0"
    )

    assert answer.status_code == 200, answer.text
    (output,) = outputs_of(answer).values()
    assert output.shape == (1, 4)
    assert to_raw(output, datatype) == raw


def test_a_raw_request_to_a_model_with_two_inputs_is_refused(
    platform: Platform,
) -> None:
    answer = platform.post(
        "addsub/infer", b"\0" * 64, inference_header_content_length="0"
    )

    assert answer.status_code == 400
    assert "2" in answer.json()["error"]


def test_a_raw_request_fills_a_known_shape(platform: Platform) -> None:
    images, _ = digits.held_out()

    answer = platform.post(
        "digits_mlp/infer",
        images[0].tobytes(),
        inference_header_content_length="0",
    )

    assert answer.status_code == 200, answer.text
    direct = Direct(platform.models / "digits_mlp/1/model.onnx")
    assert_bit_equal(outputs_of(answer), direct({"X": images[:1]}))


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_compressed_bodies_are_read_and_answers_compressed_on_demand(
    platform: Platform, encoding: str
) -> None:
    body = json.dumps(
        {"inputs": [tensor_header("FP32", np.ones((1, 4)), data=[1, 2, 3, 4])]}
    ).encode()
    packed = gzip.compress(body) if encoding == "gzip" else zlib.compress(body)

    answer = platform.post(
        "identity_fp32/infer",
        packed,
        content_encoding=encoding,
        accept_encoding=encoding,
    )

    assert answer.status_code == 200, answer.text
    assert answer.headers["content-encoding"] == encoding
    assert answer.json()["outputs"][0]["data"] == [1, 2, 3, 4]


def assert_bit_equal(got: Mapping[str, Array], want: Mapping[str, Array]) -> None:
    assert got.keys() == want.keys()
    for name, value in want.items():
        assert got[name].shape == value.shape, name
        assert got[name].tobytes() == np.ascontiguousarray(value).tobytes(), name


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_digits_are_bit_equal_to_a_direct_run(platform: Platform, rows: int) -> None:
    images, _ = digits.held_out()
    direct = Direct(platform.models / "digits_mlp/1/model.onnx")

    for start in range(0, 21, rows):
        inputs = {"X": images[start : start + rows]}
        assert_bit_equal(platform.infer("digits_mlp", inputs), direct(inputs))


def test_several_inputs_and_outputs_and_only_those_asked_for(
    platform: Platform,
) -> None:
    rng = np.random.default_rng(0)
    inputs = {
        name: rng.integers(-1000, 1000, (3, 16)).astype(np.int32)
        for name in ("INPUT0", "INPUT1")
    }
    wanted = Direct(graphs.addsub())(inputs)

    assert_bit_equal(platform.infer("addsub", inputs), wanted)

    answer = platform.post(
        "addsub/infer",
        {
            "inputs": [
                {
                    "name": name,
                    "datatype": "INT32",
                    "shape": [3, 16],
                    "data": value.tolist(),
                }
                for name, value in reversed(inputs.items())
            ],
            "outputs": [{"name": "OUTPUT1"}],
        },
    )
    (output,) = answer.json()["outputs"]
    assert output["name"] == "OUTPUT1"
    assert output["data"] == wanted["OUTPUT1"].ravel().tolist()


def test_a_scalar_that_a_batch_shares_keeps_requests_apart(platform: Platform) -> None:
    direct = Direct(zoo.scalar_param())
    for k in (0.5, 2.0):
        inputs = {
            "x": np.arange(16, dtype=np.float32).reshape(2, 8),
            "k": np.array(k, np.float32),
        }
        assert_bit_equal(platform.infer("scalar_param", inputs), direct(inputs))


def test_another_batch_axis_and_mixed_types(platform: Platform) -> None:
    rng = np.random.default_rng(0)
    time_first = {"x": rng.standard_normal((5, 3, 8)).astype(np.float32)}
    mixed = {
        "img": rng.integers(0, 255, (3, 4, 4)).astype(np.uint8),
        "flag": np.array([True, False, True]),
    }

    assert_bit_equal(
        platform.infer("axis1", time_first), Direct(zoo.axis1_batch())(time_first)
    )
    assert_bit_equal(
        platform.infer("mixed", mixed), Direct(zoo.mixed_datatypes())(mixed)
    )


@pytest.mark.parametrize("length", [1, 4, 5, 16, 20])
def test_padded_requests_get_outputs_of_their_own_length(
    platform: Platform, length: int
) -> None:
    rng = np.random.default_rng(length)
    inputs = {
        "ids": rng.integers(1, 100, (2, length)),
        "mask": np.ones((2, length), np.int64),
    }

    got = platform.infer("embedding", inputs)

    want = Direct(graphs.embedding())(inputs)
    assert got["tokens"].shape == (2, length, 8)
    assert got["tokens"].tobytes() == want["tokens"].tobytes()
    assert np.allclose(got["pooled"], want["pooled"], rtol=1e-5)


def test_raw_helpers_are_inverse() -> None:
    for datatype in graphs.DATATYPES:
        values = values_of(datatype)
        raw = to_raw(values, datatype)
        assert to_raw(from_raw(raw, datatype, values.shape), datatype) == raw
