"""The payload store: objects that are written once and named by records."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from headrace.domain import PayloadRef
from headrace.errors import PayloadLost, StoreUnavailable
from headrace.payloads.reaching import asked_of, reach_store
from headrace.wire.payloads import is_object_name, object_hour

__all__ = ["PayloadStore", "no_store"]

_PROBE = "probe"
_STORE = "the payload store"
_HOUR_US = 3_600_000_000


def no_store(_: PayloadRef) -> memoryview:
    """In place of :meth:`PayloadStore.read` where no store is known."""
    raise StoreUnavailable(
        "tensors are in a payload store, and none is set here "
        "(HEADRACE_BUS__PAYLOAD_STORE)"
    )


class PayloadStore:
    """Objects below ``url``. Every method blocks, for as long as the store takes, and
    any thread may call it; all but the first raise :class:`StoreUnavailable`.

    Raises as :func:`headrace.payloads.reach_store`.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._system, self._root = reach_store(
            url, "HEADRACE_BUS__PAYLOAD_STORE", "file:///mnt/payloads"
        )

    def write(self, name: str, pieces: Sequence[bytes | memoryview]) -> PayloadRef:
        """Write an object that is not there yet, and say how to refer to it."""
        digest = sha256()
        path = self._path(name)
        with asked_of(_STORE, "write", name):
            self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
            with self._system.open(path, "wb") as file:
                for piece in pieces:
                    file.write(piece)
                    digest.update(piece)
        return PayloadRef(name, digest.hexdigest(), tuple(map(len, pieces)))

    def read(self, ref: PayloadRef) -> memoryview:
        """The object, as it was when it was referred to.

        Raises :class:`PayloadLost` where it is not.
        """
        with asked_of(_STORE, "read", ref.name):
            try:
                with self._system.open(self._path(ref.name), "rb") as file:
                    # One byte more than there should be.
                    content = file.read(ref.length + 1)
            except FileNotFoundError as error:
                raise PayloadLost(
                    f"the object {ref.name} is not in the payload store"
                ) from error
        if len(content) != ref.length or sha256(content).hexdigest() != ref.sha256:
            raise PayloadLost(
                f"the object {ref.name} is not the one that was referred to: it has "
                f"{len(content)} bytes or more, expected {ref.length} with the sha256 "
                f"{ref.sha256}"
            )
        return memoryview(content)

    def probe(self) -> None:
        """Whether an object can be written and read back."""
        path = f"{self._root}/{_PROBE}"
        with asked_of(_STORE, "write", _PROBE):
            self._system.makedirs(self._root, exist_ok=True)
            self._system.pipe_file(path, b"probe")
            if self._system.cat_file(path) != b"probe":
                raise StoreUnavailable(f"{self._url} gives back what was not written")

    def sweep(self, now_us: int, keep_hours: int) -> int:
        """Delete what was made more than ``keep_hours`` before ``now_us``; how many
        hours were deleted. Several may sweep at once."""
        oldest = object_hour(now_us - keep_hours * _HOUR_US)
        with asked_of(_STORE, "list", ""):
            try:
                paths = self._system.ls(self._root, detail=False)
            except FileNotFoundError:
                return 0
            over = [
                path
                for path in paths
                if len(name := path.rpartition("/")[2]) == len(oldest)
                and name[8:9] == "T"
                and name < oldest
            ]
            for path in over:
                try:
                    self._system.rm(path, recursive=True)
                except FileNotFoundError:
                    continue  # another has
        return len(over)

    def _path(self, name: str) -> str:
        assert is_object_name(name), name
        return f"{self._root}/{name}"
