"""Files wherever fsspec reaches: found, read, and replaced as a whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryFile
from typing import IO, Any, Final

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from headrace.errors import RequestError
from headrace.wire.jobs import InputFile

__all__ = [
    "Replacing",
    "beside",
    "check_may_write",
    "find",
    "local_path",
    "reachable",
    "read",
    "remove",
    "suffixes",
]

_PACKED = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
_CHANGED = ("mtime", "LastModified", "last_modified", "ETag", "etag", "updated")
_CHAIN: Final = "::"
_TOLD_MAX: Final = 300
_SYSTEMS_KEPT: Final = 64


def suffixes(url: str) -> tuple[str, str]:
    """The format's suffix in lower case, and that of a packed file (or empty)."""
    names = [each.partition("?")[0] for each in url.lower().split(_CHAIN)]
    name = PurePosixPath(names[_names_file(url)])
    packed = name.suffix if name.suffix in _PACKED else ""
    return (PurePosixPath(name.stem).suffix if packed else name.suffix), packed


def beside(url: str) -> str:
    """Where a file is written before it takes its place."""
    return _with_name(url, lambda name: f"{name}.part")


def local_path(url: str) -> Path | None:
    """None: it is not a file of this machine.

    Raises :class:`headrace.errors.RequestError`.
    """
    with reachable(url):
        system, path = _reached(url)
    return Path(path) if isinstance(system, LocalFileSystem) else None


def find(patterns: Iterable[str]) -> list[InputFile]:
    """The files of these addresses, those of a pattern in order of their names.

    Raises :class:`headrace.errors.RequestError`.
    """
    found: list[InputFile] = []
    for pattern in patterns:
        with reachable(pattern):
            found += _found(pattern)
    return found


def _found(pattern: str) -> list[InputFile]:
    system, path = _reached(pattern)
    try:
        # A name may have the marks of a pattern, as a signed address has.
        facts = system.info(path)
    except FileNotFoundError as error:
        matching: dict[str, dict[str, Any]] = {}
        if any(mark in path for mark in "*?["):
            matching = system.glob(path, detail=True)
        files = [
            _described(pattern, each, system.info(each))
            for each in sorted(matching)
            if matching[each].get("type") != "directory"
        ]
        if not files:
            why = f": {_told(error.__cause__)}" if error.__cause__ else ""
            raise RequestError(f"there is no file {pattern}{why}") from error
        return files
    if facts.get("type") == "directory":
        raise RequestError(
            f"{pattern} is a folder: name its files, as in "
            f"{pattern.rstrip('/')}/*.parquet"
        )
    return [_described(pattern, path, facts)]


def read(url: str) -> IO[bytes]:
    """A file opened to be read; a packed one is unpacked on the way.

    Raises :class:`headrace.errors.RequestError`.
    """
    with reachable(url):
        system, path = _reached(url)
        packed = _PACKED.get(suffixes(url)[1])
        opened: IO[bytes] = system.open(path, "rb", compression=packed)
        return opened


def check_may_write(url: str) -> None:
    """Whether a file can be written and put at ``url``, as far as can be known without
    doing it.

    Raises :class:`headrace.errors.RequestError`.
    """
    with reachable(url):
        system, path = _reached(url)
        if isinstance(system, MemoryFileSystem):
            raise RequestError(f"{url} would be gone with the process that writes it")
        if isinstance(system, LocalFileSystem):
            _check_local(url, Path(path))
            return
        probe = f"{path}.probe"
        with system.open(probe, "wb") as file:
            file.write(b"probe")
        system.rm(probe)


def _check_local(url: str, path: Path) -> None:
    folder = path.parent
    if not folder.is_dir():
        raise RequestError(f"the folder {folder} does not exist")
    try:
        # /proc and a full disk let anybody write, by their modes.
        with TemporaryFile(dir=folder) as probe:
            probe.write(b"probe")
    except OSError as error:
        raise RequestError(
            f"the folder {folder} cannot be written to ({error.strerror}): choose "
            "another --output"
        ) from error
    if path.is_dir():
        raise RequestError(f"--output {path} is a folder: name a file in it")
    if os.path.lexists(path) and not path.is_file():
        raise RequestError(f"{url} is no regular file")


class Replacing:
    """A file that is written beside its place and put there when it is whole, so that
    whoever looks finds either nothing or all; its folder must exist. Raises as
    :func:`read`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_put = False
        with reachable(url):
            self._system, self._path = _reached(url)
            self._beside = f"{self._path}.part"
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
            # Whether all of it could be written does not matter any more.
            with suppress(OSError):
                self.file.close()
            if self._system.exists(self._beside):
                self._system.rm(self._beside)


def remove(url: str) -> None:
    """Where there is one. Raises as :func:`read`."""
    with reachable(url):
        system, path = _reached(url)
        if system.exists(path):
            system.rm(path)


@contextmanager
def reachable(url: str) -> Iterator[None]:
    """Raises :class:`headrace.errors.RequestError` for what a store says of ``url``."""
    try:
        yield
    except RequestError:
        raise
    except NotImplementedError as error:
        raise RequestError(f"{url} cannot be used: it can only be read") from error
    except Exception as error:
        # A store's client raises what it likes, and takes many lines to say it.
        raise RequestError(f"{url} cannot be used: {_told(error)}") from error


@lru_cache(maxsize=_SYSTEMS_KEPT)
def _reached(url: str) -> tuple[AbstractFileSystem, str]:
    """Kept, since some close their files when they are collected."""
    system, path = url_to_fs(url)
    return system, str(path)


def _described(pattern: str, path: str, facts: dict[str, Any]) -> InputFile:
    changed = next((str(facts[name]) for name in _CHANGED if name in facts), "")
    url = _with_name(pattern, lambda _: path)
    return InputFile(url, int(facts.get("size") or 0), changed)


def _names_file(url: str) -> int:
    """Which link of a chain has the file's name: ``simplecache::zip://NAME::STORE``."""
    links = url.split(_CHAIN)
    return next((at for at, link in enumerate(links) if "://" in link), len(links) - 1)


def _with_name(url: str, change: Callable[[str], str]) -> str:
    """The address of another file of the same store; ``change`` gets its name, and
    may give the path that the store has it under."""
    links = url.split(_CHAIN)
    at = _names_file(url)
    protocol, mark, name = links[at].rpartition("://")
    changed = change(name)
    links[at] = changed if "://" in changed else f"{protocol}{mark}{changed}"
    return _CHAIN.join(links)


def _told(error: BaseException | None) -> str:
    """Its first line, which may be long."""
    text = str(error) or type(error).__name__
    return text.splitlines()[0][:_TOLD_MAX]
