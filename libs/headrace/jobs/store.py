"""Files wherever fsspec reaches: found, read, and replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

import fsspec
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from headrace.errors import RequestError
from headrace.wire.jobs import InputFile

__all__ = [
    "Replacing",
    "beside",
    "find",
    "local_path",
    "reachable",
    "read",
    "remove",
    "suffixes",
]

_PACKED = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
_CHANGED = ("mtime", "LastModified", "last_modified", "ETag", "etag", "updated")


def suffixes(url: str) -> tuple[str, str]:
    """The format's suffix in lower case, and that of a packed file (or empty)."""
    name = PurePosixPath(url.partition("?")[0].lower())
    packed = name.suffix if name.suffix in _PACKED else ""
    return (PurePosixPath(name.stem).suffix if packed else name.suffix), packed


def beside(url: str) -> str:
    """Where a file is written before it takes its place."""
    return f"{url}.part"


def local_path(url: str) -> Path | None:
    """None: it is not a file of this machine.

    Raises :class:`headrace.errors.RequestError`.
    """
    with reachable(url):
        system, path = url_to_fs(url)
    return Path(path) if isinstance(system, LocalFileSystem) else None


def find(patterns: Iterable[str]) -> list[InputFile]:
    """The files of these addresses, those of a pattern in order of their names.

    Raises :class:`headrace.errors.RequestError`.
    """
    found: list[InputFile] = []
    for pattern in patterns:
        with reachable(pattern):
            system, path = url_to_fs(pattern)
            paths = sorted(system.glob(path)) if any(c in path for c in "*?[") else None
            if paths == [] or (paths is None and not system.isfile(path)):
                raise RequestError(f"there is no file {pattern}")
            found += [_described(system, each) for each in paths or [path]]
    return found


def read(url: str) -> IO[bytes]:
    """A file opened to be read; a packed one is unpacked on the way.

    Raises :class:`headrace.errors.RequestError`.
    """
    with reachable(url):
        system, path = url_to_fs(url)
        packed = _PACKED.get(suffixes(url)[1])
        opened: IO[bytes] = system.open(path, "rb", compression=packed)
        return opened


class Replacing:
    """A file that is written beside its place and put there when it is whole, so that
    whoever looks finds either nothing or all; its folder must exist. Raises as
    :func:`read`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_put = False
        with reachable(url):
            self._system, self._path = url_to_fs(url)
            self._beside = beside(self._path)
            self.file: IO[bytes] = self._system.open(self._beside, "wb")

    def put(self) -> None:
        with reachable(self._url):
            self.file.close()
            self._system.mv(self._beside, self._path)
        self._is_put = True

    def drop(self) -> None:
        """Without effect once it was put."""
        if self._is_put:
            return
        with reachable(self._url):
            self.file.close()
            if self._system.exists(self._beside):
                self._system.rm(self._beside)


def remove(url: str) -> None:
    """Where there is one. Raises as :func:`read`."""
    with reachable(url):
        system, path = url_to_fs(url)
        if system.exists(path):
            system.rm(path)


@contextmanager
def reachable(url: str) -> Iterator[None]:
    """Raises :class:`headrace.errors.RequestError` for what a store says of ``url``."""
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        raise RequestError(f"{url} cannot be used: {error}") from error


def _described(system: fsspec.AbstractFileSystem, path: str) -> InputFile:
    facts: dict[str, Any] = system.info(path)
    changed = next((str(facts[name]) for name in _CHANGED if name in facts), "")
    return InputFile(system.unstrip_protocol(path), int(facts["size"] or 0), changed)
