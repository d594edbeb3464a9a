"""Requests whose answers are kept for whoever asks for them, and their names."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import NamedTuple

from headrace.wire.topics import JOB_ASYNC, JOB_KEYED, NAME_PATTERN

__all__ = ["Locator", "is_keyed", "job_of", "keyed_id"]

_LOCATOR = re.compile(
    rf"([0-9a-f]{{32}})\.({NAME_PATTERN.pattern})\.([0-9]{{1,6}})\.([0-9]{{1,18}})"
)
_VERSION_AT = 12
_VERSION_8 = 0x8 << 76
_VARIANT = 0b10 << 62
_KEPT_BITS = (1 << 128) - 1 ^ (0xF << 76) ^ (0b11 << 62)


class Locator(NamedTuple):
    """Where a request lies, as its client knows it: any ingress finds it by this."""

    id: str
    model: str
    partition: int
    offset: int

    def encode(self) -> str:
        return f"{self.id}.{self.model}.{self.partition}.{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Locator | None:
        """None: :meth:`encode` did not write it."""
        found = _LOCATOR.fullmatch(text)
        if found is None:
            return None
        request_id, model, partition, offset = found.groups()
        return cls(request_id, model, int(partition), int(offset))


def keyed_id(tenant: str, model: str, key: str) -> str:
    """The id of every request with this idempotency key: a UUIDv8 of 32 hex digits,
    which says nothing of the key to whoever reads it."""
    digest = sha256(f"{tenant}\0{model}\0{key}".encode()).digest()
    number = int.from_bytes(digest[:16], "big") & _KEPT_BITS
    return f"{number | _VERSION_8 | _VARIANT:032x}"


def is_keyed(request_id: str) -> bool:
    return len(request_id) == 32 and request_id[_VERSION_AT] == "8"


def job_of(request_id: str) -> str:
    """The job among whose results the answer is kept."""
    return JOB_KEYED if is_keyed(request_id) else JOB_ASYNC
