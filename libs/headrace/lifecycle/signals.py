"""Signals that ask a process to drain."""

from __future__ import annotations

import signal
import threading
from types import FrameType

__all__ = ["drain_on_signals"]


def drain_on_signals() -> threading.Event:
    """An event that SIGTERM and SIGINT set, however often they come."""
    asked = threading.Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        asked.set()

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, ask)
    return asked
