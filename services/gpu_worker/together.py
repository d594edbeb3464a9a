"""Results of short bulk runs that wait for each other."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["TOGETHER_MAX", "TOGETHER_US", "Together"]

T = TypeVar("T")

TOGETHER_MAX = 8
TOGETHER_US = 4_000
"""So many runs, that are over within so long: their replies then share a produce
request, and so do their dones."""


class Together(Generic[T]):
    """What has run and was not told yet. One thread calls."""

    def __init__(self) -> None:
        self._waiting: list[T] = []
        self._run_us = 0

    def add(self, ran: T, run_us: int, next_us: int | None) -> list[T]:
        """What is to be told now. ``next_us``: how long the next run will take; None:
        there is none that may be waited for."""
        self._waiting.append(ran)
        self._run_us += run_us
        if (
            next_us is not None
            and len(self._waiting) < TOGETHER_MAX
            and self._run_us + next_us <= TOGETHER_US
        ):
            return []
        told, self._waiting, self._run_us = self._waiting, [], 0
        return told
