"""Requests and replies of this process in the product's metrics.

A label is a model or version of the catalog, or ``unknown``: never what a client
made up.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from headrace.domain import Priority, Reason
from headrace.telemetry import UNKNOWN, IngressMetrics
from headrace.telemetry.tallies import Count, Distribution
from services.ingress.exchange import Exchange
from services.ingress.refusal import Refusal
from services.ingress.waiters import Unclaimed

__all__ = ["Meter"]

_CLIENT_CLOSED_REQUEST = 499


class Meter:
    """Counts how requests end."""

    def __init__(self, metrics: IngressMetrics) -> None:
        self._metrics = metrics
        self._kept: dict[
            tuple[str, str, Priority, int, str], tuple[Count, Distribution]
        ] = {}
        # `labels` costs more than the update behind it.
        self._first = metrics.replies.labels("first").inc

    def succeeded(
        self,
        model: str,
        version: str,
        priority: Priority,
        latencies_us: Sequence[int],
    ) -> None:
        count, latencies = self._of(model, version, priority, HTTPStatus.OK, "")
        count.value += len(latencies_us)
        latencies.observe(latencies_us)
        self._first(len(latencies_us))

    def refused(
        self,
        model: str,
        version: str,
        priority: Priority,
        refusal: Refusal,
        total_us: int,
    ) -> None:
        count, latencies = self._of(
            model, version, priority, refusal.status, refusal.reason
        )
        count.value += 1
        latencies.observe((total_us,))

    def _of(
        self, model: str, version: str, priority: Priority, status: int, reason: str
    ) -> tuple[Count, Distribution]:
        kept = self._kept.get((model, version, priority, status, reason))
        if kept is None:
            labels = model, version, priority.name.lower()
            requests = self._metrics.requests
            kept = self._kept[model, version, priority, status, reason] = (
                requests.count(labels, int(status), str(reason)),
                requests.latencies(labels),
            )
        return kept

    def unread(self, refusal: Refusal) -> None:
        """What was refused named no model, or not to its end."""
        labels = UNKNOWN, UNKNOWN, Priority.STANDARD.name.lower()
        status, reason = int(refusal.status), str(refusal.reason)
        self._metrics.requests.count(labels, status, reason).value += 1

    def accepted(self, exchange: Exchange) -> None:
        self._ended(exchange, HTTPStatus.ACCEPTED.value, "")

    def cancelled(self, exchange: Exchange) -> None:
        """The client went away before its answer."""
        self._ended(exchange, _CLIENT_CLOSED_REQUEST, str(Reason.CANCELLED))

    def _ended(self, exchange: Exchange, status: int, reason: str) -> None:
        labels = *_named(exchange), exchange.priority.name.lower()
        self._metrics.requests.count(labels, status, reason).value += 1

    def unclaimed(self, what: Unclaimed) -> None:
        """A reply answered nobody."""
        self._metrics.replies.labels(what).inc()

    def look(self, in_flight: int, lanes: int, connections: int) -> None:
        """Set the gauges."""
        self._metrics.in_flight.set(in_flight)
        self._metrics.lanes_heard.set(lanes)
        self._metrics.connections.set(connections)


def _named(exchange: Exchange) -> tuple[str, str]:
    served = exchange.served
    return (UNKNOWN, UNKNOWN) if served is None else (served.model, served.version)
