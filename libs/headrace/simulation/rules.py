"""How other systems form batches, each as one small object.

None of them refuses at the door by default; none knows tenants. Sources: the systems'
own code and papers (Clipper, NSDI 2017; Nexus, SOSP 2019; Clockwork, OSDI 2020;
Symphony, 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.domain import Request
from headrace.simulation.peer import Rule, Send, Terms, Wait

__all__ = [
    "RULES",
    "Clipper",
    "Clockwork",
    "FifoDelay",
    "Nexus",
    "Symphony",
    "TritonLike",
]

MS = 1_000


class FifoDelay:
    """First in, first out; a batch leaves when it is full or its first request has
    waited for ``delay_us``: TF Serving, MOSEC, LitServe, Ray Serve."""

    def __init__(self, delay_us: int = 5 * MS) -> None:
        self._delay_us = delay_us

    def place(self, request: Request, number: int) -> tuple[int, int]:  # noqa: ARG002 - a protocol
        return 0, number

    def consider(
        self, queue: Sequence[Request], terms: Terms, now_us: int
    ) -> Send | Wait:
        until_us = queue[0].arrived_us + self._delay_us
        if now_us >= until_us or len(queue) >= terms.rows_max:
            return Send(terms.rows_max)
        return Wait(until_us)

    def ended(self, requests: Sequence[Request], run_us: int) -> None:
        pass


class TritonLike:
    """Strict priority levels, first in first out within one, a longest delay, and
    a timeout after which a queued request is rejected (None, the default: never)."""

    def __init__(self, delay_us: int = 0, timeout_us: int | None = None) -> None:
        self._delay_us = delay_us
        self._timeout_us = timeout_us

    def place(self, request: Request, number: int) -> tuple[int, int]:
        return request.priority, number

    def consider(
        self, queue: Sequence[Request], terms: Terms, now_us: int
    ) -> Send | Wait:
        dropped = 0
        if self._timeout_us is not None:
            late_us = now_us - self._timeout_us
            while dropped < len(queue) and queue[dropped].arrived_us < late_us:
                dropped += 1
        waiting = len(queue) - dropped
        if not waiting:
            return Send(0, dropped)
        until_us = queue[dropped].arrived_us + self._delay_us
        if now_us >= until_us or waiting >= terms.rows_max:
            return Send(terms.rows_max, dropped)
        return Wait(until_us)

    def ended(self, requests: Sequence[Request], run_us: int) -> None:
        pass


class Clipper:
    """The largest batch grows by one while runs stay within the latency objective
    and shrinks by a tenth when one does not (AIMD); nothing waits, nothing drops."""

    def __init__(self) -> None:
        self._sizes: dict[str, float] = {}

    def place(self, request: Request, number: int) -> tuple[int, int]:  # noqa: ARG002 - a protocol
        return 0, number

    def consider(self, queue: Sequence[Request], terms: Terms, now_us: int) -> Send:  # noqa: ARG002 - a protocol
        size = min(self._sizes.get(queue[0].model, 1.0), terms.rows_max)
        return Send(int(size))

    def ended(self, requests: Sequence[Request], run_us: int) -> None:
        first = requests[0]
        size = self._sizes.get(first.model, 1.0)
        deadline_us = first.deadline_us
        if deadline_us is not None and run_us > deadline_us - first.arrived_us:
            self._sizes[first.model] = max(size * 0.9, 1.0)
        elif sum(request.rows for request in requests) >= int(size):
            self._sizes[first.model] = size + 1


class Nexus:
    """Early drop: the first window of the planned size whose head makes its limit;
    all before it are dropped. Planned is the largest size that runs twice within
    the limit. Nothing waits."""

    def place(self, request: Request, number: int) -> tuple[int, int]:
        return _deadline(request), number

    def consider(self, queue: Sequence[Request], terms: Terms, now_us: int) -> Send:  # noqa: ARG002 - a protocol
        return _window(queue, terms, _planned(queue[0], terms, runs=2.0))

    def ended(self, requests: Sequence[Request], run_us: int) -> None:
        pass


class Clockwork:
    """Earliest deadline first; the largest batch with which the head makes its
    limit; only who cannot make it alone is dropped. Nothing waits."""

    def place(self, request: Request, number: int) -> tuple[int, int]:
        return _deadline(request), number

    def consider(self, queue: Sequence[Request], terms: Terms, now_us: int) -> Send:  # noqa: ARG002 - a protocol
        dropped = 0
        while dropped < len(queue) and not terms.fits(queue[dropped], 1):
            dropped += 1
        if dropped == len(queue):
            return Send(0, dropped)
        rows = min(len(queue) - dropped, terms.rows_max)
        while not terms.fits(queue[dropped], rows):
            rows -= 1
        return Send(rows, dropped)

    def ended(self, requests: Sequence[Request], run_us: int) -> None:
        pass


class Symphony:
    """Deferred to the last moment: the batch of the early-drop window leaves when
    one request more would make its head late. Planned is the largest size that
    staggered workers can keep up with."""

    def place(self, request: Request, number: int) -> tuple[int, int]:
        return _deadline(request), number

    def consider(
        self, queue: Sequence[Request], terms: Terms, now_us: int
    ) -> Send | Wait:
        planned = _planned(queue[0], terms, runs=1 + 1 / terms.slots)
        send = _window(queue, terms, planned)
        head = queue[send.dropped] if send.rows else None
        if head is None or head.deadline_us is None or send.rows >= planned:
            return send
        # fits() with one row more, solved for the moment at which it turns false.
        ends_us = terms.start_us + terms.run_us(send.rows + 1) + terms.response_us
        frontrun_us = now_us + head.deadline_us - ends_us
        return Wait(frontrun_us + 1) if frontrun_us >= now_us else send

    def ended(self, requests: Sequence[Request], run_us: int) -> None:
        pass


def _deadline(request: Request) -> int:
    return 1 << 62 if request.deadline_us is None else request.deadline_us


def _planned(head: Request, terms: Terms, *, runs: float) -> int:
    """Most rows of which ``runs`` runs lie within the head's time limit."""
    if head.deadline_us is None:
        return terms.rows_max
    limit_us = head.deadline_us - head.arrived_us - terms.response_us
    rows = terms.rows_max
    while rows > 1 and runs * terms.run_us(rows) > limit_us:
        rows -= 1
    return rows


def _window(queue: Sequence[Request], terms: Terms, planned: int) -> Send:
    """The first window of ``planned`` requests, or of what is left, that fits."""
    for dropped, head in enumerate(queue):
        rows = min(planned, len(queue) - dropped)
        if terms.fits(head, rows):
            return Send(rows, dropped)
    return Send(0, len(queue))


RULES: dict[str, Callable[[], Rule]] = {
    "fifo": FifoDelay,
    "triton": TritonLike,
    "clipper": Clipper,
    "nexus": Nexus,
    "clockwork": Clockwork,
    "symphony": Symphony,
}
