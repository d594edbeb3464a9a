"""What the clients saw, and what of it breaks the promise.

Independent of the product: it knows the value that was sent, which is the value that
must come back, and when each ingress was killed, stopped or started anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["GRACE_US", "Ask", "End", "Window", "breaches", "tally"]

GRACE_US = 250_000
"""How long after its time limit a request must have its answer."""

REFUSALS = frozenset({429, 503, 504})
"""Explicit: the client knows where it stands, and may ask again."""


class End(StrEnum):
    """How a request ended, to its client."""

    ANSWERED = "answered"
    BROKEN = "broken"
    """The connection ended before the answer."""
    SILENT = "silent"
    """Nothing came, and the client gave up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request, in µs of the client's monotonic clock."""

    number: int
    """Repeated by a request that asks again under the same key."""
    model: str
    ingress: int
    limit_us: int
    sent_us: int
    ended_us: int
    lag_us: int = 0
    """How long the client itself was late meanwhile, at most."""
    end: End
    status: int = 0
    reason: str = ""
    is_right: bool = False
    key: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """An ingress did not run, or took nothing in."""

    ingress: int
    from_us: int
    to_us: int
    is_kill: bool = False
    """Its connections ended with it."""


def breaches(
    asks: Sequence[Ask], windows: Sequence[Window], grace_us: int = GRACE_US
) -> list[str]:
    """A sentence for each way in which the promise was broken."""
    found = [text for ask in asks for text in _breaches_of(ask, windows, grace_us)]
    return [*found, *_unsettled_keys(asks)]


def tally(asks: Iterable[Ask]) -> dict[str, int]:
    """How many ended in each way."""
    counted = Counter(_way(ask) for ask in asks)
    return dict(counted.most_common())


def _way(ask: Ask) -> str:
    if ask.end is not End.ANSWERED:
        return ask.end.value
    if ask.status != 200:
        return f"{ask.status} {ask.reason}"
    return "right" if ask.is_right else "wrong"


def _breaches_of(ask: Ask, windows: Sequence[Window], grace_us: int) -> Iterable[str]:
    name = f"request {ask.number} to {ask.model} by ingress {ask.ingress}"
    met = [
        window
        for window in windows
        if window.ingress == ask.ingress
        and window.from_us <= ask.ended_us
        and ask.sent_us <= window.to_us
    ]
    if ask.end is End.SILENT:
        yield f"{name}: lost, nothing came in {_ms(ask.ended_us - ask.sent_us)}"
        return
    if ask.end is End.BROKEN:
        if not any(window.is_kill for window in met):
            yield f"{name}: its connection ended, and nobody had killed its ingress"
        return
    if ask.status == 200 and not ask.is_right:
        yield f"{name}: a wrong answer"
    elif ask.status != 200 and ask.status not in REFUSALS:
        yield f"{name}: {ask.status} {ask.reason}, which is no refusal"
    stopped_us = sum(
        min(window.to_us, ask.ended_us) - max(window.from_us, ask.sent_us)
        for window in met
    )
    took_us = ask.ended_us - ask.sent_us - stopped_us - ask.lag_us
    if took_us > ask.limit_us + grace_us:
        yield (
            f"{name}: {_way(ask)} after {_ms(took_us)}, which counts no pause of its "
            f"ingress, with a limit of {_ms(ask.limit_us)}"
        )


def _unsettled_keys(asks: Sequence[Ask]) -> Iterable[str]:
    """Whose connection ended must get the answer by its key."""
    broken = {ask.key for ask in asks if ask.key and ask.end is End.BROKEN}
    tries: dict[str, list[Ask]] = {key: [] for key in broken}
    for ask in asks:
        if ask.key in broken:
            tries[ask.key].append(ask)
    for first, *again in tries.values():
        last = again[-1] if again else first
        if last.end is not End.ANSWERED or last.status != 200:
            got = ", ".join(
                f"{_way(ask)} after {_ms(ask.ended_us - first.ended_us)}"
                for ask in again
            )
            yield (
                f"request {first.number} to {first.model}: asked again under its key "
                f"it got {got or 'nothing'}"
            )


def _ms(us: int) -> str:
    return f"{us / 1000:.0f} ms"
