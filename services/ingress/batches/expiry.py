"""How long clients may have their files kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from services.ingress.batches.objects import ApiError

__all__ = ["ExpiresAfter", "expires_s", "given_in"]

SHORTEST_S: Final = 3600
LONGEST_S: Final = 2_592_000
"""Both as the API has them: an hour, 30 days."""

_FORM: Final = ("expires_after[anchor]", "expires_after[seconds]")


class ExpiresAfter(msgspec.Struct, frozen=True):
    anchor: str
    seconds: int


def given_in(fields: Mapping[str, str]) -> ExpiresAfter | None:
    """What an upload's form says. Raises :class:`ApiError`."""
    anchor, seconds = map(fields.get, _FORM)
    if anchor is None and seconds is None:
        return None
    is_number = (seconds or "").isdecimal() and len(seconds or "") < 9
    return ExpiresAfter(anchor or "", int(seconds or "") if is_number else -1)


def expires_s(
    asked: ExpiresAfter | None, usual_s: int | None, param: str
) -> int | None:
    """Seconds from a file's making to its end; None: it has none.

    Raises :class:`ApiError`.
    """
    if asked is None:
        return usual_s
    if asked.anchor != "created_at":
        raise ApiError(
            f"the anchor must be created_at, got {asked.anchor[:40]!r}", param=param
        )
    if not SHORTEST_S <= asked.seconds <= LONGEST_S:
        raise ApiError(f"seconds must be from {SHORTEST_S} to {LONGEST_S}", param=param)
    return asked.seconds
