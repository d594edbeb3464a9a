"""What figures are held against, measured in the same run: the accelerator without a
platform, and an HTTP server that does nothing."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from headrace.domain import Manifest
from headrace.errors import SetupError
from loadtest import processes
from loadtest.sending import send
from loadtest.stream import Prepared, Stream

__all__ = ["Bare", "Floor", "measure_bare", "measure_floor", "running_floor"]

_ROOT = Path(__file__).parent.parent
_ENDS_WITHIN_S = 30.0
_LISTENS_WITHIN_S = 20.0
_FLOOR_CONNECTIONS = 64
_FLOOR_BODY = bytes(386)
"""As long as a request with 64 floats is."""


class Bare:
    """The accelerator in a process of its own; it gets ready when entered."""

    def __init__(self, manifest: Manifest, seconds: float) -> None:
        self._manifest = manifest
        self._seconds = seconds

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            (sys.executable, "-m", "loadtest.bare", str(self._seconds)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            text=True,
        )
        self._tell(self._manifest.model_dump_json())
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError(f"loadtest.bare ended with {self._process.wait()}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()

    def begin(self) -> None:
        self._tell("")

    def rate(self) -> float:
        """Rows per second; waits for the end."""
        output, _ = self._process.communicate(timeout=self._seconds + _ENDS_WITHIN_S)
        return float(output)

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()


class Floor(NamedTuple):
    """A raw ASGI app on uvicorn, one process."""

    per_second: float
    us: float
    """Processor time of one request."""


def measure_bare(manifest: Manifest, seconds: float) -> float:
    """Rows per second of the accelerator alone."""
    with Bare(manifest, seconds) as bare:
        bare.begin()
        return bare.rate()


def measure_floor(command: Sequence[str], seconds: float) -> Floor:
    """Asked in a closed loop by the generator ``command``."""
    request = Prepared(
        b"POST /v2/models/x/infer HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        b"content-length: %d\r\n\r\n" % len(_FLOOR_BODY) + _FLOOR_BODY
    )
    second_ns = 1_000_000_000
    with running_floor() as (address, pid):
        stream = Stream(
            [address],
            [request],
            connections=_FLOOR_CONNECTIONS,
            opened=0,
            send_ns=round(seconds * second_ns),
            drain_ns=second_ns,
        )
        before_ns = processes.cpu_ns(pid)
        (records,) = send(command, [stream])
        used_ns = processes.cpu_ns(pid) - before_ns
    count = len(records.outcome)
    return Floor(count / seconds, used_ns / 1e3 / count)


@contextmanager
def running_floor() -> Iterator[tuple[tuple[str, int], int]]:
    """The raw ASGI app's address and process id."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen(
        (sys.executable, "-m", "loadtest.floor", str(port)), cwd=_ROOT
    )
    try:
        _await_listener(port)
        yield ("127.0.0.1", port), server.pid
    finally:
        server.terminate()
        server.wait()


def _await_listener(port: int) -> None:
    deadline = time.monotonic() + _LISTENS_WITHIN_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except ConnectionRefusedError as error:
            if time.monotonic() > deadline:
                raise SetupError("loadtest.floor does not listen") from error
            time.sleep(0.05)
        else:
            return
