"""What a killed worker cost those who asked meanwhile."""

from __future__ import annotations

import msgspec
import numpy as np

from loadtest.stream import OK, Records

__all__ = ["Killed", "killed"]

_REFUSALS = (408, 429, 503)
"""The server says that it did not take the request. Another status above 200 is a
request that it took and lost."""

_WINDOW_S = 0.25
_IN_TIME = 0.99


class Killed(msgspec.Struct, frozen=True):
    """Requests that were due from the kill on, except ``before``; seconds count from
    it."""

    sent: int
    before: float
    """The share of those due before the kill that was answered in time."""
    lost: int
    """Never answered, broken off, or failed by the server, whenever they were due."""
    refused: int
    late: int
    """Answered, after their time."""
    first_s: float | None
    """Until the first that was answered at all. None: nobody was."""
    again_s: float | None
    """Until the instant from which every quarter of a second had 99 % answered in
    time. None: not before the end."""


def killed(records: Records, at_s: float, end_s: float, slo_ms: float) -> Killed:
    """A stream that was sent until ``end_s``, killed at ``at_s``."""
    due_s = np.frombuffer(records.scheduled_ns, np.int64) / 1e9
    ended_s = np.frombuffer(records.ended_ns, np.int64) / 1e9
    table = np.array([each.status for each in records.outcomes], np.int64)
    status = table[np.frombuffer(records.outcome, np.int64)]
    ok = status == OK
    good = ok & ((ended_s - due_s) * 1e3 <= slo_ms)
    refused = np.isin(status, _REFUSALS)
    after = due_s >= at_s
    answered_s = ended_s[after & ok]
    return Killed(
        sent=int(after.sum()),
        before=float(good[~after].mean()) if (~after).any() else 0.0,
        lost=int((~ok & ~refused).sum()),
        refused=int((refused & after).sum()),
        late=int((ok & ~good & after).sum()),
        first_s=float(answered_s.min()) - at_s if len(answered_s) else None,
        again_s=_again(due_s, good, at_s, end_s),
    )


def _again(
    due_s: np.ndarray[tuple[int], np.dtype[np.float64]],
    good: np.ndarray[tuple[int], np.dtype[np.bool_]],
    at_s: float,
    end_s: float,
) -> float | None:
    since = at_s
    for start in np.arange(at_s, end_s, _WINDOW_S).tolist():
        here = (due_s >= start) & (due_s < start + _WINDOW_S)
        if here.any() and good[here].mean() < _IN_TIME:
            since = start + _WINDOW_S
    return since - at_s if since < end_s else None
