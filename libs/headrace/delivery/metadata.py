"""What stands beside a committed offset: ``1;e=<epoch>;c=<offset>;n=<count>``, and
``;s=<offset>;d=<count>`` while records are read one at a time.

A commit is a place to restart from, so it carries all that a successor needs beside
the offset itself: the epoch to rise above, and where in the lane's completions lies
the oldest fact about a request at or above the offset.
"""

from __future__ import annotations

import msgspec

__all__ = ["CommitMetadata"]

VERSION = "1"


class CommitMetadata(msgspec.Struct, frozen=True):
    """``epoch`` of the committing owner; ``completions``: where a successor starts to
    read them (``c``); ``takeovers`` in a row that found something unread behind the
    same offset; ``suspect``: the record that is being read by itself, since one of
    those here may kill its former, and ``deaths``: of how many owners it will have been
    the last."""

    epoch: int
    completions: int
    takeovers: int = 0
    suspect: int | None = None
    deaths: int = 1

    def encode(self) -> str:
        text = f"{VERSION};e={self.epoch};c={self.completions};n={self.takeovers}"
        if self.suspect is None:
            return text
        return f"{text};s={self.suspect};d={self.deaths}"

    @classmethod
    def parse(cls, text: str) -> CommitMetadata | None:
        """None for what another program committed: its offset counts, and the rest
        is as unknown as in a new partition."""
        version, *fields = text.split(";")
        if version != VERSION:
            return None
        try:
            values = {
                name: int(value) for name, value in (f.split("=") for f in fields)
            }
            return cls(
                values["e"],
                values["c"],
                values["n"],
                values.get("s"),
                values.get("d", 1),
            )
        except (KeyError, ValueError):
            return None
