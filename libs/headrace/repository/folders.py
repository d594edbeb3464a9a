"""The model repository's folder in Triton's layout: ``<model>/<version>/<files>``.

Reads names, sizes and times of files, and nothing that lies outside the folder: what
a symbolic link out of a version folder points to is never opened.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headrace.errors import ModelRefused, RequestError, SetupError
from headrace.wire.topics import checked_name

__all__ = [
    "FileFacts",
    "Fingerprint",
    "VersionKey",
    "bare_models",
    "content_sha256",
    "scan_folder",
    "version_folder",
]

VERSION_PATTERN = re.compile(r"[1-9][0-9]{0,17}")
"""A version is a number from 1, of so many digits that it fits 64 bits, in its one
spelling: 1 and 01 would be two versions of one rank."""

FILES_MAX = 1024
"""A version folder with more files is refused."""

_CHUNK_BYTES = 1 << 20


class VersionKey(NamedTuple):
    model: str
    version: str

    def __str__(self) -> str:
        return f"{self.model}/{self.version}"


class FileFacts(NamedTuple):
    path: str
    """Relative to the version folder."""

    size: int
    modified_ns: int
    inode: int


class Fingerprint(NamedTuple):
    """What tells two states of a version folder apart without reading its files."""

    files: tuple[FileFacts, ...]
    problem: str
    """Why the folder may not be read; empty: it may."""


def version_folder(root: Path, key: VersionKey) -> Path:
    return root / key.model / key.version


def scan_folder(root: Path) -> dict[VersionKey, Fingerprint]:
    """Every version folder below ``root`` as it is now. One whose name, or whose
    model's, cannot be served has that for its problem.

    Raises :class:`headrace.errors.SetupError` when ``root`` cannot be listed, so
    that an unmounted repository does not look like one without models.
    """
    versions: dict[VersionKey, Fingerprint] = {}
    try:
        models = _folders(root)
    except OSError as error:
        raise SetupError(
            f"the model repository cannot be read: {error.strerror}; create the "
            "folder or name another one"
        ) from error
    for model in models:
        try:
            children = _folders(Path(model))
        except OSError:
            continue  # removed while we looked
        for child in children:
            key = VersionKey(_shown(model.name), _shown(child.name))
            problem = _name_problem(model.name, child.name)
            if problem:
                versions[key] = Fingerprint((), problem)
                continue
            links = model.is_symlink() or child.is_symlink()
            versions[key] = _fingerprint(Path(child), is_link=links)
    return versions


def bare_models(root: Path) -> list[str]:
    """Names of the model folders without any version folder, of which no scan tells.
    None where ``root`` cannot be listed."""
    try:
        return [
            _shown(model.name) for model in _folders(root) if not _folders(Path(model))
        ]
    except OSError:
        return []  # a scan says why


def _name_problem(model: str, version: str) -> str:
    try:
        checked_name("model", model)
    except RequestError as error:
        return str(error)
    if VERSION_PATTERN.fullmatch(version):
        return ""
    return (
        f"version name {version[:120]!r} of model {model!r} is not allowed: it must be "
        "a number from 1 without leading zeros, of at most 18 digits"
    )


def _shown(name: str) -> str:
    """Bytes that are no UTF-8 stand in a name as halves of surrogate pairs."""
    return name.encode(errors="replace").decode()


def content_sha256(root: Path, key: VersionKey, fingerprint: Fingerprint) -> str:
    """Of names and contents of the version folder's files, as hexadecimal digits.

    Raises :class:`headrace.errors.ModelRefused` when a file is not there any more.
    """
    folder = version_folder(root, key)
    digest = hashlib.sha256()
    try:
        for facts in fingerprint.files:
            digest.update(f"{facts.path}\0{facts.size}\0".encode())
            with (folder / facts.path).open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
    except OSError as error:
        raise ModelRefused(
            f"a file of the version folder cannot be read: {error.strerror}"
        ) from error
    return digest.hexdigest()


def _folders(path: Path) -> list[os.DirEntry[str]]:
    """Sub-folders, links to folders among them; hidden ones are an editor's or a
    mount's business."""
    with os.scandir(path) as entries:
        found = [
            entry
            for entry in entries
            if not entry.name.startswith(".")
            and (entry.is_symlink() or entry.is_dir(follow_symlinks=False))
        ]
    return sorted(found, key=lambda entry: entry.name)


def _fingerprint(folder: Path, *, is_link: bool) -> Fingerprint:
    if is_link:
        return Fingerprint((), "the version folder is a symbolic link; put a folder")
    files: list[FileFacts] = []
    try:
        for path in _walk(folder):
            name = str(path.relative_to(folder))
            if not _is_utf8(name):
                return Fingerprint((), f"the file name {name!r} is not UTF-8")
            facts = path.stat()
            if not stat.S_ISREG(facts.st_mode):
                return Fingerprint((), f"{path.name!r} is not a regular file")
            files.append(
                FileFacts(
                    name,
                    facts.st_size,
                    facts.st_mtime_ns,
                    facts.st_ino,
                )
            )
            if len(files) > FILES_MAX:
                return Fingerprint((), f"it holds more than {FILES_MAX} files")
    except ModelRefused as error:
        return Fingerprint((), str(error))
    except OSError as error:
        return Fingerprint(tuple(files), f"it cannot be read: {error.strerror}")
    return Fingerprint(tuple(sorted(files)), "")


def _walk(folder: Path) -> Iterator[Path]:
    inside = os.path.realpath(folder)
    for place, folders, names in os.walk(folder, onerror=_raise):
        for name in [*folders, *names]:
            path = Path(place, name)
            if not path.is_symlink():
                continue
            # Path.resolve() raises RuntimeError for a link to itself.
            if name in folders or not Path(os.path.realpath(path)).is_relative_to(
                inside
            ):
                raise ModelRefused(
                    f"{name!r} is a symbolic link out of the version folder or to a "
                    "folder; put the files themselves"
                )
        yield from (Path(place, name) for name in names)


def _is_utf8(name: str) -> bool:
    """A byte of a name that is no UTF-8 stands in it as half a surrogate pair."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _raise(error: OSError) -> None:
    raise error
