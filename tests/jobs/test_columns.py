from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain import Datatype
from headrace.errors import RequestError
from headrace.jobs.columns import Columns, Rows
from headrace.wire import check_raw, pack_bytes
from tests.jobs.worlds import a_version

FP32, INT64, BYTES = Datatype.FP32, Datatype.INT64, Datatype.BYTES
BIG = 1 << 20


def rows_of(columns: dict[str, Any], served: Any, **named: tuple[str, ...]) -> Rows:
    batch = pa.RecordBatch.from_pydict(columns)
    return Columns(served, batch.schema, named).rows(batch, {})


def raw(rows: Rows, first: int, end: int) -> list[tuple[tuple[int, ...], bytes]]:
    return [(each.shape, bytes(each.data)) for each in rows.tensors(first, end)]


def fp32(*values: float) -> bytes:
    return np.array(values, "<f4").tobytes()


def test_lists_of_a_fixed_size_are_rows_without_a_copy_per_row() -> None:
    x = pa.FixedSizeListArray.from_arrays(pa.array(range(12), pa.float32()), 3)
    rows = rows_of({"x": x}, a_version(("x", FP32, (-1, 3))))

    assert rows.ranges(0, rows_max=3, bytes_max=BIG) == [(0, 3), (3, 4)]
    assert raw(rows, 1, 3) == [((2, 3), fp32(3, 4, 5, 6, 7, 8))]


def test_a_slice_of_a_batch_gives_its_own_rows() -> None:
    served = a_version(("x", FP32, (-1, 2)), ("t", BYTES, (-1, 1)))
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(range(8), pa.float32()), 2)
    whole = pa.RecordBatch.from_pydict({"x": fixed, "t": ["a", "bb", "", "d"]})
    listed = whole.set_column(0, "x", fixed.cast(pa.list_(pa.float32())))
    for batch in (whole, listed):
        rows = Columns(served, batch.schema, {}).rows(batch.slice(1, 2), {})
        assert raw(rows, 0, 2) == [
            ((2, 2), fp32(2, 3, 4, 5)),
            ((2, 1), pack_bytes([b"bb", b""])),
        ]


def test_columns_of_one_element_each_stand_side_by_side() -> None:
    table = {"p2": [2.0, 20.0], "p1": [1, 10], "other": ["a", "b"]}
    served = a_version(("x", FP32, (-1, 2)))

    assert raw(rows_of(table, served, x=("p1", "p2")), 0, 2) == [
        ((2, 2), fp32(1, 2, 10, 20))
    ]
    assert raw(rows_of(table, served, x=("p*",)), 0, 2) == [
        ((2, 2), fp32(2, 1, 20, 10))
    ]


def test_text_travels_with_its_length() -> None:
    rows = rows_of({"t": ["", "ä", "zz"]}, a_version(("t", BYTES, (-1, 1))))
    assert raw(rows, 0, 3) == [((3, 1), pack_bytes([b"", "ä".encode(), b"zz"]))]


def test_rows_of_one_shape_share_a_record() -> None:
    served = a_version(("ids", INT64, (-1, -1)))
    rows = rows_of({"ids": [[1, 2], [3, 4], [5], [6, 7]]}, served)

    assert rows.ranges(0, rows_max=8, bytes_max=BIG) == [(0, 2), (2, 3), (3, 4)]
    assert raw(rows, 0, 2) == [((2, 2), np.array([1, 2, 3, 4], "<i8").tobytes())]


def test_a_nested_list_has_the_shape_of_its_levels() -> None:
    served = a_version(("x", FP32, (-1, -1, 2)))
    rows = rows_of({"x": [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]]}, served)
    assert raw(rows, 0, 1) == [((1, 2, 2), fp32(1, 2, 3, 4))]
    assert raw(rows, 1, 2) == [((1, 1, 2), fp32(5, 6))]


@pytest.mark.parametrize(
    ("datatype", "values", "wrong"),
    [
        (FP32, [[1.0, 2.0], None, [3.0, None], [1e300, 0.0], [5.0]], [1, 2, 3, 4]),
        (INT64, [["1", "2"], ["1.5", "2"], ["x", "1"], ["-7", " 8 "]], [1, 2]),
        (FP32, [["1e30", "-inf"], ["1e400", "1"], ["x", "-1e999"]], [1, 2]),
        (Datatype.UINT8, [[0, 255], [256, 0], [0, -1]], [1, 2]),
        (Datatype.INT8, [[1.0, -128.0], [1.5, 0.0], [128.0, 0.0]], [1, 2]),
        (Datatype.BOOL, [[True, False], [None, True]], [1]),
        (BYTES, [[b"ok", b""], [b"\xff", b""]], [1]),
        (Datatype.FP16, [[1.0, 65504.0], [70000.0, 0.0]], [1]),
    ],
)
def test_a_row_that_breaks_the_signature_is_set_apart(
    datatype: Datatype, values: list[Any], wrong: list[int]
) -> None:
    rows = rows_of({"x": values}, a_version(("x", datatype, (-1, 2))))

    ranges = rows.ranges(0, rows_max=1, bytes_max=BIG)

    assert sorted(rows.wrong) == wrong
    assert [first for first, _ in ranges] == [
        row for row in range(len(values)) if row not in wrong
    ]
    for first, end in ranges:
        (tensor,) = rows.tensors(first, end)
        check_raw("x", datatype, tensor.shape, tensor.data)


def test_what_is_wrong_with_a_row_says_where() -> None:
    rows = rows_of({"x": [[1, 300]]}, a_version(("x", Datatype.UINT8, (-1, 2))))
    assert rows.wrong == {0: "input 'x': element 1 is 300, which is no UINT8"}


def test_a_row_that_no_record_can_hold_is_set_apart() -> None:
    rows = rows_of({"x": ["a" * 50, "b"]}, a_version(("x", BYTES, (-1, 1))))
    assert rows.ranges(0, rows_max=2, bytes_max=20) == [(1, 2)]
    assert "54 bytes" in rows.wrong[0]


def test_records_are_closed_before_they_are_too_large() -> None:
    rows = rows_of({"x": [1.0] * 5}, a_version(("x", FP32, (-1, 1))))
    assert rows.ranges(1, rows_max=8, bytes_max=8) == [(1, 3), (3, 5)]


@pytest.mark.parametrize(
    ("axes", "shape", "expected"),
    [({}, (2,), (2,)), ({"x": 1}, (2, -1), (2, 1)), ({"x": -1, "y": 0}, (2,), (2,))],
)
def test_rows_that_do_not_lie_one_after_the_other_travel_alone(
    axes: dict[str, int], shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    batch = pa.RecordBatch.from_pydict({"x": [[1.0, 2.0], [3.0, 4.0]]})
    columns = Columns(a_version(("x", FP32, shape), axes=axes), batch.schema, {})

    assert columns.rows_max == 1
    (tensor,) = columns.rows(batch, {}).tensors(1, 2)
    assert (tensor.shape, bytes(tensor.data)) == (expected, fp32(3, 4))


@pytest.mark.parametrize(
    ("columns", "named", "text"),
    [
        ({"a": [1.0], "b": [1.0]}, {}, "no column is called 'x'"),
        ({"x": [["a"]]}, {"y": ("x",)}, "has no input 'y', only x"),
        ({"x": [1.0]}, {"x": ("z",)}, "there is no column 'z', only 'x'"),
        ({"x": [{"f": 1}]}, {}, "takes numbers, but column 'x' holds struct"),
        ({"a": [1.0], "b": [[1.0]]}, {"x": ("b", "a")}, "each must hold one element"),
        ({"a": [1.0], "b": [1.0]}, {"x": ("a", "b")}, "2 columns give 2 elements"),
    ],
)
def test_a_file_that_no_row_of_could_fit_is_refused(
    columns: dict[str, Any], named: dict[str, tuple[str, ...]], text: str
) -> None:
    schema = pa.RecordBatch.from_pydict(columns).schema
    with pytest.raises(RequestError, match=text):
        Columns(a_version(("x", FP32, (-1, 3))), schema, named)


numbers = st.lists(st.integers(-300, 300) | st.none(), min_size=0, max_size=3)


@given(st.lists(numbers | st.none(), min_size=1, max_size=6), st.integers(1, 3))
def test_every_row_is_sent_once_or_set_apart(
    values: list[list[int | None] | None], rows_max: int
) -> None:
    column = pa.array(values, pa.list_(pa.int16()))
    served = a_version(("x", Datatype.INT8, (-1, -1)))
    rows = rows_of({"x": column}, served)

    sent: dict[int, list[int]] = {}
    for first, end in rows.ranges(0, rows_max=rows_max, bytes_max=4):
        assert end - first <= rows_max
        (tensor,) = rows.tensors(first, end)
        found = np.frombuffer(tensor.data, np.int8).reshape(tensor.shape)
        for place, row in enumerate(range(first, end)):
            assert row not in sent
            sent[row] = found[place].tolist()

    fits = {
        row: each
        for row, each in enumerate(values)
        if each and all(one is not None and -128 <= one <= 127 for one in each)
    }
    assert sent == fits
    assert set(rows.wrong) == set(range(len(values))) - set(fits)
