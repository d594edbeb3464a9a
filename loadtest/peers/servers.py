"""Peers started and stopped."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path

import numpy as np

from headrace.embedded import TiedProcess
from headrace.errors import SetupError
from loadtest.peers.forms import Form, Response, Row
from loadtest.peers.peer import Peer, Place

__all__ = ["Probe", "Server", "free_port", "own_folder", "started", "understood"]

_MARK = "HEADRACE_PEER_ID"
_READY_WITHIN_S = 90.0
_ANSWERS_WITHIN_S = 5.0
_STOPS_WITHIN_S = 8.0
_LAST_LINES = 12
_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs and has been asked."""

    address: tuple[str, int]
    pids: Callable[[], Sequence[int]]
    """Of all its processes."""
    worker: Callable[[], int]
    """The process that holds the model."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A row, and the outputs that are right for it."""

    row: Row
    outputs: Row


@contextmanager
def started(
    peer: Peer, place: Place, model: Path, probe: Probe, log: Path
) -> Iterator[Server]:
    """A peer that has answered ``probe`` rightly; all its processes are gone
    afterwards.

    Raises SetupError with the end of its log.
    """
    mark = uuid.uuid4().hex
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "OMP_NUM_THREADS": "1",
        "HEADRACE_PEER_SCENARIO": place.scenario,
        "HEADRACE_PEER_PORT": str(place.port),
        "HEADRACE_PEER_FOLDER": str(place.folder),
        "HEADRACE_PEER_MODEL": str(model),
        **peer.environment(place),
        _MARK: mark,
    }
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as lines:
        process = TiedProcess(
            peer.command(place), output=lines, environment=environment
        )
    address = "127.0.0.1", place.port
    try:
        _await(address, peer.form, probe, process, log)
        yield Server(
            address,
            lambda: _marked(mark),
            lambda: int((place.folder / "worker.pid").read_text("ascii")),
        )
    finally:
        process.stop(_STOPS_WITHIN_S)
        _kill_all(mark)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def understood(address: tuple[str, int], form: Form, probe: Probe) -> str | None:
    """Ask once: None if the answer is right, else what was wrong with it.

    Raises OSError or HTTPException if there is none.
    """
    with socket.create_connection(address, _ANSWERS_WITHIN_S) as connection:
        connection.sendall(form.request(probe.row))
        answer = HTTPResponse(connection)
        answer.begin()
        body = answer.read()
    if answer.status != 200:
        return f"status {answer.status}: {body[:300].decode(errors='replace')}"
    headers = {name.lower(): value for name, value in answer.getheaders()}
    found = form.values(Response(headers, body))
    if found.shape == probe.outputs.shape and np.allclose(
        found, probe.outputs, atol=_TOLERANCE
    ):
        return None
    return f"a wrong answer: {found[:4]}, right is {probe.outputs[:4]}"


def _await(
    address: tuple[str, int], form: Form, probe: Probe, process: TiedProcess, log: Path
) -> None:
    deadline = time.monotonic() + _READY_WITHIN_S
    fault: str | None = "no answer"
    while fault is not None:
        try:
            fault = understood(address, form, probe)
        except (OSError, HTTPException) as error:
            fault = f"{type(error).__name__} {error}"
        if fault is None:
            return
        ended = process.returncode
        if ended is not None or time.monotonic() > deadline:
            how = "does not answer rightly" if ended is None else f"ended with {ended}"
            last = log.read_text("utf-8", "replace").splitlines()[-_LAST_LINES:]
            raise SetupError("\n".join([f"it {how} ({fault})", *last]))
        time.sleep(0.2)


def _marked(mark: str) -> list[int]:
    """Processes with this mark in the environment they were started with."""
    wanted = f"{_MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


def _kill_all(mark: str) -> None:
    for pid in _marked(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def own_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="headrace-peer-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
