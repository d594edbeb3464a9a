"""What a version says now, held against what was answered then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.comparison import (
    OutputFigures,
    OutputTotals,
    Row,
    Tolerance,
    array_of,
    rounding_of,
)
from headrace.domain import BATCH_AXIS_NONE, Datatype, ServedVersion, Tensor
from headrace.errors import RequestError
from headrace.replay.payloads import UNREADABLE
from headrace.replay.recorded import Recorded
from headrace.replay.running import Replayed

__all__ = ["Allowed", "Comparison", "Differences", "Latency", "VersionFigures"]

Array = npt.NDArray[Any]

CHUNK_ROWS = 1024
"""Rows of one output that are compared together."""

EXAMPLES_MAX = 20
_LEVELS = (0.5, 0.9, 0.99, 1.0)


class Allowed(NamedTuple):
    """How far a number may be off, where its output is one of floating point; None:
    as far as rounding in another order takes it."""

    absolute: float | None = None
    relative: float | None = None

    def of(self, datatype: Datatype) -> Tolerance:
        rounding = rounding_of(datatype)
        if rounding == Tolerance() or self == Allowed():
            return rounding
        return Tolerance(self.absolute or 0.0, self.relative or 0.0)


class Latency(msgspec.Struct, frozen=True):
    """Milliseconds below which half, nine in ten, 99 in a hundred and all are."""

    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float


class VersionFigures(msgspec.Struct, frozen=True):
    """Requests that this version answered then."""

    compared: int
    identical: int
    within: int


class Differences(msgspec.Struct, frozen=True):
    """Requests, by what could be done with them, and figures of their rows by output.
    ``requests`` counts all; ``compared`` had a success then and now."""

    requests: int
    compared: int
    identical: int
    """Compared, with the same values in every output."""

    within: int
    """Compared, with every row of every output within the tolerance."""

    failed: int
    """A success then, and none now."""

    mended: int
    """A success now, and an error then."""

    unanswered: int
    """Without any end in the log."""

    mismatched: int
    """Compared, and an output is missing, or has another datatype or shape."""

    ended: dict[str, int]
    """By how they ended then."""

    reasons: dict[str, int]
    """By how they ended now."""

    outputs: dict[str, OutputFigures]
    versions: dict[str, VersionFigures]
    latency_then: Latency | None
    latency_now: Latency | None
    mismatches: list[str]
    failures: list[str]
    """Of both some examples."""

    failed_rows: int = 0
    """Rows of those that failed."""


class _Chunk:
    """Rows of one output that wait to be compared together."""

    __slots__ = ("marks", "now", "rows", "size", "then", "tolerance")

    def __init__(self, tolerance: Tolerance) -> None:
        self.then: list[Array] = []
        self.now: list[Array] = []
        self.rows: list[Row] = []
        self.marks: list[_Mark] = []
        """The request of each row."""
        self.tolerance = tolerance


class _Mark:
    """A request of which some outputs wait to be compared."""

    __slots__ = ("is_identical", "is_within", "left", "version")

    def __init__(self, version: str, outputs: int) -> None:
        self.version = version
        self.left = outputs
        self.is_identical = True
        self.is_within = True


_Form = tuple[str, Datatype, tuple[int, ...]]
"""Output, datatype, and shape of a row."""


class Comparison:
    """Takes what was replayed, in any order. ``served``: the version that ran it."""

    def __init__(
        self,
        served: ServedVersion,
        allowed: Mapping[str, Allowed] | None = None,
        default: Allowed = Allowed(),  # noqa: B008 - immutable
    ) -> None:
        self._axes = served.batch_axes
        self._allowed = allowed or {}
        self._default = default
        self._totals: dict[str, OutputTotals] = {}
        self._chunks: dict[_Form, _Chunk] = {}
        self._counts = Counter[str]()
        self._ended = Counter[str]()
        self._reasons = Counter[str]()
        self._by_version: dict[str, Counter[str]] = {}
        self._mismatches: dict[str, None] = {}
        self._failures: list[str] = []
        self._then_us: list[int] = []
        self._now_us: list[int] = []

    def take(self, replayed: Replayed) -> None:
        recorded = replayed.recorded
        ending = recorded.ending
        self._counts["requests"] += 1
        self._ended[ending.status if ending else "unanswered"] += 1
        self._reasons[replayed.status] += 1
        if replayed.is_ok and replayed.took_us is not None:
            self._now_us.append(replayed.took_us)
        if ending is None:
            self._counts["unanswered"] += 1
        elif not ending.is_ok:
            is_gone = ending.status in UNREADABLE
            self._counts["mended"] += replayed.is_ok and not is_gone
        else:
            self._then_us.append(recorded.latency_us or 0)
            if replayed.is_ok:
                self._compare(recorded, ending.version, ending.outputs, replayed)
            else:
                self._fail(replayed)

    def differences(self) -> Differences:
        for form in list(self._chunks):
            self._flush(form)
        counts = self._counts
        return Differences(
            requests=counts["requests"],
            compared=counts["compared"],
            identical=counts["identical"],
            within=counts["within"],
            failed=counts["failed"],
            mended=counts["mended"],
            unanswered=counts["unanswered"],
            mismatched=counts["mismatched"],
            ended=dict(sorted(self._ended.items())),
            reasons=dict(sorted(self._reasons.items())),
            outputs={name: totals.figures() for name, totals in self._totals.items()},
            versions={
                version: VersionFigures(
                    counts["compared"], counts["identical"], counts["within"]
                )
                for version, counts in sorted(self._by_version.items())
            },
            latency_then=_latency(self._then_us),
            latency_now=_latency(self._now_us),
            mismatches=list(self._mismatches),
            failures=self._failures,
            failed_rows=counts["failed_rows"],
        )

    @property
    def latencies_us(self) -> tuple[list[int], list[int]]:
        """Of the successes then, and of those now."""
        return self._then_us, self._now_us

    def _fail(self, replayed: Replayed) -> None:
        recorded = replayed.recorded
        self._counts["failed"] += 1
        self._counts["failed_rows"] += recorded.rows or 1
        if len(self._failures) < EXAMPLES_MAX:
            told = f"{replayed.status}: {replayed.text}".rstrip(": ")
            self._failures.append(f"{recorded.place}: {told}")

    def _compare(
        self,
        recorded: Recorded,
        version: str,
        then: Sequence[Tensor],
        replayed: Replayed,
    ) -> None:
        self._counts["compared"] += 1
        self._by_version.setdefault(version, Counter())["compared"] += 1
        pairs = _pairs(then, replayed.outputs)
        if isinstance(pairs, str):
            self._counts["mismatched"] += 1
            if len(self._mismatches) < EXAMPLES_MAX:
                self._mismatches.setdefault(pairs)
            return
        mark = _Mark(version, len(pairs))
        for one, other in pairs:
            self._queue(recorded.place, one, other, mark)

    def _queue(self, place: str, one: Tensor, other: Tensor, mark: _Mark) -> None:
        axis = self._axes.get(one.name, BATCH_AXIS_NONE)
        left, right = array_of(one), array_of(other)
        if axis == BATCH_AXIS_NONE or not left.ndim:
            left, right = left[np.newaxis], right[np.newaxis]
        elif axis:
            left, right = np.moveaxis(left, axis, 0), np.moveaxis(right, axis, 0)
        form = one.name, one.datatype, left.shape[1:]
        chunk = self._chunks.get(form)
        if chunk is None:
            allowed = self._allowed.get(one.name, self._default)
            chunk = self._chunks[form] = _Chunk(allowed.of(one.datatype))
        chunk.then.append(left)
        chunk.now.append(right)
        chunk.rows += [Row(place, number) for number in range(len(left))]
        chunk.marks += [mark] * len(left)
        mark.left += len(left) - 1
        if len(chunk.rows) >= CHUNK_ROWS:
            self._flush(form)

    def _flush(self, form: _Form) -> None:
        chunk = self._chunks.pop(form)
        totals = self._totals.setdefault(form[0], OutputTotals())
        then, now = np.concatenate(chunk.then), np.concatenate(chunk.now)
        same, within = totals.take(then, now, chunk.rows, chunk.tolerance)
        marks = zip(chunk.marks, same.tolist(), within.tolist(), strict=True)
        for mark, is_same, is_within in marks:
            mark.left -= 1
            mark.is_identical &= is_same
            mark.is_within &= is_within
            if not mark.left:
                for counts in (self._counts, self._by_version[mark.version]):
                    counts["identical"] += mark.is_identical
                    counts["within"] += mark.is_within


def _pairs(
    then: Sequence[Tensor], now: Sequence[Tensor]
) -> list[tuple[Tensor, Tensor]] | str:
    """Outputs by name, or why they cannot be held against each other."""
    by_name = {each.name: each for each in now}
    if missing := [each.name for each in then if each.name not in by_name]:
        return f"the output '{missing[0]}' is missing now"
    if len(by_name) > len(then):
        new = by_name.keys() - {each.name for each in then}
        return f"the output '{min(new)}' was missing then"
    pairs = [(each, by_name[each.name]) for each in then]
    for one, other in pairs:
        if (one.datatype, one.shape) != (other.datatype, other.shape):
            return (
                f"the output '{one.name}' was {one.datatype} {list(one.shape)} then, "
                f"and is {other.datatype} {list(other.shape)} now"
            )
        try:
            array_of(one)
            array_of(other)
        except RequestError as error:
            return str(error)
    return pairs


def _latency(times_us: Sequence[int]) -> Latency | None:
    if not times_us:
        return None
    levels = np.quantile(np.asarray(times_us) / 1000, _LEVELS)
    return Latency(*(round(float(each), 3) for each in levels))
