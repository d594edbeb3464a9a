"""Requests and replies of this process in the product's metrics.

A label is a model or version of the catalog, or ``unknown``: never what a client
made up.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from headrace.domain import Priority, Reason
from headrace.telemetry import UNKNOWN, IngressMetrics
from services.ingress.exchange import Exchange
from services.ingress.refusal import Refusal
from services.ingress.waiters import Unclaimed

__all__ = ["Meter"]

_SECOND_US = 1_000_000
_CLIENT_CLOSED_REQUEST = 499


class Meter:
    """Counts how requests end."""

    def __init__(self, metrics: IngressMetrics) -> None:
        self._metrics = metrics
        # `labels` costs more than the update behind it: successes keep theirs.
        self._successes: dict[
            tuple[str, str, Priority],
            tuple[Callable[[], None], Callable[[float], None]],
        ] = {}
        self._first = metrics.replies.labels("first").inc

    def succeeded(
        self, model: str, version: str, priority: Priority, total_us: int
    ) -> None:
        kept = self._successes.get((model, version, priority))
        if kept is None:
            name = priority.name.lower()
            kept = self._successes[model, version, priority] = (
                self._metrics.requests.labels(
                    model, version, name, HTTPStatus.OK.value, ""
                ).inc,
                self._metrics.latency.labels(model, version, name).observe,
            )
        count, observe = kept
        count()
        observe(total_us / _SECOND_US)
        self._first()

    def refused(self, exchange: Exchange, refusal: Refusal, total_us: int) -> None:
        labels = _labels(exchange)
        self._metrics.requests.labels(*labels, refusal.status, refusal.reason).inc()
        self._metrics.latency.labels(*labels).observe(total_us / _SECOND_US)

    def unread(self, refusal: Refusal) -> None:
        """What was refused named no model, or not to its end."""
        self._metrics.requests.labels(
            UNKNOWN,
            UNKNOWN,
            Priority.STANDARD.name.lower(),
            refusal.status,
            refusal.reason,
        ).inc()

    def accepted(self, exchange: Exchange) -> None:
        self._metrics.requests.labels(
            *_labels(exchange), HTTPStatus.ACCEPTED.value, ""
        ).inc()

    def cancelled(self, exchange: Exchange) -> None:
        """The client went away before its answer."""
        self._metrics.requests.labels(
            *_labels(exchange), _CLIENT_CLOSED_REQUEST, Reason.CANCELLED
        ).inc()

    def unclaimed(self, what: Unclaimed) -> None:
        """A reply answered nobody."""
        self._metrics.replies.labels(what).inc()

    def look(self, in_flight: int, lanes: int, connections: int) -> None:
        """Set the gauges."""
        self._metrics.in_flight.set(in_flight)
        self._metrics.lanes_heard.set(lanes)
        self._metrics.connections.set(connections)


def _labels(exchange: Exchange) -> tuple[str, str, str]:
    served = exchange.served
    priority = exchange.priority.name.lower()
    if served is None:
        return UNKNOWN, UNKNOWN, priority
    return served.model, served.version, priority
