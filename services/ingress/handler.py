"""Inference from a request's head to its answer, whatever carries the request.

Written once, with callbacks: ``begin`` when the head is there (admission, before
anything is read or parsed), ``finish`` when the body is; ``replies_arrived``,
``log_refused`` and ``tick`` end what waits. All of it runs on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus

from headrace.clock import Clock
from headrace.domain import Reason
from headrace.errors import BusError, RequestError
from headrace.wire import TIMEOUT_DEFAULT_US, Answer, Locator, Replies
from services.ingress.admitting import NO_FORMER, Admission
from services.ingress.answers import (
    accepted_answer,
    identity_fields,
    refusal_answer,
    result_answer,
)
from services.ingress.bodies import RESERVED_FROM_BYTES, Bodies
from services.ingress.body import BodyRefused, overrides
from services.ingress.bounds import HTTP_LIMIT, MODEL_LIMIT, decompressed
from services.ingress.drain import Drain
from services.ingress.exchange import Exchange
from services.ingress.fleet import Fleet
from services.ingress.head import TIMEOUT_US_MAX, Head, Target
from services.ingress.identity import RequestIds
from services.ingress.outcomes import Outcomes
from services.ingress.parsing import Parsed
from services.ingress.producing import Outbox
from services.ingress.refusal import OWN_FAULT, Refusal, log_unavailable, refuse
from services.ingress.settings import IngressLimits
from services.ingress.waiters import DeadlineWheel, Unclaimed, Waiters

__all__ = ["CHECKED_BYTES_MAX", "CHECKED_PER_TICK_MAX", "TICK_US", "Handler"]

CHECKED_BYTES_MAX = 16 * 1024
CHECKED_PER_TICK_MAX = 4
"""A request that is refused for its load or its time limit is told first what is wrong
with it, which no retry mends, if its body is no longer than this, and for so many in a
tick: under a load of refusals nearly all end unparsed."""

LOG_SILENT_US = 2_000_000
"""While the log has acknowledged nothing for so long, though a heartbeat is written
every 250 ms, requests are refused: they would wait in the producer until they end."""

ACCEPT_US = 5_000_000
"""Longest that 202 waits for the log."""

GAP_US = 500_000
GAP_GRACE_US = 150_000
"""After the process stood still, replies that lie in the log are read for so long
before anybody is told that none came (D7)."""

TICK_US = 5_000
"""Between two calls of ``tick``: how late a deadline is noticed at most, beside the
wheel's own 8 ms, and by what the loop's lag is measured."""

RUNTIMES_WORDS = "the model's runtime told the sender why"
"""In the log, where its own words could show what the request held; a dead letter has
them."""

_BY_RUNTIME = frozenset({Reason.POISON, Reason.MODEL_ERROR})


class Handler:
    """Every inference request of this process."""

    def __init__(  # noqa: PLR0913 - all that a request meets
        self,
        limits: IngressLimits,
        *,
        fleet: Fleet,
        admission: Admission,
        outbox: Outbox,
        outcomes: Outcomes,
        clock: Clock,
        keep: Callable[[Exchange, Parsed, bytes | bytearray, int], None],
    ) -> None:
        """``keep`` sends on what has a kept answer."""
        self.limits = limits
        self.clock = clock
        self.outcomes = outcomes
        self.drain = Drain(limits.drain_ms)
        self.waiters: Waiters[Exchange] = Waiters()
        self.bodies = Bodies(limits.bodies_bytes_max)
        self.new_request_id = RequestIds().next
        self._fleet = fleet
        self._admission = admission
        self._outbox = outbox
        self._keep = keep
        self._deadlines: DeadlineWheel[Exchange] = DeadlineWheel()
        self._ticked_us = clock.now_us()
        self._expire_from_us = 0
        self._checks_left = CHECKED_PER_TICK_MAX
        self._log_heard_us: int | None = None

    def begin(self, exchange: Exchange, target: Target, head: Head) -> None:
        """Take in a head and decide whether the body is worth reading. A refusal is
        answered at the body's end, so that the connection stays in step; one for the
        body's length at once."""
        try:
            self._begin(exchange, target, head)
        except Exception as error:  # noqa: BLE001 - its client must be told of a fault
            exchange.refusal = self._own_fault(exchange, error)

    def _begin(self, exchange: Exchange, target: Target, head: Head) -> None:
        exchange.head = head
        exchange.tenant = head.tenant
        length = head.content_length or 0
        if length > self.limits.http_body_bytes_max:
            self.refuse(exchange, self._body_too_large(length))
            return
        exchange.refusal = head.fault or self._admit(exchange, target)
        if exchange.refusal is None and length > RESERVED_FROM_BYTES:
            exchange.refusal = self.bodies.reserve(exchange, length)

    def body_grew(self, exchange: Exchange, size: int) -> None:
        """A body of unknown length has ``size`` bytes so far."""
        if size > self.limits.http_body_bytes_max:
            self.refuse(exchange, self._body_too_large(size))
        elif size - exchange.reserved_bytes > RESERVED_FROM_BYTES:
            exchange.refusal = self.bodies.reserve(exchange, 2 * size)

    def body_late(self, exchange: Exchange) -> None:
        """The body did not come to its end in time."""
        if not exchange.response_complete:
            self.refuse(
                exchange,
                refuse(
                    Reason.INVALID,
                    "the body was not complete "
                    f"{self.limits.http_body_timeout_ms} ms after its head "
                    "(http_body_timeout_ms)",
                    status=HTTPStatus.REQUEST_TIMEOUT,
                ),
            )

    def finish(self, exchange: Exchange, body: bytes | bytearray) -> None:
        """The body is complete: answer the refusal, or send the request on."""
        refusal = exchange.refusal
        if refusal is None:
            try:
                refusal = self._produce(exchange, body)
            except RequestError as error:
                if isinstance(error, BodyRefused):
                    exchange.client_id = error.client_id
                refusal = refuse(Reason(error.reason), str(error), logged=error.logged)
            except BusError as error:
                refusal = log_unavailable(error)
            except Exception as error:  # noqa: BLE001 - as in begin
                refusal = self._own_fault(exchange, error)
        if refusal is None:
            self.bodies.release(exchange)
        else:
            self._stop_waiting(exchange)
            self.refuse(exchange, refusal)

    def client_left(self, exchange: Exchange) -> None:
        """The connection is gone: nobody waits, and what is queued need not run."""
        self.bodies.release(exchange)
        self.outcomes.cancelled(exchange)
        self._deadlines.drop(exchange)
        was_waiting = self.waiters.give_up(exchange, Unclaimed.CANCELLED)
        # A kept answer may be asked for by others.
        if was_waiting and exchange.head.keep is None:
            self._outbox.cancel(exchange)

    def refuse(self, exchange: Exchange, refusal: Refusal) -> None:
        """Answer with ``refusal``, count it and log it."""
        self.bodies.release(exchange)
        total_us = self.clock.now_us() - exchange.started_us
        self.outcomes.refused(exchange, refusal, total_us)
        fields, body = refusal_answer(refusal, exchange.client_id)
        identity = identity_fields(exchange.request_id, exchange.head.x_request_id)
        exchange.deliver(refusal.status, identity + fields, (body,))

    def replies_arrived(self, records: Iterable[Replies]) -> None:
        """End the requests that these replies answer."""
        now_us = self.clock.now_us()
        for record in records:
            self.outcomes.ran(record)
            for answer in record.answers:
                claimed = self.waiters.claim(answer.id, answer.tenant)
                if isinstance(claimed, Unclaimed):
                    self.outcomes.unclaimed(claimed)
                else:
                    self._deadlines.drop(claimed)
                    self._answer(claimed, record, answer, now_us)

    def log_refused(self, exchange: Exchange, error: BusError) -> None:
        """The log refused the record of a request."""
        if self._stop_waiting(exchange):
            self.refuse(exchange, log_unavailable(error))

    def accept(self, exchange: Exchange, locator: Locator) -> None:
        """The log has it: its client may ask for the answer."""
        if self._stop_waiting(exchange):
            exchange.request_id = exchange.record_id
            fields, body = accepted_answer(locator)
            fields += b"preference-applied: respond-async\r\n" + identity_fields(
                exchange.request_id, exchange.head.x_request_id
            )
            self.outcomes.accepted(exchange)
            exchange.deliver(HTTPStatus.ACCEPTED, fields, (body,))

    def reply(self, exchange: Exchange, record: Replies, answer: Answer) -> None:
        """Its answer, read from the log."""
        if self._stop_waiting(exchange):
            exchange.request_id = exchange.record_id
            self._answer(exchange, record, answer, self.clock.now_us())

    def end(self, exchange: Exchange, refusal: Refusal) -> None:
        if self._stop_waiting(exchange):
            exchange.request_id = exchange.record_id
            self.refuse(exchange, refusal)

    def is_waiting(self, exchange: Exchange) -> bool:
        return self.waiters.has(exchange)

    def log_heard(self, at_us: int) -> None:
        """The log acknowledged a record of this process at ``at_us``."""
        self._log_heard_us = at_us

    def tick(self) -> None:
        """Answer those whose time is over; call it every few milliseconds."""
        now_us = self.clock.now_us()
        self._checks_left = CHECKED_PER_TICK_MAX
        if now_us - self._ticked_us > GAP_US:
            self._expire_from_us = now_us + GAP_GRACE_US
        self._admission.loop_turned(max(now_us - self._ticked_us - TICK_US, 0))
        self._ticked_us = now_us
        if now_us < self._expire_from_us:
            return
        for exchange in self._deadlines.due(now_us):
            if self.waiters.give_up(exchange):
                if exchange.head.keep is not None:
                    exchange.request_id = exchange.record_id
                self.refuse(
                    exchange,
                    refuse(
                        Reason.EXPIRED,
                        "no answer came within the time limit of "
                        f"{exchange.limit_us / 1000:g} ms",
                        admitted=True,
                    ),
                )

    def _admit(self, exchange: Exchange, target: Target) -> Refusal | None:
        """Whether to take the request in, from what is known before its body."""
        try:
            destination = self._fleet.resolve(target.model, target.version)
        except RequestError as error:
            return refuse(Reason(error.reason), str(error))
        exchange.destination = destination
        if not self._fleet.router.lanes_patient:
            return refuse(Reason.NO_FORMER, NO_FORMER)
        if self._log_is_silent(exchange.started_us):
            return log_unavailable("it has acknowledged nothing for 2 s")
        if len(self.waiters) >= self.limits.in_flight_max:
            return refuse(
                Reason.OVERLOADED,
                f"{self.limits.in_flight_max} requests are in flight, and no more may "
                "be (in_flight_max)",
            )
        head = exchange.head
        if head.priority is not None:
            exchange.priority = head.priority
        exchange.limit_us = (
            head.timeout_us
            or destination.served.latency_objective_us
            or TIMEOUT_DEFAULT_US
        )
        self._look_at_the_clock(exchange.started_us)
        if head.keep is not None:
            exchange.named_version = target.version
            if head.keep.is_async:
                exchange.limit_us = head.timeout_us or TIMEOUT_US_MAX
        exchange.doubt = (
            head.priority_fault
            or head.timeout_fault
            or self._find_lane(exchange, exchange.started_us)
        )
        if (
            exchange.doubt is None
            or not (head.timeout_us and head.priority is not None)
            or self._may_check(head.content_length)
        ):
            return None
        return exchange.doubt

    def _look_at_the_clock(self, now_us: int) -> None:
        late_us = now_us - self._ticked_us - TICK_US
        if late_us > TICK_US:
            # A burst is read in one turn of the loop: its last requests have waited
            # for the first ones. A process that stood still longer is not saturated.
            self._admission.loop_is_late(min(late_us, GAP_US))

    def _may_check(self, size: int | None) -> bool:
        return self._checks_left > 0 and size is not None and size <= CHECKED_BYTES_MAX

    def _log_is_silent(self, now_us: int) -> bool:
        # While the process stood still it heard of no acknowledgement either.
        return (
            self._log_heard_us is not None
            and now_us - self._log_heard_us > LOG_SILENT_US
            and now_us - self._ticked_us < GAP_US
            and now_us >= self._expire_from_us
        )

    def _find_lane(self, exchange: Exchange, now_us: int) -> Refusal | None:
        destination = exchange.destination
        assert destination is not None
        found = self._admission.decide(
            destination.served,
            destination.lanes,
            exchange.priority,
            tenant=exchange.tenant,
            limit_us=exchange.limit_us,
            in_flight=len(self.waiters),
            now_us=now_us,
        )
        if isinstance(found, Refusal):
            return found
        exchange.lane = found
        return None

    def _produce(self, exchange: Exchange, body: bytes | bytearray) -> Refusal | None:
        head, destination = exchange.head, exchange.destination
        assert destination is not None
        if head.encoding:
            bytes_max, limit = min(
                (destination.parser.bounds.body_bytes_max(head), MODEL_LIMIT),
                (self.limits.http_body_bytes_max, HTTP_LIMIT),
            )
            body = decompressed(body, head.encoding, bytes_max, limit)
        doubt = exchange.doubt
        if doubt is not None and not overrides(body):
            if not self._may_check(len(body)):
                return doubt
            self._checks_left -= 1
        parsed = destination.parser.parse(head, body)
        exchange.client_id = parsed.client_id
        exchange.wanted = parsed.wanted
        now_us = self.clock.now_us()
        if parsed.timeout_us or parsed.priority is not None:
            # What the body says wins over the head, by which it was let in.
            exchange.limit_us = parsed.timeout_us or exchange.limit_us
            if parsed.priority is not None:
                exchange.priority = parsed.priority
            refusal = (
                (head.priority_fault if parsed.priority is None else None)
                or (None if parsed.timeout_us else head.timeout_fault)
                or self._find_lane(exchange, now_us)
            )
            if refusal is not None:
                return refusal
        elif doubt is not None:
            return doubt
        deadline_us = exchange.started_us + exchange.limit_us
        waits_to_us = _waits_to(head, now_us, deadline_us)
        refusal = self.drain.refusal_of(waits_to_us)
        refusal = _over(exchange, now_us, deadline_us) or refusal
        if refusal is not None:
            return refusal
        # The reply may be faster than the return from produce.
        self.waiters.add(exchange)
        self._deadlines.put(exchange, waits_to_us)
        if head.keep is None:
            self._outbox.send(
                exchange, parsed, exchange.lane, deadline_us, len(self.waiters)
            )
        else:
            self._keep(exchange, parsed, body, deadline_us)
        self._admission.sent(
            exchange.lane, destination.served, exchange.priority, parsed.key.rows
        )
        return None

    def _answer(
        self, exchange: Exchange, record: Replies, answer: Answer, now_us: int
    ) -> None:
        if answer.reason is not None:
            self.refuse(
                exchange,
                refuse(
                    answer.reason,
                    answer.text,
                    admitted=True,
                    retry_after_us=answer.retry_after_us,
                    logged=RUNTIMES_WORDS if answer.reason in _BY_RUNTIME else None,
                ),
            )
            return
        try:
            fields, body = result_answer(
                exchange, record.model, record.version, answer.outputs
            )
        except RequestError as error:
            self.refuse(exchange, refuse(Reason.MODEL_ERROR, str(error)))
            return
        except Exception as error:  # noqa: BLE001 - others are answered by this record
            self.refuse(exchange, self._own_fault(exchange, error))
            return
        total_us = now_us - exchange.started_us
        self._admission.answered(record.model, total_us, len(self.waiters))
        self.outcomes.succeeded(exchange, record, answer, total_us)
        exchange.deliver(HTTPStatus.OK, fields, body)

    def _own_fault(self, exchange: Exchange, error: Exception) -> Refusal:
        self.outcomes.crashed(exchange.request_id, error)
        return refuse(Reason.CRASH, OWN_FAULT)

    def _stop_waiting(self, exchange: Exchange) -> bool:
        self._deadlines.drop(exchange)
        return self.waiters.give_up(exchange)

    def _body_too_large(self, size: int) -> Refusal:
        return refuse(
            Reason.TOO_LARGE,
            f"the body has {size} bytes or more, at most "
            f"{self.limits.http_body_bytes_max} are allowed (http_body_bytes_max)",
        )


def _over(exchange: Exchange, now_us: int, deadline_us: int) -> Refusal | None:
    if now_us < deadline_us:
        return None
    limit_ms = f"{exchange.limit_us / 1000:g} ms"
    text = f"the time limit of {limit_ms} was over before the body was there"
    return refuse(Reason.EXPIRED, text)


def _waits_to(head: Head, now_us: int, deadline_us: int) -> int:
    is_async = head.keep is not None and head.keep.is_async
    return min(now_us + ACCEPT_US, deadline_us) if is_async else deadline_us
