"""Streams sent by generator processes, all from the same instant on."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headrace.errors import SetupError
from loadtest.stream import Records, Stream

__all__ = ["generator_command", "send"]

_KINDS = ("auto", "c", "python")
_HERE = Path(__file__).parent
_SOURCE = _HERE / "generator.c"
_PYTHON = (sys.executable, "-m", "loadtest.generator")
_WAITS_S = 60.0
"""For a generator, after everything should have been over."""


def generator_command(kind: str, built: Path) -> tuple[str, Sequence[str]]:
    """The generator to use and its command; ``auto``: the C one where a compiler is,
    built into the folder ``built``.

    Raises SetupError if it was asked for and cannot be built.
    """
    if kind not in _KINDS:
        raise SetupError(f"the generator must be one of {', '.join(_KINDS)}")
    compiler = shutil.which("cc")
    if kind == "python" or (kind == "auto" and compiler is None):
        return "python", _PYTHON
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
    return "c", (str(program),)


def send(command: Sequence[str], streams: Sequence[Stream]) -> list[Records]:
    """Send all streams, each by a process of its own; returns when all have ended."""
    with ThreadPoolExecutor(len(streams)) as pool:
        return list(pool.map(lambda stream: _send(command, stream), streams))


def _send(command: Sequence[str], stream: Stream) -> Records:
    last = stream.arrivals_ns[-1] if stream.arrivals_ns else 0
    length_s = (max(stream.send_ns, last) + stream.drain_ns) / 1e9
    done = subprocess.run(
        command,
        input=stream.encode(),
        stdout=subprocess.PIPE,
        cwd=_HERE.parent,
        timeout=length_s + _WAITS_S,
        check=True,
    )
    return Records.decode(done.stdout)
