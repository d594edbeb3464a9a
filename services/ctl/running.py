"""What runs on this machine, written down for commands in other shells.

``<data>/up.json`` holds the ready document and every process. The supervisor holds a
lock on the file for as long as it lives, so a file without a lock is a leftover, and
the processes named in it are leftovers too.
"""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil

from headrace.errors import SetupError

__all__ = [
    "DATA_FOLDER",
    "EPHEMERAL_PREFIX",
    "Document",
    "Process",
    "StateFile",
    "find_running",
    "identity_of",
]

DATA_FOLDER = Path(".headrace")
EPHEMERAL_PREFIX = "headrace-up-"
_NAME = "up.json"
_POLL_S = 0.05


class Process(NamedTuple):
    """A process id alone is used again; with its start (ms since the epoch) not."""

    pid: int
    started_ms: int


class Document(msgspec.Struct, frozen=True):
    """What ``headrace up --json`` prints when everything is ready."""

    http: list[str]
    bootstrap_servers: str
    pids: dict[str, list[int]]
    admin: dict[str, list[str]]


class _State(msgspec.Struct):
    supervisor: Process
    document: Document
    children: list[Process]


def identity_of(pid: int) -> Process | None:
    """None: no such process."""
    try:
        return Process(pid, int(psutil.Process(pid).create_time() * 1000))
    except psutil.NoSuchProcess:
        return None


class StateFile:
    """The supervisor's side: held from the start of ``up`` to its end.

    Raises SetupError if another supervisor runs from this folder. What one that was
    killed left running is killed.
    """

    def __init__(self, data: Path) -> None:
        self._path = data / _NAME
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._fd)
            state = _read(self._path)
            who = f" (process {state.supervisor.pid})" if state else ""
            raise SetupError(
                f"Headrace already runs from {data}{who}: stop it with "
                f"`headrace down --data {data}`, or choose another folder with --data."
            ) from error
        state = _read(self._path)
        if state is not None:
            _kill_all(state.children)

    def write(self, document: Document, children: Sequence[int]) -> None:
        supervisor = identity_of(os.getpid())
        assert supervisor is not None
        known = [identity_of(pid) for pid in children]
        state = _State(supervisor, document, [child for child in known if child])
        content = msgspec.json.encode(state)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, content, 0)

    def close(self) -> None:
        """Nothing runs any more."""
        self._path.unlink(missing_ok=True)
        os.close(self._fd)


class Running:
    """A supervisor that lives, as another shell sees it."""

    def __init__(self, data: Path, state: _State) -> None:
        self.data = data
        self.document = state.document
        self.pid = state.supervisor.pid
        self._state = state

    def stop(self, timeout_s: float) -> bool:
        """Ask it to drain and wait for its end; False: it still runs."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        while _lives(self._state.supervisor):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True


def find_running(data: Path | None) -> Running | None:
    """The supervisor that runs from ``data``; without a folder: from the default one,
    or else the only ephemeral one of this machine."""
    if data is not None:
        return _running_in(data)
    found = _running_in(DATA_FOLDER)
    if found is not None:
        return found
    folders = Path(tempfile.gettempdir()).glob(f"{EPHEMERAL_PREFIX}*")
    ephemeral = [running for folder in folders if (running := _running_in(folder))]
    if len(ephemeral) > 1:
        choices = ", ".join(str(running.data) for running in ephemeral)
        raise SetupError(
            f"Several ephemeral platforms run here: name one with --data ({choices})."
        )
    return ephemeral[0] if ephemeral else None


def _running_in(data: Path) -> Running | None:
    path = data / _NAME
    state = _read(path)
    if state is None or not _lives(state.supervisor):
        return None
    return Running(data, state)


def _read(path: Path) -> _State | None:
    """None: no file, or one from another version of Headrace."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_State)
    except (OSError, msgspec.DecodeError):
        return None


def _kill_all(leftovers: Sequence[Process]) -> None:
    alive = [child for child in leftovers if identity_of(child.pid) == child]
    for child in alive:
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
    while any(_lives(child) for child in alive):
        time.sleep(_POLL_S)


def _lives(known: Process) -> bool:
    """A process that nobody reaps is dead all the same."""
    try:
        status = psutil.Process(known.pid).status()
        return identity_of(known.pid) == known and status != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
