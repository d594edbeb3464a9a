"""How requests end, told to everybody who keeps count: statistics, metrics, the log."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from headrace.domain import Priority, ServedVersion
from headrace.telemetry import UNKNOWN
from headrace.wire import Replies
from services.ingress.exchange import Exchange
from services.ingress.journal import Journal
from services.ingress.known import TurnedAway
from services.ingress.meter import Meter
from services.ingress.refusal import Refusal
from services.ingress.statistics import Statistics
from services.ingress.waiters import Unclaimed

__all__ = ["Outcomes"]


class Outcomes:
    """One call per end of a request."""

    def __init__(self, statistics: Statistics, meter: Meter, journal: Journal) -> None:
        self._statistics = statistics
        self._meter = meter
        self._journal = journal

    def ran(self, record: Replies) -> None:
        """Answers of a batch arrived."""
        if record.model:
            self._statistics.of(record.model, record.version).ran(
                record.batch,
                record.batch_rows,
                _times_us(record),
                time.time_ns() // 1_000_000,
            )

    def succeeded(
        self,
        record: Replies,
        latencies_us: Mapping[Priority, Sequence[int]],
        rows: int,
    ) -> None:
        """Requests with ``rows`` together were answered from ``record``."""
        model, version = record.model, record.version
        statistics, times_us = self._statistics.of(model, version), _times_us(record)
        for priority, took_us in latencies_us.items():
            statistics.succeeded(took_us, rows, times_us)
            self._meter.succeeded(model, version, priority, took_us)
            rows = 0

    def refused(self, exchange: Exchange, refusal: Refusal, total_us: int) -> None:
        self._count(exchange.served, exchange.priority, refusal, total_us)
        self._journal.refused(exchange, refusal, total_us)

    def turned_away(self, again: TurnedAway, now_us: int) -> bool:
        """As :meth:`refused`, of one that is nowhere but here; False, and nothing is
        counted: there is room to write it down."""
        if not self._journal.counts(now_us):
            return False
        self._count(again.served, again.priority, again.refusal, 0)
        return True

    def _count(
        self,
        served: ServedVersion | None,
        priority: Priority,
        refusal: Refusal,
        total_us: int,
    ) -> None:
        model = version = UNKNOWN
        if served is not None:
            model, version = served.model, served.version
            self._statistics.of(model, version).fail.add(total_us)
        self._meter.refused(model, version, priority, refusal, total_us)

    def unread(self, request_id: str, x_request_id: bytes, refusal: Refusal) -> None:
        """Something was refused that is no inference request, or none to the end of
        its head."""
        self._meter.unread(refusal)
        self._journal.unread(request_id, x_request_id, refusal)

    def accepted(self, exchange: Exchange) -> None:
        """The log has it; its answer is asked for later."""
        self._meter.accepted(exchange)

    def cancelled(self, exchange: Exchange) -> None:
        """The client went away before its answer."""
        self._meter.cancelled(exchange)

    def unclaimed(self, what: Unclaimed) -> None:
        """A reply answered nobody."""
        self._meter.unclaimed(what)

    def crashed(self, request_id: str, error: Exception) -> None:
        """A fault of our own ended a request."""
        self._journal.crashed(request_id, error)


def _times_us(record: Replies) -> tuple[int, int, int]:
    facts = record.facts
    return facts.input_us, facts.run_us, facts.output_us
