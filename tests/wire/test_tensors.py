"""Elements of tensors: JSON <-> the raw form."""

from __future__ import annotations

import json
import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain import Datatype
from headrace.errors import RequestError
from headrace.wire import (
    check_raw,
    check_shape,
    check_size,
    pack_bytes,
    parse_json_data,
    to_json,
    unpack_bytes,
)
from headrace.wire.tensors import ELEMENTS_MAX, RANK_MAX

DTYPES = {
    Datatype.BOOL: "?",
    Datatype.UINT8: "<u1",
    Datatype.UINT16: "<u2",
    Datatype.UINT32: "<u4",
    Datatype.UINT64: "<u8",
    Datatype.INT8: "<i1",
    Datatype.INT16: "<i2",
    Datatype.INT32: "<i4",
    Datatype.INT64: "<i8",
    Datatype.FP32: "<f4",
    Datatype.FP64: "<f8",
}
INTEGERS = {
    datatype: dtype for datatype, dtype in DTYPES.items() if dtype[1:2] in ("u", "i")
}


def refused(datatype: Datatype, shape: tuple[int, ...], data: object) -> str:
    with pytest.raises(RequestError) as caught:
        parse_json_data("x", datatype, shape, data)
    assert caught.value.reason == "invalid"
    return str(caught.value)


def elements(datatype: Datatype) -> st.SearchStrategy[object]:
    dtype = np.dtype(DTYPES[datatype])
    if datatype is Datatype.BOOL:
        return st.booleans()
    if datatype in INTEGERS:
        limits = np.iinfo(dtype)
        return st.integers(int(limits.min), int(limits.max))
    return st.floats(width=32 if datatype is Datatype.FP32 else 64)


@given(data=st.data())
@pytest.mark.parametrize("datatype", DTYPES)
def test_json_becomes_what_numpy_makes_of_it_and_comes_back(
    datatype: Datatype, data: st.DataObject
) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 3), max_size=3)))
    count = math.prod(shape)
    flat = data.draw(st.lists(elements(datatype), min_size=count, max_size=count))
    expected = np.array(flat, DTYPES[datatype]).reshape(shape)
    raw = expected.tobytes()
    if shape:
        assert parse_json_data("x", datatype, shape, expected.tolist()) == raw
    assert parse_json_data("x", datatype, shape, flat) == raw
    check_raw("x", datatype, shape, raw)
    answered = np.array(json.loads(to_json("x", datatype, raw)), DTYPES[datatype])
    assert answered.tobytes() == raw or not np.isfinite(expected).all()
    np.testing.assert_array_equal(answered, expected.ravel())


@given(st.lists(st.text(), min_size=1))
def test_strings_become_utf8_behind_their_lengths_and_come_back(
    texts: list[str],
) -> None:
    shape = (len(texts),)
    raw = parse_json_data("x", Datatype.BYTES, shape, texts)
    assert raw == pack_bytes(text.encode() for text in texts)
    assert unpack_bytes("x", memoryview(raw)) == [text.encode() for text in texts]
    check_raw("x", Datatype.BYTES, shape, raw)
    assert json.loads(to_json("x", Datatype.BYTES, raw)) == texts


def test_a_string_is_four_bytes_of_length_and_its_text() -> None:
    raw = parse_json_data("x", Datatype.BYTES, (2,), ["é", ""])
    assert raw == b"\x02\x00\x00\x00\xc3\xa9\x00\x00\x00\x00"


def test_integers_are_accepted_for_floats() -> None:
    assert parse_json_data("x", Datatype.FP32, (2,), [1, 2.5]) == (
        np.array([1, 2.5], "<f4").tobytes()
    )


def test_a_float_is_answered_with_its_exact_value_and_tokens_for_the_rest() -> None:
    raw = np.array([0.1, math.nan, math.inf, -math.inf], "<f4").tobytes()
    assert to_json("x", Datatype.FP32, raw) == (
        b"[0.10000000149011612,NaN,Infinity,-Infinity]"
    )
    assert to_json("x", Datatype.BOOL, b"\0\1") == b"[false,true]"


def test_the_tokens_for_what_is_no_number_are_taken() -> None:
    data = [math.nan, math.inf, -math.inf]
    raw = parse_json_data("x", Datatype.FP64, (3,), data)
    np.testing.assert_array_equal(np.frombuffer(raw, "<f8"), data)


@pytest.mark.parametrize(
    ("datatype", "element", "got"),
    [
        (Datatype.FP32, None, "null, expected a number"),
        (Datatype.FP32, "1.5", '"1.5", expected a number'),
        (Datatype.FP32, True, "true, expected a number"),
        (Datatype.FP64, {}, "an object, expected a number"),
        (Datatype.FP32, [1.0], "a list, expected a number"),
        (Datatype.INT32, 1.0, "1.0, expected an integer"),
        (Datatype.INT64, False, "false, expected an integer"),
        (Datatype.UINT8, "7", '"7", expected an integer'),
        (Datatype.BOOL, 1, "1, expected true or false"),
        (Datatype.BOOL, "true", '"true", expected true or false'),
        (Datatype.BYTES, 7, "7, expected a string"),
        (Datatype.BYTES, None, "null, expected a string"),
    ],
)
def test_nothing_is_converted_silently(
    datatype: Datatype, element: object, got: str
) -> None:
    good = {"BOOL": True, "BYTES": "a"}.get(datatype, 1)
    text = refused(datatype, (2,), [good, element])
    assert text == f"tensor 'x': element 1 is {got}"


@pytest.mark.parametrize("datatype", INTEGERS)
def test_integers_out_of_range_are_refused(datatype: Datatype) -> None:
    limits = np.iinfo(np.dtype(DTYPES[datatype]))
    for beyond in (int(limits.min) - 1, int(limits.max) + 1, 10**30):
        assert refused(datatype, (2,), [0, beyond]) == (
            f"tensor 'x': element 1 ({beyond}) does not fit {datatype}"
        )


def test_a_number_that_would_become_infinite_is_refused() -> None:
    assert refused(Datatype.FP32, (2,), [0.0, -1e39]) == (
        "tensor 'x': element 1 (-1e+39) does not fit FP32"
    )
    assert "does not fit FP64" in refused(Datatype.FP64, (1,), [10**400])


@pytest.mark.parametrize("datatype", [Datatype.FP32, Datatype.FP64])
def test_what_json_has_no_number_for_is_written_bare_and_read_back(
    datatype: Datatype,
) -> None:
    raw = np.array([np.nan, np.inf, -np.inf, 1], DTYPES[datatype]).tobytes()
    text = to_json("x", datatype, raw)
    assert text == b"[NaN,Infinity,-Infinity,1.0]"
    assert parse_json_data("x", datatype, (4,), json.loads(text)) == raw


@pytest.mark.parametrize("datatype", [*INTEGERS, Datatype.BOOL, Datatype.BYTES])
def test_the_bare_tokens_are_floats_alone(datatype: Datatype) -> None:
    assert refused(datatype, (1,), [float("nan")]).startswith(
        "tensor 'x': element 0 is NaN, expected "
    )


@pytest.mark.parametrize("datatype", [Datatype.FP16, Datatype.BF16])
def test_half_precision_is_sent_as_binary(datatype: Datatype) -> None:
    assert refused(datatype, (1,), [1.0]) == (
        f"tensor 'x': {datatype} has no JSON form, send {datatype} as binary tensor "
        "data"
    )
    check_raw("x", datatype, (2,), bytes(4))
    with pytest.raises(RequestError, match="ask for binary data"):
        to_json("x", datatype, bytes(4))


def test_an_unpaired_surrogate_is_no_text() -> None:
    assert refused(Datatype.BYTES, (1,), ["\ud800"]).startswith(
        "tensor 'x': element 0 is not valid Unicode"
    )


@pytest.mark.parametrize(
    ("shape", "data", "text"),
    [
        ((2, 2), [1, 2, 3], "data has 3 elements, expected 4 (shape [2,2])"),
        ((2, 2), [], "data has 0 elements, expected 4 (shape [2,2])"),
        ((), [1, 2], "data has 2 elements, expected 1 (shape [])"),
        ((2, 2), [[1, 2], [3]], "data is nested otherwise than its shape [2,2]"),
        ((2, 2), [[1, 2], 3], "data is nested otherwise than its shape [2,2]"),
        ((2, 2), [[1, 2]], "data is nested otherwise than its shape [2,2]"),
        ((2, 2), [[1], [2], [3], [4]], "data is nested otherwise than its shape [2,2]"),
        ((4,), [[1, 2], [3, 4]], "data is nested otherwise than its shape [4]"),
        ((), [[1]], "element 0 is a list, expected an integer"),
        ((1,), 5, "data must be a list"),
        ((1,), "5", "data must be a list"),
        ((1,), None, "data must be a list"),
        ((10**9,), [0] * 10, "data has 10 elements, expected 1000000000"),
    ],
)
def test_data_of_another_shape_is_refused(
    shape: tuple[int, ...], data: object, text: str
) -> None:
    assert text in refused(Datatype.INT32, shape, data)


@pytest.mark.parametrize(
    "shape",
    [None, 5, "1,2", {}, [1.0], [True], ["1"], [None], [[1]], [0], [-1], [1, 0]],
)
def test_a_shape_is_a_list_of_positive_integers(shape: object) -> None:
    with pytest.raises(RequestError, match="tensor 'x': shape"):
        check_shape("x", shape)


def test_a_shape_has_limits() -> None:
    assert check_shape("x", []) == ()
    assert check_shape("x", [1] * RANK_MAX) == (1,) * RANK_MAX
    assert check_shape("x", [ELEMENTS_MAX]) == (ELEMENTS_MAX,)
    for beyond in ([1] * (RANK_MAX + 1), [ELEMENTS_MAX, 2], [2**62] * 8):
        with pytest.raises(RequestError):
            check_shape("x", beyond)


def test_a_raw_tensor_of_another_size_is_told_both_sizes() -> None:
    with pytest.raises(RequestError) as caught:
        check_size("x", Datatype.FP32, (1, 64), bytes(252))
    assert str(caught.value) == (
        "tensor 'x': got 252 bytes, expected 256 (FP32 [1,64])"
    )


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\1\0\0\0a", "got 1 BYTES elements, expected 2"),
        (b"\1\0\0\0a" * 3, "got 3 BYTES elements, expected 2"),
        (b"\1\0\0\0a\2\0\0\0b", "BYTES element 1 ends at byte 11, but the tensor has"),
        (b"\1\0\0\0a\1\0\0", "BYTES element 1 ends at byte 10, but the tensor has"),
        (b"\xff\xff\xff\xff", "BYTES element 0 ends at byte 4294967299"),
        (b"\1\0\0\0\xff\1\0\0\0a", "BYTES element 0 is not UTF-8"),
    ],
)
def test_raw_strings_are_held_against_their_lengths(raw: bytes, text: str) -> None:
    with pytest.raises(RequestError, match="tensor 'x'") as caught:
        check_raw("x", Datatype.BYTES, (2,), raw)
    assert text in str(caught.value)


def test_a_raw_bool_is_0_or_1() -> None:
    check_raw("x", Datatype.BOOL, (2,), memoryview(b"\0\1"))
    with pytest.raises(RequestError, match="value 0 or 1"):
        check_raw("x", Datatype.BOOL, (2,), b"\0\2")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=8,
)


@given(
    datatype=st.sampled_from(Datatype),
    shape=st.lists(st.integers(1, 3), max_size=3),
    data=JSON,
)
def test_whatever_json_holds_it_is_taken_whole_or_refused(
    datatype: Datatype, shape: list[int], data: object
) -> None:
    try:
        raw = parse_json_data("x", datatype, tuple(shape), data)
    except RequestError:
        return
    check_raw("x", datatype, tuple(shape), raw)


@given(datatype=st.sampled_from(Datatype), raw=st.binary(max_size=40))
def test_whatever_bytes_are_sent_they_are_taken_whole_or_refused(
    datatype: Datatype, raw: bytes
) -> None:
    for shape in product((1, 2), (1, 4)):
        try:
            check_raw("x", datatype, shape, raw)
        except RequestError:
            continue
        if datatype not in (Datatype.FP16, Datatype.BF16):
            assert len(json.loads(to_json("x", datatype, raw))) == math.prod(shape)
