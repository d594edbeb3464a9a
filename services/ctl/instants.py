"""Instants as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from services.ctl.errors import UsageError

__all__ = ["instant_us", "shown", "until_us"]

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AHEAD = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)([smhd])")
_AGO = re.compile(r"-(\d{1,12}(?:\.\d{1,12})?)([smhd])")


def instant_us(text: str, now_us: int, *, option: str) -> int:
    """Epoch microseconds of ``-90s``, ``-1.5h``, ``now``, or an ISO 8601 date with or
    without a time; without a zone it is UTC. What is before 1970 is 1970.

    Raises :class:`services.ctl.errors.UsageError`.
    """
    if text == "now":
        return now_us
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, now_us - round(float(ago[1]) * _UNITS_S[ago[2]] * 1e6))
    wanted = "no instant: write -90s, -30m, -1h, -2d, now"
    return max(0, _date_us(text, option, wanted))


def until_us(text: str, now_us: int, *, option: str) -> int:
    """As :func:`instant_us`, for one to come: ``90s`` and ``1.5h`` from now, or a date.

    Raises :class:`services.ctl.errors.UsageError`, also for one in the past.
    """
    ahead = _AHEAD.fullmatch(text)
    if ahead is not None:
        at_us = now_us + round(float(ahead[1]) * _UNITS_S[ahead[2]] * 1e6)
    elif text == "now" or _AGO.fullmatch(text):
        at_us = now_us
    else:
        wanted = "no instant to come: write 90s, 30m, 1.5h, 2d"
        at_us = _date_us(text, option, wanted)
    if at_us <= now_us:
        raise UsageError(f"{option} {text} is in the past: write 90s, 30m, 1.5h, 2d.")
    return at_us


def _date_us(text: str, option: str, wanted: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{option} {text} is {wanted}, or a date such as 2030-01-31T12:00:00."
        ) from error
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return round(found.timestamp() * 1e6)


def shown(at_us: int) -> str:
    """In UTC, to the millisecond, in a form that ``instant_us`` reads."""
    told = datetime.fromtimestamp(at_us / 1e6, UTC)
    return told.isoformat(timespec="milliseconds").replace("+00:00", "Z")
