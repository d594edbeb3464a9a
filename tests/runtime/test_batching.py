from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain import Datatype, Padding, Signature, TensorSpec
from headrace.errors import RequestError
from headrace.runtime import (
    NUMPY_TYPES,
    BatchInput,
    Layout,
    MemberFault,
    Misfit,
    assemble,
    share_out,
)
from headrace.wire.compatibility import LENGTH, ROWS
from headrace.wire.tensors import pack_bytes

FP32 = Datatype.FP32


def layout(
    shape: tuple[int, ...] = (-1, 2),
    *,
    axis: int = 0,
    datatype: Datatype = FP32,
    padding: Padding | None = None,
) -> Layout:
    """``Y`` is shaped as ``X``."""
    signature = Signature(
        (TensorSpec("X", datatype, shape),), (TensorSpec("Y", datatype, shape),)
    )
    return Layout(signature, {"X": axis, "Y": axis}, padding)


def padded(axis: int, edges: tuple[int, ...] = (2, 4)) -> Padding:
    return Padding("sequence", {"X": 9.0}, {"X": axis}, {"Y": axis}, edges)


def floats(*rows: list[float]) -> bytes:
    return np.array(rows, np.float32).tobytes()


def test_rows_of_one_size_are_taken_as_they_lie_in_the_record() -> None:
    record = bytearray(floats([1, 2], [3, 4], [5, 6]))

    arrays = assemble(
        layout(), [BatchInput("X", FP32, (ROWS, 2), memoryview(record))], [1, 2], []
    )
    record[0:4] = np.float32(7).tobytes()

    assert arrays["X"].tolist() == [[7, 2], [3, 4], [5, 6]]


def test_a_record_that_begins_at_an_odd_byte_becomes_an_aligned_array() -> None:
    record = memoryview(b"x" + floats([1, 2]))[1:]

    array = assemble(layout(), [BatchInput("X", FP32, (ROWS, 2), record)], [1], [])["X"]

    assert array.flags.aligned
    assert array.tolist() == [[1, 2]]


def test_members_are_laid_side_by_side_on_another_axis() -> None:
    time_major = layout((3, -1), axis=1)
    contents = floats([1], [2], [3]) + floats([4, 5], [6, 7], [8, 9])

    array = assemble(
        time_major, [BatchInput("X", FP32, (3, ROWS), contents)], [1, 2], []
    )["X"]

    assert array.tolist() == [[1, 4, 5], [2, 6, 7], [3, 8, 9]]
    outputs = share_out(time_major, [array], [1, 2], [])
    assert outputs[0].shape == (3, ROWS)
    assert outputs[0].piece(1) == floats([4, 5], [6, 7], [8, 9])


def test_lengths_are_padded_to_the_edge_and_cut_back() -> None:
    lengths = layout((-1, -1), padding=padded(1))
    contents = floats([1, 2, 3]) + floats([4], [5])

    array = assemble(
        lengths, [BatchInput("X", FP32, (ROWS, LENGTH), contents)], [1, 2], [3, 1]
    )["X"]

    assert array.tolist() == [[1, 2, 3, 9], [4, 9, 9, 9], [5, 9, 9, 9]]
    outputs = share_out(lengths, [array], [1, 2], [3, 1])
    assert outputs[0].shape == (ROWS, LENGTH)
    assert outputs[0].piece(0) == floats([1, 2, 3])
    assert outputs[0].piece(1) == floats([4], [5])


def test_a_length_beyond_the_last_edge_is_not_padded() -> None:
    array = assemble(
        layout((-1, -1), padding=padded(1)),
        [BatchInput("X", FP32, (ROWS, LENGTH), floats([1, 2, 3, 4, 5]))],
        [1],
        [5],
    )["X"]

    assert array.tolist() == [[1, 2, 3, 4, 5]]


def test_an_input_without_a_batch_axis_travels_once() -> None:
    signature = Signature(
        (TensorSpec("X", FP32, (-1,)), TensorSpec("k", FP32, ())),
        (TensorSpec("Y", FP32, (-1,)),),
    )
    arrays = assemble(
        Layout(signature, {"X": 0, "k": -1, "Y": 0}, None),
        [
            BatchInput("X", FP32, (ROWS,), floats([1, 2])),
            BatchInput("k", FP32, (), floats([3])),
        ],
        [1, 1],
        [],
    )

    assert arrays["X"].tolist() == [1, 2]
    assert isinstance(arrays["k"], np.ndarray)
    assert (arrays["k"].shape, float(arrays["k"])) == ((), 3)


def test_a_version_that_does_not_batch_gets_and_gives_whole_tensors() -> None:
    whole = Layout(layout((1, 2)).signature, {}, None)

    array = assemble(whole, [BatchInput("X", FP32, (1, 2), floats([1, 2]))], [1], [])
    outputs = share_out(whole, [np.zeros((5, 3), np.float32)], [1], [])

    assert array["X"].tolist() == [[1, 2]]
    assert outputs[0].shape == (5, 3)
    assert outputs[0].piece(0) == bytes(60)


def test_strings_are_text_in_and_out() -> None:
    texts = layout((-1, 1), datatype=Datatype.BYTES)
    contents = pack_bytes(["ä".encode(), b"", b"b'x'"])

    array = assemble(
        texts, [BatchInput("X", "BYTES", (ROWS, 1), contents)], [1, 2], []
    )["X"]
    outputs = share_out(texts, [array], [1, 2], [])

    assert array.tolist() == [["ä"], [""], ["b'x'"]]
    assert outputs[0].piece(0) == pack_bytes(["ä".encode()])
    assert outputs[0].piece(1) == pack_bytes([b"", b"b'x'"])


@pytest.mark.parametrize(
    ("datatype", "contents"),
    [
        (Datatype.BYTES, pack_bytes([b"a", b"b", b"\xff", b"d"])),
        (Datatype.BOOL, bytes([0, 1, 2, 1])),
    ],
)
def test_a_member_whose_bytes_cannot_be_is_named(
    datatype: Datatype, contents: bytes
) -> None:
    with pytest.raises(MemberFault) as fault:
        assemble(
            layout((-1,), datatype=datatype),
            [BatchInput("X", datatype, (ROWS,), contents)],
            [1, 1, 1, 1],
            [],
        )

    assert fault.value.member == 2


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        ([], "input 'X' is missing"),
        (
            [BatchInput("Z", FP32, (ROWS, 2), b"")],
            "the model has no input 'Z'",
        ),
        (
            [BatchInput("X", FP32, (ROWS, 2), bytes(12))],
            "input 'X' has 12 bytes, expected 16",
        ),
        (
            [BatchInput("X", "INT32", (ROWS, 2), bytes(16))],
            "input 'X' came as INT32",
        ),
        (
            [BatchInput("X", FP32, (2, ROWS), bytes(16))],
            "FP32 with rows on axis 1 and length on axis None, expected FP32, 0 and",
        ),
        (
            [BatchInput("X", FP32, (ROWS, LENGTH), bytes(16))],
            "length on axis 1, expected FP32, 0 and None",
        ),
    ],
)
def test_a_batch_that_does_not_fit_the_version_is_refused(
    tensors: list[BatchInput], sentence: str
) -> None:
    with pytest.raises(RequestError, match=sentence):
        assemble(layout(), tensors, [1, 1], [])


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_an_output_that_does_not_follow_the_batch_is_nobodys(rows: int) -> None:
    with pytest.raises(Misfit, match=rf"shape \[{rows}, 2\], expected 2 \(rows\)"):
        share_out(layout(), [np.zeros((rows, 2), np.float32)], [1, 1], [])


def test_an_output_of_another_length_than_the_edge_is_nobodys() -> None:
    with pytest.raises(Misfit, match=r"expected 4 \(sequence\) on axis 1"):
        share_out(
            layout((-1, -1), padding=padded(1)), [np.zeros((1, 3), "f4")], [1], [3]
        )


@given(data=st.data())
def test_every_member_gets_its_own_rows_back(data: st.DataObject) -> None:
    """Through an identity, whatever the datatype, the axes and the lengths."""
    rank = data.draw(st.integers(1, 3))
    axis = data.draw(st.integers(0, rank - 1))
    others = [at for at in range(rank) if at != axis]
    pad_axis = data.draw(st.sampled_from([None, *others]))
    datatype = data.draw(
        st.sampled_from([*Datatype] if pad_axis is None else [FP32, Datatype.INT8])
    )
    form = layout(
        (-1,) * rank,
        axis=axis,
        datatype=datatype,
        padding=None if pad_axis is None else padded(pad_axis),
    )
    rows = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    lengths = [data.draw(st.integers(1, 5)) for _ in rows]
    if pad_axis is not None and max(lengths) > 4:
        lengths = [5] * len(rows)
    marks = {axis: ROWS} | ({} if pad_axis is None else {pad_axis: LENGTH})
    shape = tuple(marks.get(at, 2) for at in range(rank))
    members = [
        _contents(data, datatype, shape, each, length)
        for each, length in zip(rows, lengths, strict=True)
    ]

    arrays = assemble(
        form, [BatchInput("X", datatype, shape, b"".join(members))], rows, lengths
    )
    outputs = share_out(form, [arrays["X"]], rows, lengths)

    assert outputs[0].shape == shape
    assert [bytes(outputs[0].piece(member)) for member in range(len(rows))] == members


def _contents(
    data: st.DataObject,
    datatype: Datatype,
    shape: tuple[int, ...],
    rows: int,
    length: int,
) -> bytes:
    count = int(np.prod([{ROWS: rows, LENGTH: length}.get(n, n) for n in shape]))
    if datatype is Datatype.BYTES:
        texts = st.lists(st.text(max_size=2), min_size=count, max_size=count)
        return pack_bytes(text.encode() for text in data.draw(texts))
    if datatype is Datatype.BOOL:
        return bytes(
            data.draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
        )
    size = count * NUMPY_TYPES[datatype].itemsize
    return data.draw(st.binary(min_size=size, max_size=size))
