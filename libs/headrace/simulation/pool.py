"""What is simulated: models, machines, and what happens to them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec
import numpy as np

__all__ = ["Loss", "ModelSpec", "Pool", "Table"]


class Table(StrEnum):
    """How a measured run-time table is read between its sizes."""

    LINEAR = "linear"
    STEPPED = "stepped"
    """As the next larger size: the model pads to it."""


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A model whose run time is ``alpha_us + beta_us · rows``, or a measured table."""

    name: str
    alpha_us: int = 5_000
    beta_us: int = 250
    max_batch: int = 32
    table_us: Mapping[int, int] = {}
    """Rows to run time; the last one holds for all larger sizes."""

    reading: Table = Table.LINEAR

    def run_us(self, rows: int) -> int:
        if not self.table_us:
            return self.alpha_us + self.beta_us * rows
        sizes = sorted(self.table_us)
        if self.reading is Table.STEPPED:
            size = next((size for size in sizes if size >= rows), sizes[-1])
            return self.table_us[size]
        return int(np.interp(rows, sizes, [self.table_us[size] for size in sizes]))

    def times_us(self) -> list[int]:
        """Run times of 0 to ``max_batch`` rows."""
        return [0, *map(self.run_us, range(1, self.max_batch + 1))]

    def row_us(self) -> float:
        """Least device time of a row."""
        return min(run_us / rows for rows, run_us in enumerate(self.times_us()) if rows)


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """A worker is gone from ``at_s`` for ``seconds``; what it held runs again once
    its lease has lapsed."""

    worker: int
    at_s: float
    seconds: float
    lease_us: int = 500_000


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """The machines: ``lanes`` formers share the workers by number."""

    workers: int = 1
    lanes: int = 1
    ingresses: int = 1
    request_us: int = 1_000
    """From the client to the former."""

    control_us: int = 1_000
    """From the former to the worker, and from the end of a run back to it."""

    response_us: int = 1_000
    """From the end of a run to the client."""

    noise: float = 0.0
    """Standard deviation of a run time, as a part of it."""

    speeds: tuple[float, ...] = ()
    """Run time factors of the workers, repeated over all; empty: all 1."""

    slow_from_s: float | None = None
    """From then on every run takes ``slow_factor`` times as long."""

    slow_factor: float = 2.0
    losses: tuple[Loss, ...] = ()
    admission: bool = True
    """Whether the ingresses refuse by the lanes' published load."""
