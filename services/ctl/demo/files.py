"""Files of this machine for a file-type model, with the type that their names tell."""

from __future__ import annotations

import json
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["features", "labels", "typed_files"]

_BLOCK = 4096
_HALF = 1024
_PADDING = 256
_SMALLEST = 64
_PER_TYPE = 20

# Suffixes whose files are what the suffix says.
_TYPE_OF = {
    ".c": "c",
    ".css": "css",
    ".csv": "csv",
    ".exe": "pebin",
    ".gz": "gzip",
    ".h": "c",
    ".html": "html",
    ".json": "json",
    ".npz": "npz",
    ".onnx": "onnx",
    ".png": "png",
    ".proto": "proto",
    ".py": "python",
    ".pyc": "pythonbytecode",
    ".rst": "rst",
    ".so": "elf",
    ".whl": "zip",
}


def typed_files() -> list[tuple[Path, str]]:
    """Files of Python and of the installed packages, at most 20 of each type."""
    taken: Counter[str] = Counter()
    found = []
    for file in _files():
        kind = _TYPE_OF.get(file.suffix)
        if kind is None or taken[kind] == _PER_TYPE:
            continue
        if file.is_file() and file.stat().st_size >= _SMALLEST:
            taken[kind] += 1
            found.append((file, kind))
    return found


def _files() -> Iterator[Path]:
    for name in ("stdlib", "purelib"):
        yield from sorted(Path(sysconfig.get_path(name)).rglob("*"))


def features(file: Path) -> npt.NDArray[np.int32]:
    """The model's input [1, 2048]: the first and the last 1,024 bytes, white space
    at the ends left out, padded towards the middle."""
    size = file.stat().st_size
    with file.open("rb") as content:
        head = content.read(_BLOCK).lstrip()[:_HALF]
        content.seek(max(0, size - _BLOCK))
        tail = content.read(_BLOCK).rstrip()[-_HALF:]
    values = np.full((1, 2 * _HALF), _PADDING, np.int32)
    values[0, : len(head)] = np.frombuffer(head, np.uint8)
    values[0, 2 * _HALF - len(tail) :] = np.frombuffer(tail, np.uint8)
    return values


def labels(config: Path) -> list[str]:
    """What the model's outputs stand for."""
    return list(json.loads(config.read_bytes())["target_labels_space"])
