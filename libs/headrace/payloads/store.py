"""The payload store: objects that are written once and named by records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256

from fsspec.core import url_to_fs

from headrace.domain import PayloadRef
from headrace.errors import PayloadLost, SetupError, StoreUnavailable
from headrace.wire.payloads import is_object_name, object_hour

__all__ = ["PayloadStore"]

_PROBE = "probe"
_HOUR_US = 3_600_000_000


class PayloadStore:
    """Objects below ``url``. Every method blocks, for as long as the store takes, and
    any thread may call it; all but the first raise :class:`StoreUnavailable`.

    Raises :class:`SetupError` for an address of which fsspec can make nothing.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            # What was listed once says nothing of now.
            self._system, self._root = url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError, OSError) as error:
            raise SetupError(
                f"HEADRACE_BUS__PAYLOAD_STORE={url} is no address of a store "
                f"({error}): give a URL of fsspec, such as file:///mnt/payloads."
            ) from error

    def write(self, name: str, pieces: Sequence[bytes | memoryview]) -> PayloadRef:
        """Write an object that is not there yet, and say how to refer to it."""
        digest = sha256()
        path = self._path(name)
        with self._asked("write", name):
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
        with self._asked("read", ref.name):
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
        with self._asked("write", _PROBE):
            self._system.makedirs(self._root, exist_ok=True)
            self._system.pipe_file(path, b"probe")
            if self._system.cat_file(path) != b"probe":
                raise StoreUnavailable(f"{self._url} gives back what was not written")

    def sweep(self, now_us: int, keep_hours: int) -> int:
        """Delete what was made more than ``keep_hours`` before ``now_us``; how many
        hours were deleted. Several may sweep at once."""
        oldest = object_hour(now_us - keep_hours * _HOUR_US)
        with self._asked("list", ""):
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

    @contextmanager
    def _asked(self, what: str, name: str) -> Iterator[None]:
        try:
            yield
        except (PayloadLost, StoreUnavailable):
            raise
        except Exception as error:
            # A store's client raises what it likes; none of it ends a thread of ours.
            raise StoreUnavailable(
                f"the payload store could not {what} {name}: {error!r:.300}"
            ) from error
