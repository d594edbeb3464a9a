"""Inference from a request's head to its answer, whatever carries the request.

Written once, with callbacks: ``begin`` when the head is there (admission, before
anything is read or parsed), ``finish`` when the body is; ``replies_arrived``,
``log_refused`` and ``tick`` end what waits. All of it runs on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http import HTTPStatus

from headrace.clock import Clock
from headrace.domain import PayloadRef, Reason
from headrace.errors import BusError, HeadraceError, RequestError, StoreUnavailable
from headrace.wire import TIMEOUT_DEFAULT_US, TIMEOUT_MAX_US
from services.ingress.admitting import NO_FORMER, Admission
from services.ingress.answers import refusal_around_id
from services.ingress.bodies import RESERVED_FROM_BYTES, Bodies, body_too_large
from services.ingress.body import BodyRefused, overrides
from services.ingress.bounds import HTTP_LIMIT, MODEL_LIMIT, PACKED_LIMIT, decompressed
from services.ingress.claims import Claims
from services.ingress.drain import Drain
from services.ingress.endings import Endings
from services.ingress.exchange import Exchange
from services.ingress.fleet import Destination, Fleet
from services.ingress.head import Head, Target
from services.ingress.identity import RequestIds
from services.ingress.known import KnownHeads, TurnedAway
from services.ingress.outcomes import Outcomes
from services.ingress.parsing import Parsed
from services.ingress.producing import Outbox
from services.ingress.refusal import Refusal, log_unavailable, refuse
from services.ingress.settings import IngressLimits
from services.ingress.timing import over, waits_to

__all__ = ["CHECKED_BYTES_MAX", "CHECKED_PER_TICK_MAX", "TICK_US", "Handler"]

CHECKED_BYTES_MAX = 16 * 1024
CHECKED_PER_TICK_MAX = 4
"""A request that is refused for its load or its time limit is told first what is wrong
with it, which no retry mends, if its body is no longer than this, and for so many in a
tick: under a load of refusals nearly all end unparsed."""

SAME_US = 1_000
"""So long, at most, requests with one head are told the same: the door judges what is
ahead in steps of this."""

LOG_SILENT_US = 2_000_000
"""While the log has acknowledged nothing for so long, though a heartbeat is written
every 250 ms, requests are refused: they would wait in the producer until they end."""

SILENT = "it has acknowledged nothing for 2 s"

GAP_US = 500_000
GAP_GRACE_US = 150_000
"""After the process stood still, replies that lie in the log are read for so long
before anybody is told that none came (D7)."""

TICK_US = 5_000
"""Between two calls of ``tick``: how late a deadline is noticed at most, beside the
wheel's own 8 ms, and by what the loop's lag is measured."""


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
        claims: Claims,
        keep: Callable[
            [Exchange, Parsed, bytes | bytearray, int, PayloadRef | None], None
        ],
    ) -> None:
        """``keep`` sends on what has a kept answer."""
        self.limits = limits
        self.clock = clock
        self.outcomes = outcomes
        self.drain = Drain(limits)
        self.bodies = Bodies(limits.bodies_bytes_max)
        self.ends = Endings(
            admission=admission,
            bodies=self.bodies,
            claims=claims,
            outcomes=outcomes,
            clock=clock,
        )
        self.known_heads = KnownHeads()
        self._waiting = self.ends.waiters.by_id
        self.new_request_id = RequestIds().next
        self._fleet = fleet
        self._admission = admission
        self._outbox = outbox
        self._claims = claims
        self._keep = keep
        self._ticked_us = clock.now_us()
        self._expire_from_us = 0
        self._checks_left = CHECKED_PER_TICK_MAX
        self._log_silent_at_us: int | None = None

    def begin(self, exchange: Exchange, target: Target, head: Head) -> None:
        """Take in a head and decide whether the body is worth reading. A refusal is
        answered at the body's end, so that the connection stays in step; one for the
        body's length at once."""
        exchange.head = head
        exchange.tenant = head.tenant
        length = head.content_length or 0
        try:
            if length > self.limits.http_body_bytes_max:
                self.ends.refuse(
                    exchange, body_too_large(self.limits.http_body_bytes_max, length)
                )
                return
            exchange.refusal = head.fault or self._admit(exchange, target)
            if length > RESERVED_FROM_BYTES and exchange.refusal is None:
                exchange.refusal = self.bodies.reserve(exchange, length)
        except Exception as error:  # noqa: BLE001 - its client must be told of a fault
            exchange.refusal = self.ends.own_fault(exchange, error)

    def body_grew(self, exchange: Exchange, size: int) -> None:
        """A body of unknown length has ``size`` bytes so far."""
        if size > self.limits.http_body_bytes_max:
            self.ends.refuse(
                exchange, body_too_large(self.limits.http_body_bytes_max, size)
            )
        elif size - exchange.reserved_bytes > RESERVED_FROM_BYTES:
            exchange.refusal = self.bodies.reserve(exchange, 2 * size)

    def body_late(self, exchange: Exchange) -> None:
        """The body did not come to its end in time."""
        if not exchange.response_complete:
            self.ends.refuse(
                exchange,
                refuse(
                    Reason.INVALID,
                    "the body was not complete "
                    f"{self.limits.http_body_timeout_ms} ms after its head "
                    "(http_body_timeout_ms)",
                    status=HTTPStatus.REQUEST_TIMEOUT,
                ),
            )

    def finish(self, exchange: Exchange, body: bytes | bytearray) -> Refusal | None:
        """The body is complete: answer the refusal, or send the request on."""
        refusal = exchange.refusal
        if refusal is None:
            try:
                refusal = self._produce(exchange, body)
            except Exception as error:  # noqa: BLE001 - as in begin
                refusal = self._failed(exchange, error)
        if refusal is not None:
            if exchange.spoke:
                self.ends.stop_waiting(exchange)
            self.ends.refuse(exchange, refusal)
        elif exchange.reserved_bytes and not exchange.is_claiming:
            self.bodies.release(exchange)
        return refusal

    def turned_away(self, exchange: Exchange, refusal: Refusal) -> TurnedAway:
        """``exchange`` was refused for its head alone."""
        before, after = refusal_around_id(refusal, exchange.head.x_request_id)
        return TurnedAway(
            refusal,
            exchange.served,
            exchange.priority,
            exchange.started_us + SAME_US,
            self._admission.verdict,
            before,
            after,
        )

    def turned_away_again(self, turned_away: TurnedAway, data: bytes) -> bytes | None:
        """The answer to a request with the same head that comes right behind one that
        was turned away. None: it is to be looked at by itself."""
        now_us = self.clock.now_us()
        if (
            now_us >= turned_away.until_us
            or turned_away.verdict != self._admission.verdict
            or self.drain.is_on
            or self._may_check(len(data))
            or overrides(data)
            or not self.outcomes.turned_away(turned_away, now_us)
        ):
            return None
        return b"%b%b%b" % (
            turned_away.before_id,
            self.new_request_id().encode(),
            turned_away.after_id,
        )

    def _failed(self, exchange: Exchange, error: Exception) -> Refusal:
        match error:
            case RequestError():
                if isinstance(error, BodyRefused):
                    exchange.client_id = error.client_id
                return refuse(Reason(error.reason), str(error), logged=error.logged)
            case BusError():
                return log_unavailable(error)
            case StoreUnavailable():
                return refuse(Reason.STORE_UNAVAILABLE, str(error))
            case _:
                return self.ends.own_fault(exchange, error)

    def client_left(self, exchange: Exchange) -> None:
        """The connection is gone: nobody waits, and what is queued need not run."""
        self.bodies.release(exchange)
        self.outcomes.cancelled(exchange)
        was_waiting = self.ends.leave(exchange)
        # A kept answer may be asked for by others.
        if was_waiting and exchange.head.keep is None:
            self._outbox.cancel(exchange)

    def cut_off(self, refusal: Refusal) -> None:
        """The process ends: those who wait are told, and what is queued need not
        run."""
        for exchange in list(self._waiting.values()):
            if exchange.head.keep is None:
                self._outbox.cancel(exchange)
            self.ends.end(exchange, refusal)

    def log_heard(self, at_us: int) -> None:
        """The log acknowledged a record of this process at ``at_us``."""
        self._log_silent_at_us = at_us + LOG_SILENT_US

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
        self.ends.expire(now_us)

    def _admit(self, exchange: Exchange, target: Target) -> Refusal | None:
        """Whether to take the request in, from what is known before its body."""
        try:
            destination = self._fleet.resolve(*target)
        except RequestError as error:
            return self._unresolved(error, exchange.started_us)
        exchange.destination = destination
        now_us, late_us = exchange.started_us, exchange.started_us - self._ticked_us
        if not self._fleet.router.lanes_patient:
            return refuse(Reason.NO_FORMER, NO_FORMER)
        if self._log_is_silent(now_us):
            return log_unavailable(SILENT)
        if len(self._waiting) >= self.limits.in_flight_max:
            return refuse(
                Reason.OVERLOADED,
                f"{self.limits.in_flight_max} requests are in flight, and no more may "
                "be (in_flight_max)",
            )
        if late_us > 2 * TICK_US:
            # A burst is read in one turn of the loop: its last requests have waited
            # for the first ones. A process that stood still longer is not saturated.
            self._admission.loop_is_late(min(late_us - TICK_US, GAP_US))
        head = exchange.head
        if head.priority is not None:
            exchange.priority = head.priority
        exchange.limit_us = (
            head.timeout_us
            or destination.served.latency_objective_us
            or TIMEOUT_DEFAULT_US
        )
        if head.keep is not None:
            exchange.named_version = target.version
            if head.keep.is_async:
                exchange.limit_us = head.timeout_us or TIMEOUT_MAX_US
        exchange.doubt = doubt = (
            head.priority_fault
            or head.timeout_fault
            or self._find_lane(exchange, now_us)
        )
        if (
            doubt is None
            or not (head.timeout_us and head.priority is not None)
            or self._may_check(head.content_length)
        ):
            return None
        return doubt

    def _unresolved(self, error: RequestError, now_us: int) -> Refusal:
        if self._fleet.starting and self._log_is_silent(now_us):
            return log_unavailable(SILENT)
        return refuse(Reason(error.reason), str(error))

    def _may_check(self, size: int | None) -> bool:
        return self._checks_left > 0 and size is not None and size <= CHECKED_BYTES_MAX

    def _log_is_silent(self, now_us: int) -> bool:
        silent_at_us = self._log_silent_at_us
        # While the process stood still it heard of no acknowledgement either.
        return (
            silent_at_us is not None
            and now_us > silent_at_us
            and now_us - self._ticked_us < GAP_US
            and now_us >= self._expire_from_us
        )

    def _find_lane(self, exchange: Exchange, now_us: int) -> Refusal | None:
        assert exchange.destination is not None
        found = self._admission.decide(
            exchange.destination,
            exchange.priority,
            tenant=exchange.tenant,
            limit_us=exchange.limit_us,
            in_flight=len(self._waiting),
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
            body = self._unpacked(head, destination, body)
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
            doubt = self._doubt_of_body(exchange, parsed, now_us)
        if doubt is not None:
            return doubt
        deadline_us = exchange.started_us + exchange.limit_us
        waits_to_us = (
            deadline_us if head.keep is None else waits_to(head, now_us, deadline_us)
        )
        if now_us >= deadline_us:
            return over(exchange)
        # The reply may be faster than the return from produce.
        self.ends.wait(exchange, waits_to_us)
        if self._claims.takes(parsed.size):
            exchange.is_claiming = True
            self._claims.write(
                exchange.tenant,
                exchange.request_id,
                parsed.tensors,
                partial(self._claimed, exchange, parsed, body, deadline_us),
            )
        else:
            self._send(exchange, parsed, body, deadline_us, now_us, None)
        return None

    def _unpacked(
        self, head: Head, destination: Destination, body: bytes | bytearray
    ) -> bytes:
        is_stored = self._claims.has_store and head.json_bytes is not None
        bytes_max, limit = min(
            (
                destination.parser.bounds.body_bytes_max(head),
                PACKED_LIMIT if is_stored else MODEL_LIMIT,
            ),
            (self.limits.http_body_bytes_max, HTTP_LIMIT),
        )
        return decompressed(body, head.encoding, bytes_max, limit)

    def _doubt_of_body(
        self, exchange: Exchange, parsed: Parsed, now_us: int
    ) -> Refusal | None:
        """What the body says wins over the head, by which it was let in."""
        head = exchange.head
        exchange.limit_us = parsed.timeout_us or exchange.limit_us
        if parsed.priority is not None:
            exchange.priority = parsed.priority
        return (
            (head.priority_fault if parsed.priority is None else None)
            or (None if parsed.timeout_us else head.timeout_fault)
            or self._find_lane(exchange, now_us)
        )

    def _claimed(
        self,
        exchange: Exchange,
        parsed: Parsed,
        body: bytes | bytearray,
        deadline_us: int,
        payload: PayloadRef | None,
        error: HeadraceError | None,
    ) -> None:
        """The request's tensors are in the store, or could not be written."""
        exchange.is_claiming = False
        self.bodies.release(exchange)
        if not self.ends.is_waiting(exchange):
            return
        if payload is None:
            assert error is not None
            self.ends.end(exchange, self._failed(exchange, error))
            return
        try:
            now_us = self.clock.now_us()
            self._send(exchange, parsed, body, deadline_us, now_us, payload)
        except Exception as failure:  # noqa: BLE001 - as in begin
            self.ends.end(exchange, self._failed(exchange, failure))

    def _send(
        self,
        exchange: Exchange,
        parsed: Parsed,
        body: bytes | bytearray,
        deadline_us: int,
        now_us: int,
        payload: PayloadRef | None,
    ) -> None:
        destination = exchange.destination
        assert destination is not None
        if exchange.head.keep is None:
            self._outbox.send(
                exchange, parsed, deadline_us, now_us, len(self._waiting), payload
            )
        else:
            self._keep(exchange, parsed, body, deadline_us, payload)
        self._admission.sent(
            exchange.lane,
            destination,
            exchange.priority,
            parsed.key.rows,
            deadline_us,
            tenant=exchange.tenant,
        )
