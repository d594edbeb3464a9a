"""A virtual environment for each tool that the project must not depend on, made by the
project's own uv from pinned and hashed requirements."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from headrace.errors import SetupError

__all__ = ["REQUIREMENTS", "environment", "locked"]

_ROOT = Path(__file__).parents[2]
_UV = _ROOT / ".uv/bin/uv"
_HOMES = _ROOT / ".headrace/peers"
REQUIREMENTS = Path(__file__).parent / "requirements"
_LAST_LINES = 8


def environment(name: str) -> Path:
    """The environment of ``requirements/<name>.txt``, made if it is not as that says.

    Raises SetupError with uv's last words.
    """
    wanted = REQUIREMENTS / f"{name}.txt"
    home = _HOMES / name
    ready = home / ".ready"
    if ready.exists() and ready.read_bytes() == wanted.read_bytes():
        return home
    python = home / "bin/python"
    if not python.exists():
        _run(name, ("venv", "--no-python-downloads", "--python", sys.executable, home))
    _run(name, ("pip", "sync", "--python", python, "--require-hashes", wanted))
    ready.write_bytes(wanted.read_bytes())
    return home


def locked(name: str) -> Path:
    """Resolve ``requirements/<name>.in`` anew; returns the path of what came out."""
    source, found = REQUIREMENTS / f"{name}.in", REQUIREMENTS / f"{name}.txt"
    # pyproject.toml's overrides are about the project's own packages.
    options = (
        *("--no-config", "--universal", "--python-version", "3.11"),
        *("--generate-hashes", "--no-emit-index-url", "--no-emit-find-links"),
        *("--no-annotate", "--custom-compile-command", "make lock-peers"),
    )
    _run(name, ("pip", "compile", *options, "--output-file", found, source))
    return found


def _run(name: str, arguments: Sequence[str | Path]) -> None:
    if not _UV.exists():
        raise SetupError(f"{_UV} is missing: run `make setup`")
    done = subprocess.run(
        (_UV, *arguments, "--quiet"), capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-_LAST_LINES:]
        raise SetupError("\n".join([f"uv {arguments[0]} for {name} failed:", *last]))
