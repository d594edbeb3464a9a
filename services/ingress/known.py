"""A head that a client sends again, byte for byte, is not parsed again."""

from __future__ import annotations

from typing import NamedTuple

from services.ingress.head import Head, Target

__all__ = ["KNOWN_HEADS_MAX", "KnownHead", "known_head"]

KNOWN_HEAD_BYTES_MAX = 2048
"""Longer heads are parsed each time."""

KNOWN_HEADS_MAX = 8
"""So often a connection's last head is remembered; a client whose heads all differ
then goes the long way without paying for it."""

_HEAD_END = b"\r\n\r\n"


class KnownHead(NamedTuple):
    """A head, and what it says: most requests of a connection differ in the values of
    their tensors alone."""

    text: bytes
    size: int
    """Of the whole request."""

    target: Target
    head: Head

    def begins(self, data: bytes) -> bool:
        """Whether ``data`` is a whole request with this head."""
        return len(data) == self.size and data.startswith(self.text)


def known_head(data: bytes, target: Target, head: Head) -> KnownHead | None:
    """``data`` was read to its end and gave ``head`` last; None where it was anything
    but one request whose body's length stands in its head."""
    if head.content_length is None:
        return None
    end = len(data) - head.content_length
    # The first empty line ends the first head: two requests in one piece do not pass.
    if end > KNOWN_HEAD_BYTES_MAX or data.find(_HEAD_END) != end - len(_HEAD_END):
        return None
    return KnownHead(data[:end], len(data), target, head)
