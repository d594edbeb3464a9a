"""Requests into the log: a producer for quiet times, for busy ones, and for queues.

The number of Kafka requests is the cost, not the number of records: without linger a
record leaves at once, with some milliseconds many share a request. And the producers
are not idempotent: such a one asks its socket without a pause from the end of its
linger until its last request is answered (librdkafka 2.16: it holds back what would be
more than five records on the way, but not its clock), at 6,000 a second and 3 ms to
the answer for 112 µs of CPU per record without linger, 56 with 1 ms, 3.4 with 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from functools import partial

from headrace.broker import Delivery, Producer
from headrace.clock import Clock
from headrace.domain import PayloadRef, Priority, Reason
from headrace.errors import BusError, BusTimeout, RequestError
from headrace.wire import (
    NewRequest,
    RequestEncoder,
    RequestForm,
    Topics,
    cancel_headers,
)
from headrace.wire.headers import X_REQUEST_ID
from services.ingress.exchange import Exchange
from services.ingress.parsing import Likeness, Parsed

__all__ = ["Outbox", "Pace", "PaceMaker", "encoded"]

WINDOW_US = 50_000
BUSY_FROM_PER_S = 1_500
QUIET_BELOW_PER_S = 700
TENANTS_MAX = 64
"""The forms of so many tenants' records are remembered by each kind of request; then
all of that kind are forgotten."""

PATIENT_FROM_MS = 10
BUSY_BELOW_MS = 6
"""Where requests wait so long, some more milliseconds on the way are spent in a queue
anyway."""


def encoded(  # noqa: PLR0913 - what a record is made of
    exchange: Exchange,
    parsed: Parsed,
    encoder: RequestEncoder,
    *,
    request_id: str,
    deadline_us: int | None,
    log_us: int,
    payload_bytes_max: int,
    payload: PayloadRef | None,
) -> tuple[list[tuple[str, bytes | None]], bytes]:
    """Headers and value of the request's record, ``deadline_us`` and ``log_us``, now,
    in log time; ``payload``: where its tensors are instead. Raises
    :class:`RequestError` when it is too large."""
    if parsed.size > payload_bytes_max and payload is None:
        raise RequestError(
            f"the request's tensors take {parsed.size} bytes, at most "
            f"{payload_bytes_max} are allowed (payload_bytes_max)",
            reason=Reason.TOO_LARGE,
        )
    head = exchange.head
    request = _request(exchange, parsed, request_id, deadline_us, payload)
    headers, value = encoder.encode(request, log_us)
    if head.x_request_id:
        # The log's headers are UTF-8, HTTP's are not.
        x_request_id = head.x_request_id.decode("latin-1").encode()
        headers.append((X_REQUEST_ID, x_request_id))
    return headers, value


def _request(
    exchange: Exchange,
    parsed: Parsed,
    request_id: str,
    deadline_us: int | None,
    payload: PayloadRef | None,
) -> NewRequest:
    head, served = exchange.head, exchange.served
    assert served is not None
    return NewRequest(
        id=request_id,
        tenant=exchange.tenant,
        model=served.model,
        version=served.version,
        priority=exchange.priority,
        deadline_us=deadline_us,
        compatibility=parsed.key,
        tensors=parsed.tensors,
        client_id=parsed.client_id,
        traceparent=head.traceparent.decode("latin-1"),
        tracestate=head.tracestate.decode("latin-1"),
        payload=payload,
    )


class Pace(IntEnum):
    """How long a request lingers for company on its way into the log."""

    QUIET = 0
    BUSY = 1
    PATIENT = 2


class PaceMaker:
    """How fast requests come, and so whether lingering pays. Each two thresholds lie
    apart so that what is between them changes nothing."""

    def __init__(self) -> None:
        self._since_us = 0
        self._count = 0
        self._pace = Pace.QUIET

    def count(self, now_us: int, in_flight: int) -> Pace:
        """Count one request, while ``in_flight`` wait for their answers."""
        self._count += 1
        elapsed_us = now_us - self._since_us
        if elapsed_us >= WINDOW_US:
            self._pace = self._pace_at(self._count * 1_000_000 // elapsed_us, in_flight)
            self._since_us = now_us
            self._count = 0
        return self._pace

    def _pace_at(self, per_s: int, in_flight: int) -> Pace:
        is_quiet, is_patient = self._pace is Pace.QUIET, self._pace is Pace.PATIENT
        if per_s < (BUSY_FROM_PER_S if is_quiet else QUIET_BELOW_PER_S):
            return Pace.QUIET
        # By Little's law a request waits for in_flight / per_s.
        from_ms = BUSY_BELOW_MS if is_patient else PATIENT_FROM_MS
        return Pace.PATIENT if in_flight * 1000 >= per_s * from_ms else Pace.BUSY


class Outbox:
    """Writes requests. ``refused`` is called on a producer's thread for a record that
    the log refused; not for one whose time ran out, since its outcome is unknown."""

    def __init__(  # noqa: PLR0913 - what a record is made of
        self,
        producers: Mapping[Pace, Producer],
        *,
        topics: Topics,
        encoder: RequestEncoder,
        payload_bytes_max: int,
        clock: Clock,
        to_log_us: Callable[[int], int],
        refused: Callable[[Exchange, BusError], None],
    ) -> None:
        self._producers = producers
        self._topics = topics
        self._encoder = encoder
        self._payload_bytes_max = payload_bytes_max
        self._clock = clock
        self._to_log_us = to_log_us
        self._refused = refused
        self._pace = PaceMaker()
        self._topic_of: dict[str, str] = {}

    def send(
        self,
        exchange: Exchange,
        parsed: Parsed,
        deadline_us: int,
        now_us: int,
        in_flight: int,
        payload: PayloadRef | None = None,
    ) -> None:
        """Produce the request to its lane; ``in_flight`` wait already.

        Raises :class:`RequestError` when it is too large, :class:`BusError` when the
        record is refused here and now.
        """
        head = exchange.head
        like, to_log_us = parsed.like, self._to_log_us
        if (
            like is None
            or payload is not None
            or parsed.size > self._payload_bytes_max
            or head.traceparent
            or head.x_request_id
        ):
            headers, value = encoded(
                exchange,
                parsed,
                self._encoder,
                request_id=exchange.request_id,
                deadline_us=to_log_us(deadline_us),
                log_us=to_log_us(now_us),
                payload_bytes_max=self._payload_bytes_max,
                payload=payload,
            )
        else:
            form = like.forms.get(exchange.tenant) or self._form(exchange, parsed, like)
            headers, value = form.record(
                exchange.request_id,
                parsed.tensors,
                deadline_us=to_log_us(deadline_us),
                log_us=to_log_us(now_us),
            )
        pace = self._pace.count(now_us, in_flight)
        priority = exchange.priority
        if priority is Priority.REALTIME:
            pace = min(pace, Pace.BUSY)
        exchange.outlet = producer = self._producers[pace]
        served = exchange.served
        assert served is not None
        topic = self._topic_of.get(served.model)
        if topic is None:
            topic = self._topic_of[served.model] = self._topics.requests(served.model)
        producer.produce(
            topic,
            self._topics.request_partition(exchange.lane, priority),
            value,
            headers=headers,
            on_delivery=partial(self._delivered, exchange),
        )

    def _form(self, exchange: Exchange, parsed: Parsed, like: Likeness) -> RequestForm:
        if len(like.forms) >= TENANTS_MAX:
            like.forms.clear()
        request = _request(exchange, parsed, "", None, None)
        form = like.forms[exchange.tenant] = self._encoder.form(request)
        return form

    def cancel(self, exchange: Exchange) -> None:
        """Take back what :meth:`send` wrote, behind it: by another producer the cancel
        could come first. A cancel that the log refuses leaves the request to run."""
        served, reply_to = exchange.served, self._encoder.reply_to
        if exchange.outlet is None:
            return
        assert served is not None
        assert reply_to is not None
        headers = cancel_headers(
            exchange.request_id,
            exchange.tenant,
            reply_to,
            source=self._encoder.source,
            log_us=self._to_log_us(self._clock.now_us()),
        )
        with suppress(BusError):
            exchange.outlet.produce(
                self._topics.requests(served.model),
                self._topics.request_partition(exchange.lane, exchange.priority),
                None,
                headers=headers,
            )

    def _delivered(self, exchange: Exchange, delivery: Delivery) -> None:
        error = delivery.error
        if error is not None and not isinstance(error, BusTimeout):
            self._refused(exchange, error)
