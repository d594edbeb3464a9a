"""What padding to a common length means for a batch: its size and its run time."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.domain import ServedVersion

__all__ = ["at_length", "rows_limit"]


def rows_limit(served: ServedVersion, edge: int) -> int:
    """Most rows of a batch that is padded to ``edge``, by the version's limits of rows
    and of tokens; 1 at least, since a request is whole."""
    padding = served.padding
    if padding is None or not edge:
        return served.max_batch
    tokens_max = padding.tokens_max or served.max_batch * padding.edges[-1]
    return min(max(tokens_max // edge, 1), served.max_batch)


def at_length(run_us: Mapping[int, int], ratio: float) -> dict[int, int]:
    """Run times by rows for rows that are ``ratio`` times as long as the measured
    ones: what a row more costs goes with its length, what a run costs does not."""
    if len(run_us) < 2:
        return dict(run_us)
    first, last = min(run_us), max(run_us)
    row_us = max((run_us[last] - run_us[first]) / (last - first), 0.0)
    return {
        rows: max(round(us + (ratio - 1) * row_us * rows), 1)
        for rows, us in run_us.items()
    }
