"""Does a version batch, how many rows fit, how long do they take: found out by runs.

A file's shapes promise more than its graph keeps: a constant inside may limit the
rows, an output may count hits instead of rows, an answer may depend on the
neighbours. One, two, three and ``max_batch`` made-up rows are run when a version is
loaded, so that this shows before a request rides in a batch.

Made-up values may be wrong for a model (an index outside its table). A model that no
choice of values can run is not refused for that: it is served unprobed, and says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median
from typing import NamedTuple

import msgspec
import numpy as np

from headrace.domain import VARIABLE, Datatype, Manifest, TensorSpec
from headrace.errors import ModelRefused
from headrace.runtime.batching import (
    Misfit,
    assemble,
    share_out,
)
from headrace.runtime.failures import RunFailed
from headrace.runtime.layout import Layout, settle_layout
from headrace.runtime.session import NUMPY_TYPES, Array, Session
from headrace.runtime.synthetic import KINDS, SyntheticInputs, choices
from headrace.wire import BatchedOutput

__all__ = ["Probed", "probe"]

TIMED_RUNS = 3
"""Runs of each size, of which the median counts; fewer when they are slow."""

TIMED_US_MAX = 150_000
"""A size that has taken so long is not warmed up or timed again: a slow run varies
little, and a version is not served before its probe ends."""

LENGTH_US_MAX = 250_000
"""A version with padding is timed at the longest edge at which a full batch should
take less."""

BY_SIZE = (1e-2, 1e-2)
BY_NEIGHBOURS = (1e-3, 1e-4)
BY_NEIGHBOURS_HALF = (1e-2, 1e-2)
"""Relative and absolute differences that are not told. Kernels are chosen by the size
of a batch and round differently: a classifier of files with 214 labels moves by 0.4 %.
What the neighbours in a batch of one size do must not matter beyond rounding."""


class Probed(msgspec.Struct, frozen=True):
    """What loading a version found out."""

    layout: Layout
    max_batch: int
    run_us: dict[int, int]
    """Median run time by rows, warmed up; empty when nothing could be run."""

    warnings: tuple[str, ...]
    run_length: int = 0
    """Padded length of these runs; 0 without padding."""

    row: Callable[[], Mapping[str, Array]] | None = None
    """A made-up row that has run, made anew; None where none is known."""


def probe(session: Session, manifest: Manifest) -> Probed:
    """Raises :class:`headrace.errors.ModelRefused` for a version that does not batch
    and does not say that it need not."""
    layout = settle_layout(session.signature, session.dimensions, manifest)
    rows_max = manifest.max_batch
    try:
        return _Probe(session, layout, manifest).run(rows_max)
    except _NothingRuns as error:
        warning = f"not probed, for made-up inputs cannot run: {error}"
        return Probed(layout, rows_max, {}, (warning,))
    except Misfit as error:
        if rows_max > 1:
            raise ModelRefused(
                f"{error}, so members cannot get their rows. In model.toml, correct "
                "batch_axis, or say max_batch = 1 to run requests one by one"
            ) from error
        alone = Layout(session.signature, {}, None)
        return _Probe(session, alone, manifest).run(rows_max)


class _NothingRuns(Exception):
    """No choice of values runs alone; the text is the runtime's."""


class _Limit(NamedTuple):
    rows: int
    text: str
    """Why a batch of one more row fails; empty: none was tried."""


class _Probe:
    def __init__(self, session: Session, layout: Layout, manifest: Manifest) -> None:
        self._session = session
        self._layout = layout
        self._warm_up = manifest.warm_up
        self._edges = layout.padding.edges if layout.padding else (0,)
        self._mixed: dict[int, dict[str, bytes]] = {}
        """By rows: what the first of so many rows, unlike its neighbours, got."""
        self._inputs = self._first_that_runs()

    def run(self, rows_max: int) -> Probed:
        limit = self._limit(rows_max)
        warnings = [*self._differences(limit.rows)]
        if limit.rows < rows_max:
            warnings.append(
                f"runs at most {limit.rows} rows instead of {rows_max}: {limit.text}"
            )
        length = self._edges[0]
        if self._layout.padding:
            warnings += self._padding_differences()
            length, unfit = self._timed_length(limit.rows)
            warnings += unfit
        sizes = sorted({rows for rows in (1, 2, 3) if rows < limit.rows} | {limit.rows})
        run_us = {rows: self._timed_us(rows, length) for rows in sizes}
        return Probed(
            self._with_ranks(),
            limit.rows,
            run_us,
            tuple(warnings),
            length,
            partial(self._inputs.row, 0, self._edges[0]),
        )

    def _first_that_runs(self) -> SyntheticInputs:
        kinds = KINDS if self._layout.batch_axes else 1
        failures: list[str] = []
        for choice in choices(self._layout, self._session.dimensions):
            inputs = SyntheticInputs(self._layout, self._session.dimensions, choice)
            try:
                for kind in range(kinds):
                    self._session.run(inputs.row(kind, self._edges[0]))
            except RunFailed as error:
                failures.append(str(error))
                continue
            return inputs
        raise _NothingRuns(failures[0])

    def _limit(self, rows_max: int) -> _Limit:
        """The most rows that run, at most ``rows_max``."""
        self._outputs(1)
        ran, text = 1, ""
        for rows in (2, 3, rows_max):
            if not ran < rows <= rows_max:
                continue
            text = self._failure(rows)
            if not text:
                ran = rows
                continue
            failed = rows
            while failed - ran > 1:
                middle = (ran + failed) // 2
                failure = self._failure(middle)
                if failure:
                    failed, text = middle, failure
                else:
                    ran = middle
            break
        return _Limit(ran, text)

    def _failure(self, rows: int) -> str:
        try:
            self._mixed[rows] = _member(self._outputs(rows), 0)
        except RunFailed as error:
            return str(error) or "the run failed"
        return ""

    def _outputs(
        self, rows: int, lengths: Sequence[int] | None = None, kinds: int = KINDS
    ) -> list[BatchedOutput]:
        of = list(lengths or [self._edges[0]] * rows)
        batch = self._inputs.batch(of, kinds)
        arrays = assemble(self._layout, batch, [1] * rows, of)
        return share_out(self._layout, self._session.run(arrays), [1] * rows, of)

    def _differences(self, rows_max: int) -> Iterator[str]:
        """Whether a row's answer depends on its neighbours, or much on how many they
        are."""
        if rows_max == 1:
            return
        alone = self._alone(0, self._edges[0])
        if self._alone(0, self._edges[0]) != alone:
            yield "answers differ from run to run"
            return
        worst: dict[str, float] = {}
        for rows in sorted({min(KINDS, rows_max), rows_max}):
            among_equals = _member(self._outputs(rows, kinds=1), 0)
            for name, difference in (
                *self._compared(alone, among_equals, BY_SIZE),
                *self._compared(among_equals, self._mixed[rows], BY_NEIGHBOURS),
            ):
                worst[name] = max(worst.get(name, 0.0), difference)
        for name, difference in worst.items():
            yield (
                f"answers alone and in a batch differ, by up to {difference:.2g} in "
                f"output {name!r}"
            )

    def _alone(self, kind: int, length: int) -> dict[str, bytes]:
        """A row's raw outputs when it runs alone, neither batched nor padded."""
        outputs = self._session.run(self._inputs.row(kind, length))
        exact = msgspec.structs.replace(self._layout, padding=None)
        return _member(share_out(exact, outputs, [1], []), 0)

    def _compared(
        self,
        first: Mapping[str, bytes],
        second: Mapping[str, bytes],
        close: tuple[float, float],
    ) -> Iterator[tuple[str, float]]:
        """Outputs that are not ``close``, with the largest difference."""
        for spec in self._layout.signature.outputs:
            difference = _difference(spec, first[spec.name], second[spec.name], close)
            if difference is not None:
                yield spec.name, difference

    def _padding_differences(self) -> Iterator[str]:
        long = self._edges[0]
        short = max(1, long // 2)
        if short == long:
            return
        try:
            padded = _member(self._outputs(2, [short, long]), 0)
        except RunFailed as error:
            yield f"a padded batch cannot run: {error}"
            return
        alone = self._alone(0, short)
        for name, difference in self._compared(alone, padded, BY_SIZE):
            yield (
                f"padding changes answers, by up to {difference:.2g} in output {name!r}"
            )

    def _timed_length(self, rows_max: int) -> tuple[int, list[str]]:
        """The edge to time at, and a warning for each that does not run."""
        unfit: list[str] = []
        for edge in reversed(self._edges):
            try:
                run_us = self._timed_us(1, edge, runs=1)
            except RunFailed as error:
                unfit.append(f"length {edge}, an edge of padding, cannot run: {error}")
                continue
            if run_us * rows_max <= LENGTH_US_MAX:
                return edge, unfit
        return self._edges[0], unfit

    def _timed_us(self, rows: int, length: int, runs: int = TIMED_RUNS) -> int:
        lengths = [length] * rows
        arrays = assemble(
            self._layout, self._inputs.batch(lengths), [1] * rows, lengths
        )
        for _ in self._run_times_us(arrays, self._warm_up):
            pass
        return round(median(self._run_times_us(arrays, runs)))

    def _run_times_us(self, arrays: Mapping[str, Array], runs: int) -> Iterator[int]:
        """At most ``runs`` of them; fewer, but one, where they are slow."""
        spent_us = 0
        for _ in range(runs):
            began = time.perf_counter_ns()
            self._session.run(arrays)
            run_us = max(1, (time.perf_counter_ns() - began) // 1000)
            yield run_us
            spent_us += run_us
            if spent_us >= TIMED_US_MAX:
                return

    def _with_ranks(self) -> Layout:
        """The layout, with the rank of outputs whose shape the file leaves out."""
        signature = self._layout.signature
        arrays = self._session.run(self._inputs.row(0, self._edges[0]))
        outputs = tuple(
            msgspec.structs.replace(spec, shape=(VARIABLE,) * array.ndim)
            if not spec.shape
            else spec
            for spec, array in zip(signature.outputs, arrays, strict=True)
        )
        return msgspec.structs.replace(
            self._layout, signature=msgspec.structs.replace(signature, outputs=outputs)
        )


def _member(outputs: Sequence[BatchedOutput], member: int) -> dict[str, bytes]:
    return {output.name: bytes(output.piece(member)) for output in outputs}


def _difference(
    spec: TensorSpec, first: bytes, second: bytes, close: tuple[float, float]
) -> float | None:
    """None: equal up to ``close``."""
    if first == second:
        return None
    if spec.datatype is Datatype.BYTES or len(first) != len(second):
        return float("inf")
    kind = NUMPY_TYPES[spec.datatype]
    one, other = (np.frombuffer(raw, kind) for raw in (first, second))
    if spec.datatype is Datatype.BF16:
        one, other = ((each.astype("<u4") << 16).view("<f4") for each in (one, other))
    if spec.datatype in {Datatype.BF16, Datatype.FP16}:
        close = max(close, BY_NEIGHBOURS_HALF)
    if one.dtype.kind == "f" and np.allclose(other, one, *close, equal_nan=True):
        return None
    with np.errstate(all="ignore"):
        apart = np.abs(one.astype(np.float64) - other.astype(np.float64))
    return float(np.nanmax(apart))
