"""What runs on this machine, written down for commands in other shells.

``<data>/up.json`` holds the ready document and every process. The supervisor holds a
lock on the file for as long as it lives, so a file without a lock is a leftover, and
the processes named in it are leftovers too. For those who ask what runs anywhere, a
file in a folder of the user's names ``<data>``. A file says nothing that others could
have written: it must be its reader's (root reads everybody's) and closed to other
writers, and what it names is signalled only if it runs for the file's owner, since when
the file says, and from a command line of ours.
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
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
    "Running",
    "StateFile",
    "all_running",
    "find_running",
    "identity_of",
]

DATA_FOLDER = Path(".headrace")
EPHEMERAL_PREFIX = "headrace-up-"
_NAME = "up.json"
_POLL_S = 0.05
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_COMMANDS = ("headrace", "services.", "kafka.Kafka")
"""One of these is in the command line of each process that we start."""


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
    started_in: str = ""
    """The working directory of ``up``, to which an ephemeral platform belongs."""
    models: str = ""
    """The model repository."""


class _Known(NamedTuple):
    state: _State
    owner: int
    """User id, of the file and so of every process in it."""


def identity_of(pid: int) -> Process | None:
    """None: no such process."""
    try:
        return Process(pid, int(psutil.Process(pid).create_time() * 1000))
    except (psutil.NoSuchProcess, OverflowError):
        return None


class StateFile:
    """The supervisor's side: held from the start of ``up`` to its end.

    Raises SetupError if another supervisor runs from this folder. What one that was
    killed left running is killed.
    """

    def __init__(self, data: Path, models: Path = Path()) -> None:
        self._path = data / _NAME
        self._models = models
        self._entry: Path | None = None
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._fd = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise SetupError(
                f"{self._path} cannot be written ({error.strerror}): choose another "
                f"folder with --data."
            ) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._fd)
            known = _read(self._path)
            who = f" (process {known.state.supervisor.pid})" if known else ""
            raise SetupError(
                f"Headrace already runs from {data}{who}: stop it with "
                f"`headrace down --data {data}`, or choose another folder with --data."
            ) from error
        leftover = _read(self._path)
        if leftover is not None:
            _kill_all(leftover)

    def write(self, document: Document, children: Sequence[int]) -> None:
        supervisor = identity_of(os.getpid())
        assert supervisor is not None
        known = [identity_of(pid) for pid in children]
        alive = [child for child in known if child]
        state = _State(supervisor, document, alive, str(Path.cwd()), str(self._models))
        content = msgspec.json.encode(state)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, content, 0)
        if self._entry is None:
            self._entry = _register(self._path.parent.absolute())

    def close(self) -> None:
        """Nothing runs any more."""
        if self._entry is not None:
            self._entry.unlink(missing_ok=True)
        self._path.unlink(missing_ok=True)
        os.close(self._fd)


class Running:
    """A supervisor that lives, as another shell sees it."""

    def __init__(self, data: Path, known: _Known) -> None:
        self.data = data
        self.document = known.state.document
        self.pid = known.state.supervisor.pid
        self.started_in = known.state.started_in
        self.models = Path(known.state.models)
        self._known = known

    def stop(self, timeout_s: float) -> bool:
        """Ask it to drain and wait for its end; False: it still runs."""
        supervisor, owner = self._known.state.supervisor, self._known.owner
        _signal(supervisor, owner, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        while _lives(supervisor, owner):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True


def find_running(data: Path | None) -> Running | None:
    """The supervisor that runs from ``data``; without a folder: from the default one,
    or else the only ephemeral one that was started in this directory.

    Raises SetupError where several were.
    """
    if data is not None:
        return _running_in(data)
    found = _running_in(DATA_FOLDER)
    if found is not None:
        return found
    here = str(Path.cwd())
    ours = [
        running
        for folder in _ephemeral_folders()
        if (running := _running_in(folder)) and running.started_in == here
    ]
    if len(ours) > 1:
        raise SetupError(
            f"Several ephemeral platforms were started here: name one with --data "
            f"({', '.join(str(running.data) for running in ours)})."
        )
    return ours[0] if ours else None


def all_running() -> list[Running]:
    """This user's platforms on this machine, wherever they were started, and the
    ephemeral ones that it may read of others."""
    folders = sorted({DATA_FOLDER.absolute(), *_registered(), *_ephemeral_folders()})
    return [running for folder in folders if (running := _running_in(folder))]


def _ephemeral_folders() -> list[Path]:
    return sorted(Path(tempfile.gettempdir()).glob(f"{EPHEMERAL_PREFIX}*"))


def _registry() -> Path:
    """A folder with a file for each data folder from which something runs."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "headrace"
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "headrace" / "running"


def _register(data: Path) -> Path | None:
    """None: the file cannot be written, and others will not see the platform."""
    named = os.fsencode(data)
    try:
        folder = _registry()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        entry = folder / sha256(named).hexdigest()[:16]
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(entry, flags, 0o600), "wb") as file:
            file.write(named)
    except (OSError, RuntimeError):  # the latter: the user has no home
        return None
    return entry


def _registered() -> list[Path]:
    try:
        entries = list(_registry().iterdir())
    except (OSError, RuntimeError):
        return []
    found = []
    for entry in entries:
        trusted = _trusted(entry)
        if trusted is None:
            continue
        data = Path(os.fsdecode(trusted[0]))
        if (data / _NAME).exists():
            found.append(data)
        else:  # its supervisor was killed, and its folder is gone
            entry.unlink(missing_ok=True)
    return found


def _running_in(data: Path) -> Running | None:
    known = _read(data / _NAME)
    if known is None or not _lives(known.state.supervisor, known.owner):
        return None
    return Running(data, known)


def _read(path: Path) -> _Known | None:
    """None: no file, one from another version of Headrace, or one not to be trusted."""
    trusted = _trusted(path)
    if trusted is None:
        return None
    content, owner = trusted
    try:
        return _Known(msgspec.json.decode(content, type=_State), owner)
    except msgspec.DecodeError:
        return None


def _trusted(path: Path) -> tuple[bytes, int] | None:
    """Content and owner of a file of ours that nobody else could have written."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            facts = os.fstat(fd)
            is_ours = os.geteuid() in {0, facts.st_uid}
            if not is_ours or facts.st_mode & _OTHERS_WRITE:
                return None
            return file.read(), facts.st_uid
    except (OSError, ValueError):  # the latter: a path that holds a zero byte
        return None


def _kill_all(leftover: _Known) -> None:
    children, owner = leftover.state.children, leftover.owner
    for child in children:
        _signal(child, owner, signal.SIGKILL)
    while any(_lives(child, owner) for child in children):
        time.sleep(_POLL_S)


def _signal(known: Process, owner: int, number: signal.Signals) -> None:
    """To that process and no other, however soon its number is used again."""
    with suppress(OSError):
        fd = os.pidfd_open(known.pid)
        try:
            if _lives(known, owner):
                signal.pidfd_send_signal(fd, number)
        finally:
            os.close(fd)


def _lives(known: Process, owner: int) -> bool:
    """A process that nobody reaps is dead all the same."""
    try:
        process = psutil.Process(known.pid)
        return (
            identity_of(known.pid) == known
            and process.status() != psutil.STATUS_ZOMBIE
            and process.uids().real == owner
            and any(ours in " ".join(process.cmdline()) for ours in _COMMANDS)
        )
    except (psutil.Error, OverflowError):
        return False
