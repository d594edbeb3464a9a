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
        # `labels` costs more than the update behind it.
        self._kept: dict[
            tuple[str, str, Priority, int, str],
            tuple[Callable[[], None], Callable[[float], None]],
        ] = {}
        self._first = metrics.replies.labels("first").inc

    def succeeded(
        self, model: str, version: str, priority: Priority, total_us: int
    ) -> None:
        self._count((model, version, priority, HTTPStatus.OK, ""), total_us)
        self._first()

    def refused(self, exchange: Exchange, refusal: Refusal, total_us: int) -> None:
        model, version = _named(exchange)
        self._count(
            (model, version, exchange.priority, refusal.status, refusal.reason),
            total_us,
        )

    def _count(
        self, ending: tuple[str, str, Priority, int, str], total_us: int
    ) -> None:
        kept = self._kept.get(ending)
        if kept is None:
            model, version, priority, status, reason = ending
            labels = model, version, priority.name.lower()
            kept = self._kept[ending] = (
                self._metrics.requests.labels(*labels, int(status), reason).inc,
                self._metrics.latency.labels(*labels).observe,
            )
        count, observe = kept
        count()
        observe(total_us / _SECOND_US)

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
            *_named(exchange),
            exchange.priority.name.lower(),
            HTTPStatus.ACCEPTED.value,
            "",
        ).inc()

    def cancelled(self, exchange: Exchange) -> None:
        """The client went away before its answer."""
        self._metrics.requests.labels(
            *_named(exchange),
            exchange.priority.name.lower(),
            _CLIENT_CLOSED_REQUEST,
            Reason.CANCELLED,
        ).inc()

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
