"""Files as clients know them, wherever fsspec reaches.

``<url>/<tenant>/<id>`` holds a file's bytes, ``<id>.json`` beside it what is known of
it. A file is there once that is: what an upload or a runner left unfinished is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, Final

import msgspec

from headrace.clock import wall_us
from headrace.payloads import asked_of, reach_store
from services.ingress.batches.objects import StoredFile

__all__ = ["FileStore", "Writing", "is_file_id", "new_file_id", "of_batch"]

_ID: Final = re.compile(r"file-[0-9a-f]{32}(-output|-errors)?")
_DESCRIBED: Final = ".json"
_STORE: Final = "the store of files"
_UNFINISHED_S: Final = 8 * 86_400
"""What was begun so long ago is not written any more: a batch has 7 days."""

_decode = msgspec.json.Decoder(StoredFile).decode


def new_file_id(request_id: str) -> str:
    return f"file-{request_id}"


def of_batch(batch: str, which: str) -> str:
    """The id of the ``output`` or the ``errors`` of a batch."""
    return f"file-{batch.removeprefix('batch_')}-{which}"


def is_file_id(given: str) -> bool:
    """Ids sort by the time at which they were made."""
    return _ID.fullmatch(given) is not None


class FileStore:
    """Its methods block for as long as the store takes; any thread may call. Ids are
    checked before (:func:`is_file_id`).

    Raises as :func:`headrace.payloads.reach_store`; its methods raise
    :class:`headrace.errors.StoreUnavailable`.
    """

    def __init__(self, url: str) -> None:
        self._system, self._root = reach_store(
            url, "HEADRACE_FILES__URL", "file:///mnt/files"
        )

    def url_of(self, tenant: str, file_id: str) -> str:
        """Where its bytes are."""
        return str(self._system.unstrip_protocol(self._path(tenant, file_id)))

    def begin(self, tenant: str, file_id: str) -> Writing:
        """A file in place of whatever was left unfinished under its id."""
        with asked_of(_STORE, "write", file_id):
            path = self._path(tenant, file_id)
            self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
            return Writing(self, tenant, file_id, self._system.open(path, "wb"))

    def open(self, tenant: str, file_id: str) -> IO[bytes]:
        with asked_of(_STORE, "read", file_id):
            opened: IO[bytes] = self._system.open(self._path(tenant, file_id), "rb")
            return opened

    def describe(self, tenant: str, file_id: str) -> StoredFile | None:
        """None: there is no such file."""
        with asked_of(_STORE, "read", file_id):
            try:
                return _decode(self._system.cat_file(self._described(tenant, file_id)))
            except FileNotFoundError:
                return None

    def find(self, tenant: str, file_id: str) -> StoredFile | None:
        """None: there is no such file any more, though its bytes may still be there."""
        file = self.describe(tenant, file_id)
        return None if file is None or file.is_over(_now_s()) else file

    def page(
        self, tenant: str, purpose: str, after: str, limit: int, *, newest_first: bool
    ) -> tuple[list[StoredFile], bool]:
        """At most ``limit`` files behind ``after``, or from the first one on; whether
        there are more. Empty strings: any."""
        ids = sorted(
            (
                name.removesuffix(_DESCRIBED)
                for name in self._names(tenant)
                if name.endswith(_DESCRIBED)
            ),
            reverse=newest_first,
        )
        found: list[StoredFile] = []
        for file_id in ids:
            if after and (file_id >= after if newest_first else file_id <= after):
                continue
            file = self.find(tenant, file_id)
            if file is None or (purpose and file.purpose != purpose):
                continue
            if len(found) == limit:
                return found, True
            found.append(file)
        return found, False

    def keep(self, tenant: str, file: StoredFile) -> None:
        """From now on the file is there."""
        with asked_of(_STORE, "write", file.id):
            path = self._described(tenant, file.id)
            self._system.pipe_file(path, msgspec.json.encode(file))

    def delete(self, tenant: str, file_id: str) -> bool:
        """False: there was no such file."""
        with asked_of(_STORE, "delete", file_id):
            try:
                self._system.rm_file(self._described(tenant, file_id))
            except FileNotFoundError:
                return False
            self.drop(tenant, file_id)
            return True

    def over(self) -> Iterator[tuple[str, str]]:
        """Tenants and files: what has expired, and what nobody will finish."""
        now_s = _now_s()
        for tenant in self._names():
            names = set(self._names(tenant))
            ids = {name.removesuffix(_DESCRIBED) for name in names}
            for file_id in filter(is_file_id, sorted(ids)):
                if file_id + _DESCRIBED not in names:
                    is_over = _made_s(file_id) + _UNFINISHED_S <= now_s
                else:
                    file = self.describe(tenant, file_id)
                    is_over = file is not None and file.is_over(now_s)
                if is_over:
                    yield tenant, file_id

    def drop(self, tenant: str, file_id: str) -> None:
        """The bytes of a file that is not there."""
        with asked_of(_STORE, "delete", file_id):
            path = self._path(tenant, file_id)
            if self._system.exists(path):
                self._system.rm_file(path)

    def _names(self, *tenant: str) -> list[str]:
        with asked_of(_STORE, "list", "".join(tenant)):
            try:
                paths = self._system.ls("/".join((self._root, *tenant)), detail=False)
            except FileNotFoundError:
                return []
        return [str(path).rstrip("/").rpartition("/")[2] for path in paths]

    def _path(self, tenant: str, file_id: str) -> str:
        assert is_file_id(file_id), file_id
        return f"{self._root}/{tenant}/{file_id}"

    def _described(self, tenant: str, file_id: str) -> str:
        return self._path(tenant, file_id) + _DESCRIBED


class Writing:
    """A file that is being written. Raises as :class:`FileStore`."""

    def __init__(
        self, store: FileStore, tenant: str, file_id: str, file: IO[bytes]
    ) -> None:
        self._store = store
        self._tenant = tenant
        self._file = file
        self._is_kept = False
        self.id = file_id
        self.bytes = 0

    def write(self, data: bytes) -> None:
        with asked_of(_STORE, "write", self.id):
            self._file.write(data)
        self.bytes += len(data)

    def keep(
        self, filename: str, purpose: str, expires_s: int | None = None
    ) -> StoredFile:
        """For ``expires_s`` seconds; None: until it is deleted."""
        with asked_of(_STORE, "write", self.id):
            self._file.close()
        now_s = int(_now_s())
        expires_at = None if expires_s is None else now_s + expires_s
        file = StoredFile(self.id, self.bytes, now_s, filename, purpose, expires_at)
        self._store.keep(self._tenant, file)
        self._is_kept = True
        return file

    def drop(self) -> None:
        """Without effect once it is kept."""
        if not self._is_kept:
            with asked_of(_STORE, "write", self.id):
                self._file.close()
            self._store.drop(self._tenant, self.id)


def _now_s() -> float:
    return wall_us() / 1e6


def _made_s(file_id: str) -> float:
    """Ids begin with milliseconds."""
    return int(file_id.removeprefix("file-")[:12], 16) / 1000
