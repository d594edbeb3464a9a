"""What this slot's runs took lately: told with its versions, so that a batch former
that starts knows more than the probe.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque

import msgspec

from headrace.domain import ModelState
from headrace.wire import Announcement

__all__ = ["RunMemory"]

SHAPES_KEPT_MAX = 8
"""Compatibility keys of a version that are remembered, those that ran last."""
RUNS_KEPT = 5
"""Of each size, in powers of two."""
TOLD_AGAIN_US = 30_000_000
CHANGE_MIN = 0.15
"""Part by which the median of a size changes before it is told again."""

Runs = dict[str, tuple[tuple[int, int], ...]]


class RunMemory:
    """The last runs of a version by compatibility key, as ``(rows, run_us)``. The loop
    adds, the thread of models tells."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shapes: OrderedDict[str, dict[int, deque[tuple[int, int]]]] = (
            OrderedDict()
        )
        self._told: dict[tuple[str, int], float] = {}
        self._told_at_us = -TOLD_AGAIN_US

    def add(self, shape: str, rows: int, run_us: int) -> None:
        with self._lock:
            sizes = self._shapes.setdefault(shape, {})
            self._shapes.move_to_end(shape)
            size = sizes.setdefault(rows.bit_length(), deque(maxlen=RUNS_KEPT))
            size.append((rows, run_us))
            if len(self._shapes) > SHAPES_KEPT_MAX:
                self._shapes.popitem(last=False)

    def news(self, now_us: int) -> Runs | None:
        """All that is known, when some size is new or has changed; None otherwise, and
        for half a minute after it was told. Sizes that ran less often than they are
        remembered say nothing."""
        if now_us - self._told_at_us < TOLD_AGAIN_US:
            return None
        with self._lock:
            known = {
                (shape, size): tuple(runs)
                for shape, sizes in self._shapes.items()
                for size, runs in sorted(sizes.items())
                if len(runs) == RUNS_KEPT
            }
        medians = {
            place: sorted(us / rows for rows, us in runs)[RUNS_KEPT // 2]
            for place, runs in known.items()
        }
        if not any(map(self._is_news, medians.items())):
            return None
        self._told_at_us, self._told = now_us, medians
        told: Runs = {}
        for (shape, _), runs in known.items():
            told[shape] = told.get(shape, ()) + runs
        return told

    def told(self, said: Announcement, now_us: int) -> Announcement | None:
        """``said`` with the news; None without any, or while the slot is not asked."""
        runs = self.news(now_us) if said.state is ModelState.READY else None
        if runs is None:
            return None
        return msgspec.structs.replace(said, recent_runs=runs)

    def _is_news(self, median: tuple[tuple[str, int], float]) -> bool:
        place, row_us = median
        told_us = self._told.get(place)
        return told_us is None or abs(row_us - told_us) > CHANGE_MIN * told_us
