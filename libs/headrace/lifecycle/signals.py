"""Signals that ask a process to drain."""

from __future__ import annotations

import signal
from types import FrameType

__all__ = ["DrainFlag", "drain_on_signals"]


class DrainFlag:
    """Set once for good, by whatever thread or signal handler.

    No ``threading.Event``: its lock cannot be taken again by a handler that interrupts
    another one in the middle of ``set``, and the main thread would stand still.
    """

    __slots__ = ("_is_set",)

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set


def drain_on_signals() -> DrainFlag:
    """A flag that SIGTERM and SIGINT set, however often they come."""
    asked = DrainFlag()

    def ask(_number: int, _frame: FrameType | None) -> None:
        asked.set()

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, ask)
    return asked
