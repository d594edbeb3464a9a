"""How requests end that have entered: by a reply, a refusal, or their deadline.

All of it runs on the event loop. None of it has an effect on a request that does not
wait any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from http import HTTPStatus

from headrace.clock import Clock
from headrace.domain import Reason
from headrace.errors import BusError, RequestError
from headrace.wire import Answer, Locator, Replies
from services.ingress.admitting import Admission
from services.ingress.answers import (
    accepted_answer,
    identity_fields,
    refusal_answer,
)
from services.ingress.bodies import Bodies
from services.ingress.claims import Claims
from services.ingress.exchange import Exchange
from services.ingress.outcomes import Outcomes
from services.ingress.refusal import OWN_FAULT, Refusal, log_unavailable, refuse
from services.ingress.results import Results
from services.ingress.timing import unanswered
from services.ingress.waiters import DeadlineWheel, Unclaimed, Waiters

__all__ = ["Endings"]

OK = HTTPStatus.OK.value

RUNTIMES_WORDS = "the model's runtime told the sender why"
"""In the log, where its own words could show what the request held; a dead letter has
them."""

_BY_RUNTIME = frozenset({Reason.POISON, Reason.MODEL_ERROR})


class Endings:
    """The requests that wait, and every way in which one stops to."""

    def __init__(
        self,
        *,
        admission: Admission,
        bodies: Bodies,
        claims: Claims,
        outcomes: Outcomes,
        clock: Clock,
    ) -> None:
        self.waiters: Waiters[Exchange] = Waiters()
        self.bodies = bodies
        self.outcomes = outcomes
        self.clock = clock
        self._admission = admission
        self._claims = claims
        self._deadlines: DeadlineWheel[Exchange] = DeadlineWheel()

    def wait(self, exchange: Exchange, until_us: int) -> None:
        """Wait for an end, which is the deadline at the latest."""
        self.waiters.add(exchange)
        self._deadlines.put(exchange, until_us)

    def leave(self, exchange: Exchange) -> bool:
        """Its client has gone; whether the request was waiting."""
        self._deadlines.drop(exchange)
        return self.waiters.give_up(exchange, Unclaimed.CANCELLED)

    def refuse(self, exchange: Exchange, refusal: Refusal) -> None:
        """Answer with ``refusal``, count it and log it."""
        if exchange.reserved_bytes:
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
            results = Results(record)
            for answer in record.answers:
                if answer.payload is None:
                    self._take(results, answer, now_us)
                    continue
                waiter = self.waiters.peek(answer.id, answer.tenant)
                if waiter is None:
                    self._take(results, answer, now_us)
                else:
                    waiter.is_unclaiming = True
                    then = partial(self._arrived, record)
                    self._claims.complete(answer, waiter.wanted, then)
            self._count(results)

    def _arrived(self, record: Replies, answer: Answer) -> None:
        results = Results(record)
        self._take(results, answer, self.clock.now_us())
        self._count(results)

    def _take(self, results: Results, answer: Answer, now_us: int) -> None:
        claimed = self.waiters.claim(answer.id, answer.tenant)
        if isinstance(claimed, Unclaimed):
            self.outcomes.unclaimed(claimed)
        else:
            self._deadlines.drop(claimed)
            self._answer(claimed, results, answer, now_us)

    def _count(self, results: Results) -> None:
        if results.latencies_us:
            record = results.record
            self.outcomes.succeeded(record, results.latencies_us, results.rows)
            in_flight = len(self.waiters)
            for latencies_us in results.latencies_us.values():
                self._admission.answered(record.model, latencies_us, in_flight)

    def log_refused(self, exchange: Exchange, error: BusError) -> None:
        """The log refused the record of a request."""
        if self.stop_waiting(exchange):
            self.refuse(exchange, log_unavailable(error))

    def accept(self, exchange: Exchange, locator: Locator) -> None:
        """The log has it: its client may ask for the answer."""
        if self.stop_waiting(exchange):
            exchange.request_id = exchange.record_id
            fields, body = accepted_answer(locator)
            fields += b"preference-applied: respond-async\r\n" + identity_fields(
                exchange.request_id, exchange.head.x_request_id
            )
            self.outcomes.accepted(exchange)
            exchange.deliver(HTTPStatus.ACCEPTED, fields, (body,))

    def reply(self, exchange: Exchange, record: Replies, answer: Answer) -> None:
        """Its answer, read from the log."""
        if answer.payload is not None and self.is_waiting(exchange):
            exchange.is_unclaiming = True
            then = partial(self.reply, exchange, record)
            self._claims.complete(answer, exchange.wanted, then)
        elif self.stop_waiting(exchange):
            exchange.request_id = exchange.record_id
            results = Results(record)
            self._answer(exchange, results, answer, self.clock.now_us())
            self._count(results)

    def end(self, exchange: Exchange, refusal: Refusal) -> None:
        if self.stop_waiting(exchange):
            if exchange.head.keep is not None:
                exchange.request_id = exchange.record_id
            self.refuse(exchange, refusal)

    def is_waiting(self, exchange: Exchange) -> bool:
        return self.waiters.has(exchange)

    def expire(self, now_us: int) -> None:
        """Answer those whose time is over."""
        for exchange in self._deadlines.due(now_us):
            if self.waiters.give_up(exchange):
                if exchange.head.keep is not None:
                    exchange.request_id = exchange.record_id
                self.refuse(exchange, unanswered(exchange))

    def own_fault(self, exchange: Exchange, error: Exception) -> Refusal:
        self.outcomes.crashed(exchange.request_id, error)
        return refuse(Reason.CRASH, OWN_FAULT)

    def stop_waiting(self, exchange: Exchange) -> bool:
        self._deadlines.drop(exchange)
        return self.waiters.give_up(exchange)

    def _answer(
        self, exchange: Exchange, results: Results, answer: Answer, now_us: int
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
            fields, body = results.answer(exchange, answer.outputs)
        except RequestError as error:
            self.refuse(exchange, refuse(Reason.MODEL_ERROR, str(error)))
            return
        except Exception as error:  # noqa: BLE001 - others are answered by this record
            self.refuse(exchange, self.own_fault(exchange, error))
            return
        results.took(exchange.priority, now_us - exchange.started_us, answer.rows)
        exchange.deliver(OK, fields, body)
