"""The merged log of the services, for people, on stderr."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import Any

import msgspec

__all__ = ["Console"]

_COLOURS = (36, 33, 35, 32, 34, 96, 93, 95)
_NAME_WIDTH = 15
_LEVELS = {"warning": "33", "error": "31", "critical": "31"}
_OWN_KEYS = ("event", "level", "timestamp", "service", "slot")


class Console:
    """Lines of several processes, each with its name in front, never interleaved.

    A line that is a structured event is shown as time, event and its values; any
    other line as it is. Colours only on a terminal, and not with NO_COLOR.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        self._colour_of: dict[str, int] = {}

    def say(self, text: str) -> None:
        """A sentence of the command itself."""
        self.line("headrace", text)

    def line(self, name: str, text: str) -> None:
        """One line that the process ``name`` wrote."""
        # A reader of the log that is gone must not stop who writes it.
        with self._lock, suppress(BrokenPipeError):
            prefix = self._paint(f"{name:<{_NAME_WIDTH}}", self._colour(name))
            # A value may have lines of its own: a traceback has.
            for line in self._readable(text).splitlines() or [""]:
                print(f"{prefix} {line}", file=sys.stderr, flush=True)

    def _readable(self, text: str) -> str:
        if not text.startswith("{"):
            return text
        try:
            event: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError:
            return text
        if "event" not in event:
            return text
        words = [str(event.get("timestamp", ""))[11:23], str(event["event"])]
        level = str(event.get("level", "info"))
        if level in _LEVELS:
            words.insert(1, self._paint(level, _LEVELS[level]))
        words += [
            f"{key}={value}" for key, value in event.items() if key not in _OWN_KEYS
        ]
        return " ".join(words).strip()

    def _colour(self, name: str) -> str:
        number = self._colour_of.setdefault(name, len(self._colour_of))
        return str(_COLOURS[number % len(_COLOURS)])

    def _paint(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._coloured else text
