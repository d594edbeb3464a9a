"""Request ids: UUIDv7, which sort by the time at which they were made."""

from __future__ import annotations

import os
import random
import time

__all__ = ["RequestIds"]

_VERSION_7 = 0x7 << 76
_VARIANT = 0b10 << 62
_RANDOM_A_BITS = 12
_RANDOM_B_BITS = 62


class RequestIds:
    """Makes ids of 32 hexadecimal digits (RFC 9562, 5.7). The wall clock is only their
    order for people; nothing is decided by it."""

    def __init__(self) -> None:
        # Unpredictable enough for a name: nothing is protected by an id alone.
        self._bits = random.Random(os.urandom(32)).getrandbits

    def next(self) -> str:
        bits = self._bits
        return "%032x" % (
            (time.time_ns() // 1_000_000) << 80
            | _VERSION_7
            | bits(_RANDOM_A_BITS) << 64
            | _VARIANT
            | bits(_RANDOM_B_BITS)
        )
