"""The merged log of the services, for people, on stderr."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

__all__ = ["Console", "fatal_text"]

_COLOURS = (36, 33, 35, 32, 34, 96, 93, 95)
_NAME_WIDTH = 15
_LEVELS = {"warning": "33", "error": "31", "critical": "31"}
_CLOCK = slice(11, 23)
_OWN_KEYS = ("event", "level", "timestamp", "service", "slot")


class Console:
    """Lines of several processes, each with its name and a time in front (UTC, and so
    marked with Z), never interleaved.

    A line that is a structured event is shown as event and values, those with spaces
    in quotes; any other line as it is. Colours only on a terminal, and not with
    NO_COLOR.
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
        event = _event(text)
        time = f"{str(event.get('timestamp', ''))[_CLOCK] or _now()}Z"
        # A reader of the log that is gone must not stop who writes it.
        with self._lock, suppress(BrokenPipeError):
            prefix = self._paint(f"{name:<{_NAME_WIDTH}}", self._colour(name))
            readable = self._readable(event) if event else text
            # A value may have lines of its own: a traceback has.
            for line in readable.splitlines() or [""]:
                print(f"{prefix} {time} {line}", file=sys.stderr, flush=True)

    def _readable(self, event: dict[str, Any]) -> str:
        words = [str(event["event"])]
        level = str(event.get("level", "info"))
        if level in _LEVELS:
            words.insert(0, self._paint(level, _LEVELS[level]))
        told = {key: value for key, value in event.items() if key not in _OWN_KEYS}
        long = {key: text for key, text in told.items() if "\n" in str(text)}
        words += [
            f"{key}={_word(value)}" for key, value in told.items() if key not in long
        ]
        return "\n".join([" ".join(words), *map(str, long.values())])

    def _colour(self, name: str) -> str:
        number = self._colour_of.setdefault(name, len(self._colour_of))
        return str(_COLOURS[number % len(_COLOURS)])

    def _paint(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._coloured else text


def fatal_text(line: str) -> str:
    """Why the process that wrote ``line`` ends; empty: it does not say that it does."""
    event = _event(line)
    if event.get("level") != "critical":
        return ""
    return str(event.get("text") or event["event"])


def _event(line: str) -> dict[str, Any]:
    """Empty: the line is no structured event."""
    if not line.startswith("{"):
        return {}
    try:
        event = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
    return event if "event" in event else {}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")[_CLOCK]


def _word(value: object) -> str:
    """As JSON where a bare word would not show where it ends."""
    if isinstance(value, str) and value and not set(value) & {" ", '"', "="}:
        return value
    return msgspec.json.encode(value).decode()
