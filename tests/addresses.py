"""Addresses of this machine."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nobody_listens() -> Iterator[tuple[str, int]]:
    """An address that refuses connections, and that nobody else can take meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()
