"""Figures of two versions' answers, against a plain computation."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from headrace.comparison import (
    BIN_EDGES,
    OutputFigures,
    OutputTotals,
    Row,
    Tolerance,
    array_of,
)
from headrace.domain import Datatype, Tensor
from headrace.errors import RequestError

EXACT = Tolerance()
NUMBERS = st.floats(-100, 100, width=32) | st.sampled_from([np.nan, np.inf, -np.inf])


def rows(count: int) -> list[Row]:
    return [Row("t/0/7", number) for number in range(count)]


def figures_of(
    then: object, now: object, tolerance: Tolerance = EXACT, dtype: object = np.float32
) -> OutputFigures:
    left, right = (np.asarray(each, dtype) for each in (then, now))
    totals = OutputTotals()
    totals.take(left, right, rows(len(left)), tolerance)
    return totals.figures()


def test_scores_are_told_by_distance_and_by_choice() -> None:
    found = figures_of(
        [[0.9, 0.1], [0.6, 0.4], [0.5, 0.5]], [[0.9, 0.1], [0.3, 0.7], [0.75, 0.25]]
    )

    assert (found.rows, found.identical, found.within) == (3, 1, 1)
    assert found.max_absolute == pytest.approx(0.3)
    assert found.mean_absolute == pytest.approx((0.3 * 2 + 0.25 * 2) / 6)
    assert found.max_relative == pytest.approx(0.3 / 0.7)
    assert (found.choices, found.agreeing) == (3, 2)
    assert found.pairs == [("0", "0", 2), ("0", "1", 1)]
    worst, next_worst = found.worst
    assert (worst.row, worst.chose_otherwise, next_worst.row) == (1, True, 2)
    assert worst.then == pytest.approx([0.6, 0.4])


def test_a_tolerance_is_relative_to_the_largest_of_its_row() -> None:
    then, now = [[1000.0, 0.001]], [[1000.0, 0.05]]

    assert figures_of(then, now, Tolerance(relative=1e-4)).within == 1
    assert figures_of(then, now, Tolerance(relative=1e-5)).within == 0
    assert figures_of(then, now, Tolerance(absolute=0.05)).within == 1
    assert figures_of(then, now, Tolerance(absolute=0.04)).within == 0


def test_nan_is_itself_alone_and_chooses_nothing() -> None:
    strange = [[np.nan, 1.0, np.inf]]

    same = figures_of(strange, strange)
    other = figures_of(strange, [[0.0, 1.0, np.inf]], Tolerance(absolute=10))

    apart = figures_of([[np.nan, 1.0, 0.0]], [[0.0, 1.0, 0.5]])
    assert (apart.agreement, apart.pairs) == (1.0, [("1", "1", 1)])
    assert (same.identical, same.unlike, same.agreement) == (1, 0, 1.0)
    assert (other.within, other.unlike, other.max_absolute) == (0, 1, 0.0)
    assert other.worst[0].is_unlike


def test_labels_agree_or_do_not() -> None:
    found = figures_of([3, 5, 5], [3, 8, 8], dtype=np.int64)

    assert (found.agreeing, found.choices, found.within) == (1, 3, 1)
    assert found.pairs == [("5", "8", 2), ("3", "3", 1)]


def test_whole_numbers_that_a_float_cannot_tell_apart_are_told_apart() -> None:
    found = figures_of([2**60], [2**60 + 1], Tolerance(1, 1), dtype=np.int64)

    assert (found.identical, found.within) == (0, 0)


def test_texts_have_no_distance() -> None:
    found = figures_of([b"cat", b"dog"], [b"cat", b"cow"], dtype=object)

    assert (found.max_absolute, found.agreement) == (None, 0.5)
    assert found.pairs == [("cat", "cat", 1), ("dog", "cow", 1)]
    assert (found.worst[0].then, found.worst[0].now) == (["dog"], ["cow"])


def test_a_choice_along_the_last_axis_is_one_for_each_place() -> None:
    then = np.zeros((1, 2, 3), np.float32)
    now = then.copy()
    now[0, 1, 2] = 1

    found = figures_of(then, now)

    assert (found.choices, found.agreeing, found.pairs) == (2, 1, [])


@given(
    arrays.array_shapes(min_dims=2, max_dims=2, max_side=5).flatmap(
        lambda shape: st.tuples(
            *[arrays.arrays(np.float32, shape, elements=NUMBERS)] * 2
        )
    ),
    st.floats(0, 10),
    st.floats(0, 1),
    st.integers(0, 5),
)
def test_figures_are_those_of_a_plain_computation_also_in_parts(
    pair: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    absolute: float,
    relative: float,
    cut: int,
) -> None:
    then, now = pair
    tolerance = Tolerance(absolute, relative)
    found = figures_of(then, now, tolerance)

    within = identical = unlike = 0
    largest, distances, relatives = [], [], []
    for one, other in zip(then.tolist(), now.tolist(), strict=True):
        pairs = list(zip(one, other, strict=True))
        same = [a == b or (np.isnan(a) and np.isnan(b)) for a, b in pairs]
        finite = [(a, b) for a, b in pairs if np.isfinite(a) and np.isfinite(b)]
        scale = max([abs(x) for each in finite for x in each], default=0.0)
        apart = [abs(a - b) for a, b in finite]
        is_unlike = any(
            not s and not (np.isfinite(a) and np.isfinite(b))
            for s, (a, b) in zip(same, pairs, strict=True)
        )
        far = max(apart, default=0.0)
        identical += all(same)
        unlike += is_unlike
        within += not is_unlike and far <= absolute + relative * scale
        largest.append(far)
        distances += apart
        relatives.append(far / scale if scale else 0.0)

    assert (found.identical, found.within, found.unlike) == (identical, within, unlike)
    assert found.max_absolute == max(largest)
    assert found.max_relative == pytest.approx(max(relatives))
    if distances:
        assert found.mean_absolute == pytest.approx(np.mean(distances))
    for edge, below in zip(BIN_EDGES, np.cumsum(found.histogram), strict=True):
        assert below == sum(each <= edge for each in largest)

    parts = OutputTotals()
    for part in (slice(cut), slice(cut, None)):
        if len(then[part]):
            place = [Row("t/0/7", number) for number in range(len(then))[part]]
            parts.take(then[part], now[part], place, tolerance)
    whole = parts.figures()
    assert [each.row for each in whole.worst] == [each.row for each in found.worst]
    assert (whole.within, whole.histogram) == (found.within, found.histogram)
    assert whole.mean_relative == pytest.approx(found.mean_relative)


def test_tensors_become_arrays_of_their_datatype() -> None:
    bits = (np.asarray([1.5, -2], "<f4").view("<u4") >> 16).astype("<u2")
    texts = b"\x02\x00\x00\x00ab\x00\x00\x00\x00"

    bf16 = array_of(Tensor("y", Datatype.BF16, (2,), bits.tobytes()))
    words = array_of(Tensor("y", Datatype.BYTES, (1, 2), texts))

    assert (bf16.dtype, bf16.tolist()) == (np.dtype(np.float32), [1.5, -2.0])
    assert words.tolist() == [[b"ab", b""]]
    with pytest.raises(RequestError, match="tensor 'y'"):
        array_of(Tensor("y", Datatype.FP32, (2,), bytes(4)))
