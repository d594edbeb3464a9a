"""What two versions of a model say of the same rows, output by output, in figures.

All figures are of rows: what a request asked for at one place of the batch axis. The
relative error of a row is its largest absolute difference over the largest magnitude
in it, of either side; so it is at most 2, and small numbers beside large ones do not
spoil it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import heappush, heapreplace
from math import prod
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.comparison.rounding import Tolerance

__all__ = ["BIN_EDGES", "OutputFigures", "OutputTotals", "Row", "WorstRow"]

Array = npt.NDArray[Any]

WORST_MAX: Final = 20
SHOWN_MAX: Final = 16
"""Elements of a row that are kept of the worst ones."""

PAIRS_MAX: Final = 400
"""Pairs of answers that are counted one by one (20 classes); beyond, together."""

BIN_EDGES: Final = np.concatenate(([0.0], 10.0 ** np.arange(-10, 4.01, 0.25)))
"""Of the histogram of rows by largest absolute difference: bin 0 holds those without
any, bin i those above edge i - 1 up to edge i."""

_Pair = tuple[str, str]


class Row(NamedTuple):
    """Where a row was asked for: a request's record, and the row's number in it."""

    place: str
    number: int


class WorstRow(msgspec.Struct, frozen=True, order=True):
    """``then`` and ``now``: the row's first elements, recorded and replayed. Who chose
    otherwise is worse than whoever is only further away."""

    chose_otherwise: bool
    is_unlike: bool
    difference: float
    place: str
    row: int
    then: list[Any]
    now: list[Any]


class OutputFigures(msgspec.Struct, frozen=True):
    """One output. Differences are None where no row has numbers to subtract,
    ``agreement`` where nothing is chosen: an output of numbers chooses the largest
    along its last axis, any other its value."""

    rows: int
    identical: int
    """Rows with the same bits."""

    within: int
    """Rows within the tolerance."""

    unlike: int
    """Rows in which one side has a number where the other has NaN or an infinity."""

    max_absolute: float | None
    mean_absolute: float | None
    max_relative: float | None
    mean_relative: float | None
    choices: int
    agreeing: int
    agreement: float | None
    histogram: list[int]
    pairs: list[tuple[str, str, int]]
    """Of whole numbers and texts alone in their row, and of the largest of a row: how
    often the first was said then and the second now; most frequent first."""

    worst: list[WorstRow]


class OutputTotals:
    """Sums over the rows of one output, taken in any number of parts."""

    def __init__(self) -> None:
        self.rows = 0
        self._identical = 0
        self._within = 0
        self._unlike = 0
        self._elements = 0
        self._absolute = 0.0
        self._max_absolute: float | None = None
        self._relative = 0.0
        self._measured = 0
        self._max_relative: float | None = None
        self._choices = 0
        self._agreeing = 0
        self._histogram = np.zeros(len(BIN_EDGES), np.int64)
        self._pairs: Counter[_Pair] = Counter()
        self._worst: list[WorstRow] = []

    def take(
        self, then: Array, now: Array, rows: Sequence[Row], tolerance: Tolerance
    ) -> tuple[Array, Array]:
        """Rows along axis 0 of two arrays of equal shape and datatype; which of them
        are identical, and which within ``tolerance``."""
        count = len(rows)
        assert then.shape == now.shape
        assert then.shape[0] == count
        shape = count, prod(then.shape[1:])
        left, right = then.reshape(shape), now.reshape(shape)
        same = _same(left, right)
        identical = _whole(same)
        self.rows += count
        self._identical += int(identical.sum())
        is_float = then.dtype.kind == "f"
        unlike = np.zeros(count, np.bool_)
        if then.dtype == object:
            within, largest = identical, (~same).sum(axis=1).astype(np.float64)
        else:
            largest, allowed, unlike = self._subtract(left, right, same, tolerance)
            # Whole numbers beyond 2**53 may differ by what a float64 does not hold.
            is_near = (largest > 0) & (largest <= allowed) & ~unlike
            within = identical | is_near
        self._within += int(within.sum())
        otherwise = (
            self._choose(then, now) if is_float else self._compare(left, right, same)
        )
        keys = (largest, unlike, otherwise)
        for at in np.lexsort(keys)[::-1][:WORST_MAX].tolist():
            if identical[at]:
                break
            self._keep(
                WorstRow(
                    chose_otherwise=bool(otherwise[at]),
                    is_unlike=bool(unlike[at]),
                    difference=float(largest[at]),
                    place=rows[at].place,
                    row=rows[at].number,
                    then=_head(left[at]),
                    now=_head(right[at]),
                )
            )
        return identical, within

    def figures(self) -> OutputFigures:
        measured, elements = self._measured, self._elements
        return OutputFigures(
            rows=self.rows,
            identical=self._identical,
            within=self._within,
            unlike=self._unlike,
            max_absolute=self._max_absolute,
            mean_absolute=self._absolute / elements if elements else None,
            max_relative=self._max_relative,
            mean_relative=self._relative / measured if measured else None,
            choices=self._choices,
            agreeing=self._agreeing,
            agreement=self._agreeing / self._choices if self._choices else None,
            histogram=self._histogram.tolist(),
            pairs=[(*pair, times) for pair, times in self._pairs.most_common()],
            worst=sorted(self._worst, reverse=True),
        )

    def _subtract(
        self, left: Array, right: Array, same: Array, tolerance: Tolerance
    ) -> tuple[Array, Array, Array]:
        """Of each row its largest difference, the one that is allowed, and whether it
        is unlike."""
        one, other = left.astype(np.float64), right.astype(np.float64)
        comparable = np.isfinite(one) & np.isfinite(other)
        unlike = ~_whole(comparable | same)
        difference = np.zeros_like(one)
        np.subtract(one, other, out=difference, where=comparable & ~same)
        np.abs(difference, out=difference)
        magnitude = np.maximum(
            np.abs(one, where=comparable, out=np.zeros_like(one)),
            np.abs(other, where=comparable, out=np.zeros_like(one)),
        )
        largest = difference.max(axis=1, initial=0.0)
        scale = magnitude.max(axis=1, initial=0.0)
        relative = np.divide(
            largest, scale, out=np.zeros_like(largest), where=scale > 0
        )
        self._unlike += int(unlike.sum())
        self._elements += int(comparable.sum())
        self._absolute += float(difference.sum())
        self._max_absolute = _larger(self._max_absolute, float(largest.max()))
        self._measured += len(largest)
        self._relative += float(relative.sum())
        self._max_relative = _larger(self._max_relative, float(relative.max()))
        bins = np.searchsorted(BIN_EDGES, largest, side="left")
        bins = np.minimum(bins, len(BIN_EDGES) - 1)
        self._histogram += np.bincount(bins, minlength=len(BIN_EDGES))
        allowed = tolerance.absolute + tolerance.relative * scale
        return largest, allowed, unlike

    def _choose(self, then: Array, now: Array) -> Array:
        """By the largest along the last axis; which rows disagree anywhere."""
        count = len(then)
        if then.ndim < 2 or then.shape[-1] < 2 or not then.size:
            return np.zeros(count, np.bool_)
        # NaN is no choice: it counts as the least.
        one, other = (
            np.where(np.isnan(each), -np.inf, each).argmax(axis=-1).reshape(count, -1)
            for each in (then, now)
        )
        return self._compare(one, other, one == other)

    def _compare(self, one: Array, other: Array, same: Array) -> Array:
        self._choices += same.size
        self._agreeing += int(same.sum())
        if same.shape[1] == 1:
            said = zip(one[:, 0].tolist(), other[:, 0].tolist(), strict=True)
            for pair, times in Counter(said).items():
                self._count((_word(pair[0]), _word(pair[1])), times)
        return ~_whole(same)

    def _count(self, pair: _Pair, times: int) -> None:
        if pair in self._pairs or len(self._pairs) < PAIRS_MAX:
            self._pairs[pair] += times

    def _keep(self, row: WorstRow) -> None:
        if len(self._worst) < WORST_MAX:
            heappush(self._worst, row)
        elif row > self._worst[0]:
            heapreplace(self._worst, row)


def _head(row: Array) -> list[Any]:
    return [
        _word(each) if isinstance(each, bytes) else each
        for each in row[:SHOWN_MAX].tolist()
    ]


def _same(left: Array, right: Array) -> Array:
    """Elements of the same value; NaN is NaN."""
    same: Array = left == right
    if left.dtype.kind == "f":
        same |= np.isnan(left) & np.isnan(right)
    return same


def _whole(marks: Array) -> Array:
    """Rows in which every element is marked."""
    marked: Array = np.logical_and.reduce(marks, axis=1)
    return marked


def _larger(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def _word(value: object) -> str:
    if isinstance(value, bytes):
        return value[:80].decode(errors="replace")
    return str(value)
