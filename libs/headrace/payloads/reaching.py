"""A store wherever fsspec reaches, and one error for whatever its client raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs

from headrace.errors import PayloadLost, SetupError, StoreUnavailable

__all__ = ["asked_of", "reach_store"]


def reach_store(url: str, setting: str, example: str) -> tuple[AbstractFileSystem, str]:
    """The file system behind ``url`` and the path there; nothing is asked of it yet.

    Raises :class:`SetupError`, which names the ``setting``, for an address of which
    fsspec can make nothing.
    """
    try:
        # What was listed once says nothing of now.
        system, root = url_to_fs(url, use_listings_cache=False)
    except (ImportError, ValueError, OSError) as error:
        raise SetupError(
            f"{setting}={url} is no address of a store ({error}): give a URL of "
            f"fsspec, such as {example}."
        ) from error
    return system, str(root)


@contextmanager
def asked_of(store: str, what: str, name: str) -> Iterator[None]:
    """Around calls that ``what`` the object or file ``name`` in ``store``.

    Raises :class:`StoreUnavailable` for what goes wrong there.
    """
    try:
        yield
    except (PayloadLost, StoreUnavailable):
        raise
    except Exception as error:
        # A store's client raises what it likes; none of it ends a thread of ours.
        raise StoreUnavailable(
            f"{store} could not {what} {name}: {error!r:.300}"
        ) from error
