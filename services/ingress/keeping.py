"""Requests whose answers are kept in the log: asked under an idempotency key, or to be
asked for later.

Their records name a topic of results in place of this ingress's partition of replies,
so that any ingress finds the answer there, also after everything was restarted. All of
it runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Protocol

import msgspec

from headrace.broker import Delivery, Producer
from headrace.clock import Clock
from headrace.domain import PayloadRef, Priority, Reason, ReplyAddress, Source
from headrace.errors import BusError, BusTimeout, RequestError, UndecodableRecord
from headrace.wire import (
    Answer,
    Locator,
    PlainReply,
    Record,
    Replies,
    RequestEncoder,
    RunFacts,
    Topics,
    cancel_headers,
    decode_plain_reply,
    job_of,
    keyed_id,
)
from headrace.wire import headers as names
from services.ingress.archive import Gone
from services.ingress.exchange import Exchange
from services.ingress.kept import Kept, Key
from services.ingress.parsing import Parsed
from services.ingress.producing import encoded
from services.ingress.refusal import Refusal, refuse
from services.ingress.shelf import SLACK_US, Shelf, When

__all__ = ["Ends", "Keeper", "fingerprint_of", "key_reused", "unpacked"]


class Ends(Protocol):
    """How a request that waits is ended; none has an effect on one that does not."""

    def accept(self, exchange: Exchange, locator: Locator) -> None: ...
    def reply(self, exchange: Exchange, record: Replies, answer: Answer) -> None: ...
    def end(self, exchange: Exchange, refusal: Refusal) -> None: ...
    def is_waiting(self, exchange: Exchange) -> bool: ...


class _Sending(msgspec.Struct, eq=False):
    """A request on its way; ``place`` once its record is acked. ``fingerprint`` is
    that of the body behind a key; empty: there is no key."""

    exchange: Exchange
    parsed: Parsed
    key: Key
    fingerprint: bytes
    deadline_us: int
    payload: PayloadRef | None = None
    place: Source | None = None
    when: When = When(0, 0)
    listener: Callable[[Kept, Record], None] | None = None


class Keeper:
    """``ends`` is set before the first request."""

    ends: Ends

    def __init__(  # noqa: PLR0913 - what a record is made of
        self,
        shelf: Shelf,
        producer: Producer,
        *,
        topics: Topics,
        source: str,
        lanes: int,
        is_heard: Callable[[int], bool],
        payload_bytes_max: int,
        memory_us: int,
        clock: Clock,
        to_log_us: Callable[[int], int],
    ) -> None:
        """``source``: the ``ce_source`` of this ingress; ``is_heard``: whether a lane
        has a former."""
        self.shelf = shelf
        self._producer = producer
        self._topics = topics
        self._source = source
        self._lanes = lanes
        self._is_heard = is_heard
        self._payload_bytes_max = payload_bytes_max
        self._memory_us = memory_us
        self._clock = clock
        self._to_log_us = to_log_us
        self._sent: set[_Sending] = set()

    def key_of(self, tenant: str, request_id: str) -> Key:
        """Where the answer to the request is kept."""
        return Key(self._topics.results(tenant, job_of(request_id)), request_id)

    def send(
        self,
        exchange: Exchange,
        parsed: Parsed,
        body: bytes | bytearray,
        deadline_us: int,
        payload: PayloadRef | None = None,
    ) -> None:
        """Send on a request that waits, or find its answer.

        Raises :class:`RequestError` and :class:`BusError` as the outbox does.
        """
        keep, served = exchange.head.keep, exchange.served
        assert keep is not None
        assert served is not None
        exchange.record_id = exchange.request_id
        fingerprint = b""
        if keep.key:
            exchange.record_id = keyed_id(exchange.tenant, served.model, keep.key)
            exchange.lane = self._lane_of(exchange)
            fingerprint = _fingerprint(exchange, body, payload)
        key = self.key_of(exchange.tenant, exchange.record_id)
        sending = _Sending(exchange, parsed, key, fingerprint, deadline_us, payload)
        job = job_of(exchange.record_id)
        self.shelf.open(exchange.tenant, job, partial(self._open, sending))

    def _lane_of(self, exchange: Exchange) -> int:
        """The one lane in which a key's requests meet."""
        lane = int(exchange.record_id[:8], 16) % self._lanes
        destination = exchange.destination
        assert destination is not None
        if not self._is_heard(lane) or lane not in destination.lanes:
            raise RequestError(
                f"lane {lane}, which takes the requests with this idempotency-key, has "
                "no batch former or no worker now",
                reason=Reason.NO_FORMER,
            )
        return lane

    def _open(self, sending: _Sending, error: BusError | None) -> None:
        """The topic of its answer is there, or could not be made."""
        if not self.ends.is_waiting(sending.exchange):
            return
        if error is not None:
            self._log_unavailable(sending.exchange, error)
        else:
            self._try(self._send, sending)

    def _try(self, send: Callable[[_Sending], None], sending: _Sending) -> None:
        exchange = sending.exchange
        try:
            send(sending)
        except RequestError as refused:
            self.ends.end(exchange, refuse(Reason(refused.reason), str(refused)))
        except BusError as failed:
            self._log_unavailable(exchange, failed)

    def _send(self, sending: _Sending) -> None:
        if sending.fingerprint:
            now_us = self._to_log_us(self._clock.now_us())
            kept = self.shelf.known(
                sending.key, When(now_us - self._memory_us, now_us + SLACK_US)
            )
            if kept is not None:
                self._compare(sending, kept)
                return
            if not sending.exchange.head.is_async:
                sending.when = When(now_us - self._memory_us - SLACK_US, now_us)
                sending.listener = partial(self._arrived, sending)
                self.shelf.listen(sending.key, sending.listener)
                self._sent.add(sending)
        self._produce(sending)

    def _produce(self, sending: _Sending) -> None:
        exchange, parsed = sending.exchange, sending.parsed
        served = exchange.served
        assert served is not None
        is_patient = exchange.priority is Priority.BULK and exchange.head.is_async
        is_limited = exchange.head.timeout_us or parsed.timeout_us
        headers, value = encoded(
            exchange,
            parsed,
            RequestEncoder(self._source, ReplyAddress(sending.key.topic, None)),
            request_id=sending.key.id,
            deadline_us=None
            if is_patient and not is_limited
            else self._to_log_us(sending.deadline_us),
            log_us=self._to_log_us(self._clock.now_us()),
            payload_bytes_max=self._payload_bytes_max,
            payload=sending.payload,
        )
        headers.append((names.OUTPUTS, msgspec.json.encode(exchange.wanted)))
        if sending.fingerprint:
            headers.append((names.BODY_SHA256, sending.fingerprint))
        loop = asyncio.get_running_loop()
        self._producer.produce(
            self._topics.requests(served.model),
            self._topics.request_partition(exchange.lane, exchange.priority),
            value,
            headers=headers,
            on_delivery=lambda delivery: _then(
                loop, partial(self._written, sending, delivery)
            ),
        )

    def _written(self, sending: _Sending, delivery: Delivery) -> None:
        """How the produce ended. A request under a key whose produce timed out may be
        there all the same, and is waited for."""
        exchange, error = sending.exchange, delivery.error
        if error is None:
            topic, partition, offset = delivery[:3]
            sending.place = Source(topic, partition, offset)
            if exchange.head.is_async:
                model = self._topics.model_of(topic)
                locator = Locator(exchange.record_id, model, partition, offset)
                self.ends.accept(exchange, locator)
        elif exchange.head.is_async or not isinstance(error, BusTimeout):
            self._log_unavailable(exchange, error)

    def _log_unavailable(self, exchange: Exchange, error: BusError) -> None:
        text = f"the log does not take the request: {error}"
        self.ends.end(exchange, refuse(Reason.LOG_UNAVAILABLE, text))

    # -- answers under a key

    def _arrived(self, sending: _Sending, kept: Kept, record: Record) -> None:
        if not sending.when.admits(kept):
            return
        self._drop(sending)
        if kept.asked == sending.place:
            self._reply(sending, record)
        else:
            self._compare(sending, kept)

    def _compare(self, sending: _Sending, kept: Kept) -> None:
        """The answer is that of another record with the same key: read both back, for
        the key may stand for another request."""
        self.shelf.archive.then_looked(
            (kept.asked, kept.place), partial(self._compared, sending)
        )

    def _compared(
        self,
        sending: _Sending,
        looked: Sequence[Record | Gone] | None,
        error: BusError | None,
    ) -> None:
        exchange = sending.exchange
        if looked is None:
            assert error is not None
            self._log_unavailable(exchange, error)
            return
        asked, answer = looked
        if not isinstance(answer, Record) or not isinstance(asked, Record):
            text = "the answer to this key has just left the log: ask again"
            self.ends.end(exchange, refuse(Reason.LOG_UNAVAILABLE, text))
        elif fingerprint_of(asked) != sending.fingerprint:
            self.ends.end(exchange, key_reused())
        elif not exchange.head.is_async:
            self._reply(sending, answer)
        elif self.ends.is_waiting(exchange):
            # Its place in the log is what its client is given.
            self._try(self._produce, sending)

    def _reply(self, sending: _Sending, record: Record) -> None:
        try:
            reply = decode_plain_reply(record)
            self.ends.reply(sending.exchange, *unpacked(reply))
        except UndecodableRecord as error:
            refusal = refuse(Reason.UNDECODABLE, str(error), status=500)
            self.ends.end(sending.exchange, refusal)

    def _drop(self, sending: _Sending) -> None:
        if sending.listener is not None:
            self.shelf.drop(sending.key, sending.listener)
        self._sent.discard(sending)

    def sweep(self) -> None:
        """Forget those who do not wait any more."""
        for sending in list(self._sent):
            if not self.ends.is_waiting(sending.exchange):
                self._drop(sending)

    # -- requests of earlier

    async def cancel(self, locator: Locator, tenant: str, body_sha256: str) -> None:
        """Write the record that takes the request back.

        Raises :class:`BusError`.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Delivery] = loop.create_future()
        headers = cancel_headers(
            locator.id,
            tenant,
            ReplyAddress(self.key_of(tenant, locator.id).topic, None),
            source=self._source,
            log_us=self._to_log_us(self._clock.now_us()),
            body_sha256=body_sha256,
        )
        self._producer.produce(
            self._topics.requests(locator.model),
            locator.partition,
            None,
            headers=headers,
            on_delivery=lambda delivery: _then(
                loop, partial(ended.set_result, delivery)
            ),
        )
        delivery = await ended
        if delivery.error is not None:
            raise delivery.error


def unpacked(reply: PlainReply) -> tuple[Replies, Answer]:
    """As if it had come among others, from a batch of which nothing is known."""
    answer = Answer(
        id=reply.id,
        tenant="",
        rows=1,
        attempt=1,
        outputs=reply.outputs,
        reason=reply.reason,
        text=reply.text,
        retry_after_us=None,
        payload=reply.payload,
    )
    facts = RunFacts("", 0, 0, 0, 0)
    return Replies("", reply.model, reply.version, 0, 0, facts, [answer]), answer


def fingerprint_of(asked: Record) -> bytes | None:
    """What the key of a request's record stands for; None: it has no key."""
    return dict(asked.headers).get(names.BODY_SHA256)


def key_reused() -> Refusal:
    text = (
        "this idempotency-key was used for another request: its body, or the version "
        "in its path, was not this one"
    )
    return refuse(Reason.KEY_REUSED, text)


def _fingerprint(
    exchange: Exchange, body: bytes | bytearray, payload: PayloadRef | None
) -> bytes:
    """Of what a key stands for: the body, where its JSON ends, and the version. What
    went to the store was hashed on its way."""
    digest = sha256(b"%d/" % (exchange.head.json_bytes or 0))
    digest.update(exchange.named_version.encode() + b"/")
    if payload is None:
        digest.update(body)
    else:
        digest.update(memoryview(body)[: exchange.head.json_bytes or 0])
        digest.update(payload.sha256.encode())
    return digest.hexdigest().encode()


def _then(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    loop.call_soon_threadsafe(call)
