"""What an operator can set for files and batches."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, PositiveInt

__all__ = ["FilesSettings"]

_MIB = 1024 * 1024

_DAY_S = 86_400


class FilesSettings(BaseModel, frozen=True, extra="forbid"):
    """Files that clients upload, and the batches that run them."""

    url: str | None = None
    """Where files are kept, any URL of fsspec that all ingresses reach, such as
    ``file:///mnt/files`` or ``s3://bucket/files``; None: nowhere, and both APIs are
    answered 501."""

    keep_days: Annotated[PositiveInt, Field(le=3650)] | None = 30
    """A file is there for so long, unless its upload or its batch says how long
    (`expires_after`, `output_expires_after`), and its bytes an hour more; as long after
    its end a batch or another job is forgotten, with its topic. None: all of it stays
    until it is deleted."""

    uploads_max: PositiveInt = 16
    """Uploads at once, each with about 1 MiB in memory; beyond, 503 `overloaded`."""

    batch_lines_max: PositiveInt = 50_000
    """A file of more lines fails its batch."""

    batch_line_bytes_max: PositiveInt = 32 * _MIB
    """A longer line becomes an error of its own."""

    batches_at_once_max: int = Field(default=2, ge=0)
    """Batches of the platform that run at a time, each in a process of its own; the
    others wait. 0: none is begun."""

    @property
    def keep_s(self) -> int | None:
        return None if self.keep_days is None else self.keep_days * _DAY_S
