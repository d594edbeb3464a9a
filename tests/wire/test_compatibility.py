"""Which requests may share a batch."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain import Datatype, ServedVersion, TensorSpec
from headrace.errors import RequestError
from headrace.wire import LENGTH, ROWS, Compatibility, batched_shapes, compatibility
from tests.wire.records import a_padded_version, a_version

F, I64 = Datatype.FP32, Datatype.INT64

SCALAR = a_version(
    TensorSpec("x", F, (-1, 8)),
    TensorSpec("k", F, ()),
    batch_axes={"x": 0, "k": -1},
)
AXIS_1 = a_version(TensorSpec("x", F, (-1, -1, 8)), batch_axes={"x": 1})
NO_BATCH = a_version(TensorSpec("x", F, (-1, 8)), batch_axes={}, max_batch=1)


def refused(
    served: ServedVersion, *shapes: tuple[int, ...], values: tuple[bytes, ...] = ()
) -> str:
    with pytest.raises(RequestError) as caught:
        compatibility(served, shapes, values or (b"",) * len(shapes))
    return str(caught.value)


def test_the_key_leaves_out_the_batch_axis() -> None:
    served = a_version(TensorSpec("image", F, (-1, 3, -1, -1)))
    assert compatibility(served, [(5, 3, 224, 96)], [b""]) == Compatibility(
        "image:FP32:3,224,96", rows=5, length=0
    )


def test_the_batch_axis_may_be_any() -> None:
    assert compatibility(AXIS_1, [(7, 2, 8)], [b""]) == Compatibility(
        "x:FP32:7,8", rows=2, length=0
    )
    assert batched_shapes(AXIS_1, "x:FP32:7,8") == ((7, ROWS, 8),)


def test_inputs_stand_in_the_order_of_the_signature() -> None:
    served = a_version(TensorSpec("b", I64, (-1,)), TensorSpec("a", F, (-1, 2)))
    assert (
        compatibility(served, [(4,), (4, 2)], [b"", b""]).shape == "b:INT64:;a:FP32:2"
    )


@pytest.mark.parametrize(
    ("length", "edge"), [(1, 8), (8, 8), (9, 16), (32, 32), (33, 33)]
)
def test_lengths_share_the_bucket_of_the_next_edge(length: int, edge: int) -> None:
    found = compatibility(a_padded_version(), [(2, length)], [b""])
    assert found == Compatibility(f"ids:INT64:~{edge}", rows=2, length=length)


def test_the_value_of_an_input_without_batch_axis_is_part_of_the_key() -> None:
    found = compatibility(SCALAR, [(1, 8), ()], [b"", b"\x00\x00\x80\x3f"])
    assert found.shape == "x:FP32:8;k:FP32:=0000803f"
    assert batched_shapes(SCALAR, found.shape) == ((ROWS, 8), ())


def test_a_long_shared_value_enters_by_its_digest() -> None:
    served = a_version(
        TensorSpec("x", F, (-1, 8)),
        TensorSpec("table", F, (-1,)),
        batch_axes={"x": 0, "table": -1},
    )
    one = compatibility(served, [(1, 8), (100,)], [b"", b"\1" * 400])
    other = compatibility(served, [(1, 8), (100,)], [b"", b"\2" * 400])
    assert one != other
    assert len(one.shape) < 120
    assert batched_shapes(served, one.shape) == ((ROWS, 8), (100,))


def test_a_model_without_a_batch_axis_has_one_row_and_no_values_in_its_key() -> None:
    found = compatibility(NO_BATCH, [(50, 8)], [b"\1" * 1600])
    assert found == Compatibility("x:FP32:50,8", rows=1, length=0)
    assert batched_shapes(NO_BATCH, found.shape) == ((50, 8),)


def test_names_of_tensors_may_hold_the_keys_own_signs() -> None:
    served = a_version(
        TensorSpec("serving:0;x=~1", F, (-1, 2)), TensorSpec(":0", F, (-1, 3))
    )
    key = compatibility(served, [(1, 2), (1, 3)], [b"", b""]).shape
    assert batched_shapes(served, key) == ((ROWS, 2), (ROWS, 3))


EXPECTED = "expected [-1,4], where -1 is any size"


@pytest.mark.parametrize(
    ("served", "shapes", "text"),
    [
        (a_version(), [(1, 5)], f"input 'x' has shape [1,5], {EXPECTED}"),
        (a_version(), [(4,)], f"input 'x' has shape [4], {EXPECTED}"),
        (a_version(), [(1, 1, 4)], f"input 'x' has shape [1,1,4], {EXPECTED}"),
        (
            a_version(),
            [(0, 4)],
            "input 'x' has shape [0,4]: every dimension must be at least 1",
        ),
        (
            a_version(max_batch=8),
            [(9, 4)],
            (
                "the request has 9 rows, but model digits version 3 takes at most 8 "
                "(max_batch)"
            ),
        ),
        (
            a_version(TensorSpec("a", F, (-1,)), TensorSpec("b", F, (-1,))),
            [(2,), (3,)],
            "input 'b' has 3 on its axis of rows, but the inputs before it have 2",
        ),
    ],
)
def test_a_shape_that_does_not_fit_is_told(
    served: ServedVersion, shapes: list[tuple[int, ...]], text: str
) -> None:
    assert refused(served, *shapes) == text


def test_padded_inputs_of_one_request_have_one_length() -> None:
    padded = a_padded_version()
    assert padded.padding is not None
    padded.padding.input_axes["mask"] = 1
    served = a_version(
        TensorSpec("ids", I64, (-1, -1)),
        TensorSpec("mask", I64, (-1, -1)),
        padding=padded.padding,
    )
    assert refused(served, (1, 5), (1, 6)) == (
        "input 'mask' has 6 on its axis of sequence, but the inputs before it have 5"
    )
    assert compatibility(served, [(1, 5), (1, 5)], [b"", b""]).shape == (
        "ids:INT64:~8;mask:INT64:~8"
    )


@pytest.mark.parametrize(
    "key",
    [
        "",
        "x:FP32:5",
        "x:FP32:",
        "x:FP32:4;y:FP32:4",
        "x:FP32:~4",
        "x:FP32:-4",
        "x:FP32:4;",
        "x:FP32:\u0664",
        "x:FP32:04",
        "x:FP32:4=00",
        "x:INT64:4",
        "y:FP32:4",
        "x:FP32:" + "9" * 5000,
    ],
)
def test_a_key_of_another_signature_is_refused(key: str) -> None:
    with pytest.raises(RequestError, match="is none of model digits version 3"):
        batched_shapes(a_version(), key)


SERVED: st.SearchStrategy[ServedVersion] = st.sampled_from(
    [a_version(), a_padded_version(), SCALAR, AXIS_1, NO_BATCH]
)


@given(served=SERVED, data=st.data())
def test_a_key_gives_its_shapes_back(
    served: ServedVersion, data: st.DataObject
) -> None:
    rows = data.draw(st.integers(1, served.max_batch))
    length = data.draw(st.integers(1, 40))
    shapes = [
        tuple(
            dim
            if dim != -1
            else rows
            if axis == served.batch_axes.get(name)
            else length
            for axis, dim in enumerate(shape)
        )
        for name, _, shape in map(msgspec.structs.astuple, served.signature.inputs)
    ]
    values = [bytes(4)] * len(shapes)
    found = compatibility(served, shapes, values)
    marks = {ROWS: found.rows, LENGTH: found.length}
    assert [
        tuple(marks.get(dim, dim) for dim in batched)
        for batched in batched_shapes(served, found.shape)
    ] == shapes
