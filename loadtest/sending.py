"""Streams sent by generator processes, all from the same instant on."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from headrace.errors import SetupError
from loadtest.stream import NUMBER, READY, Records, Stream

__all__ = ["generator_command", "send"]

_KINDS = ("auto", "c", "python")
_HERE = Path(__file__).parent
_SOURCE = _HERE / "generator.c"
_PYTHON = (sys.executable, "-m", "loadtest.generator")
_LEAD_NS = 50_000_000
_WAITS_S = 60.0
"""For a generator, after everything should have been over."""


def generator_command(kind: str, built: Path) -> Sequence[str]:
    """The generator to use; ``auto``: the C one where a compiler is, built into the
    folder ``built``.

    Raises SetupError if it was asked for and cannot be built.
    """
    if kind not in _KINDS:
        raise SetupError(f"the generator must be one of {', '.join(_KINDS)}")
    compiler = shutil.which("cc")
    if kind == "python" or (kind == "auto" and compiler is None):
        return _PYTHON
    if compiler is None:
        raise SetupError("the generator in C needs a compiler named cc")
    source = _SOURCE.read_bytes()
    program = built.absolute() / f"generator-{hashlib.sha256(source).hexdigest()[:12]}"
    if not program.exists():
        built.mkdir(parents=True, exist_ok=True)
        fresh = program.with_suffix(".new")
        made = subprocess.run(
            [compiler, "-O2", "-o", fresh, _SOURCE],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise SetupError(f"{compiler} refused {_SOURCE}:\n{made.stderr}")
        fresh.replace(program)
    return (str(program),)


def send(
    command: Sequence[str],
    streams: Sequence[Stream],
    *,
    on_start: Callable[[int], None] = lambda _: None,
) -> list[Records]:
    """Send all streams, each by a process of its own, from the same instant on;
    ``on_start`` is told the instant before it comes."""
    with ExitStack() as stack:
        processes = [stack.enter_context(_started(command, each)) for each in streams]
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != READY:
                raise RuntimeError(f"{command[0]} ended with {process.wait()}")
        start_ns = time.monotonic_ns() + _LEAD_NS
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(NUMBER.pack(start_ns))
            process.stdin.flush()
        on_start(start_ns)
        return [
            Records.decode(process.communicate(timeout=_length_s(stream) + _WAITS_S)[0])
            for process, stream in zip(processes, streams, strict=True)
        ]


@contextmanager
def _started(
    command: Sequence[str], stream: Stream
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_HERE.parent
    )
    try:
        assert process.stdin is not None
        encoded = stream.encode()
        process.stdin.write(NUMBER.pack(len(encoded)) + encoded)
        process.stdin.flush()
        yield process
    finally:
        process.kill()
        process.wait()


def _length_s(stream: Stream) -> float:
    last = stream.arrivals_ns[-1] if stream.arrivals_ns else 0
    return (max(stream.send_ns, last) + stream.drain_ns) / 1e9
