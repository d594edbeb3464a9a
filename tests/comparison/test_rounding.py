from __future__ import annotations

import numpy as np
import pytest

from headrace.comparison import are_equal_but_for_rounding
from headrace.domain import Datatype, Tensor

BASE = np.linspace(-3, 3, 8)


def a_tensor(values: object, datatype: Datatype = Datatype.FP32) -> Tensor:
    dtype = {Datatype.FP64: "<f8", Datatype.FP32: "<f4", Datatype.FP16: "<f2"}
    array = np.asarray(values, dtype.get(datatype, "<i4"))
    return Tensor("y", datatype, array.shape, array.tobytes())


@pytest.mark.parametrize(
    ("datatype", "rounding", "error"),
    [
        (Datatype.FP64, 1e-12, 1e-6),
        (Datatype.FP32, 1e-6, 1e-2),
        (Datatype.FP16, 2e-3, 2e-1),
    ],
)
def test_rounding_is_told_from_error_by_datatype(
    datatype: Datatype, rounding: float, error: float
) -> None:
    exact = a_tensor(BASE, datatype)

    assert are_equal_but_for_rounding([exact], [a_tensor(BASE + rounding, datatype)])
    one_off = BASE.copy()
    one_off[3] += error
    assert not are_equal_but_for_rounding([exact], [a_tensor(one_off, datatype)])


def test_the_rounding_of_bf16_is_coarser() -> None:
    def bf16(values: object) -> Tensor:
        bits = np.asarray(values, "<f4").view("<u4") >> 16
        return Tensor("y", Datatype.BF16, (8,), bits.astype("<u2").tobytes())

    assert are_equal_but_for_rounding([bf16(BASE)], [bf16(BASE + 0.02)])
    assert not are_equal_but_for_rounding([bf16(BASE)], [bf16(BASE + 1)])


def test_whole_numbers_have_no_rounding() -> None:
    one, two = (a_tensor([value], Datatype.INT32) for value in (1000, 1001))

    assert are_equal_but_for_rounding([one], [one])
    assert not are_equal_but_for_rounding([one], [two])


def test_what_is_no_number_agrees_with_itself_alone() -> None:
    strange = [np.nan, np.inf, -np.inf, 1.0]
    nan, finite = a_tensor(strange), a_tensor([0.0, np.inf, -np.inf, 1.0])

    assert are_equal_but_for_rounding([nan], [a_tensor([*strange[:3], 1.000001])])
    assert not are_equal_but_for_rounding([nan], [finite])
    assert not are_equal_but_for_rounding([finite], [nan])


def test_names_shapes_and_counts_must_be_equal() -> None:
    tensor = a_tensor(BASE)
    data = tensor.data

    for other in (
        Tensor("z", Datatype.FP32, (8,), data),
        Tensor("y", Datatype.FP32, (2, 4), data),
        Tensor("y", Datatype.INT32, (8,), data),
    ):
        assert not are_equal_but_for_rounding([tensor], [other])
    assert not are_equal_but_for_rounding([tensor], [tensor, tensor])
