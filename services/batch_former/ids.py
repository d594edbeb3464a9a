"""The ids of batches."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator

__all__ = ["batch_ids"]

RANDOM = "4"
"""Of a UUID its version, as the thirteenth digit: a request's id has 7 there, and
begins with its time. That is how a batch's is told from it."""


def batch_ids() -> Iterator[str]:
    """32 hexadecimal digits each. Drawn once and counted then: to draw one for each
    batch takes longer than to choose its members."""
    drawn = secrets.token_hex(10)
    begin = drawn[:12] + RANDOM + drawn[13:]
    return (f"{begin}{number:012x}" for number in itertools.count())
