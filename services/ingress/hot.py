"""One inference request on a connection of the hot route."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from services.ingress.answers import identity_fields, refusal_answer
from services.ingress.exchange import Exchange
from services.ingress.known import KnownHead, known_head
from services.ingress.refusal import Refusal

if TYPE_CHECKING:
    from services.ingress.protocol import InferenceProtocol

__all__ = ["Cycle", "HotExchange", "ask_again", "is_answered_early", "learn", "parting"]


class _Unheard:
    """Stands for the event that wakes an ASGI task: here is none."""

    def set(self) -> None:
        pass


class HotExchange(Exchange):
    """An inference request on a connection; also uvicorn's cycle, of which uvicorn's
    protocol uses ``response_complete``, ``disconnected``, ``keep_alive`` and
    ``message_event``."""

    __slots__ = (
        "body",
        "body_complete",
        "body_timer",
        "connection",
        "disconnected",
        "keep_alive",
    )

    message_event = _Unheard()

    def __init__(self, connection: InferenceProtocol, *, keep_alive: bool) -> None:
        handler = connection.handler
        super().__init__(handler.new_request_id(), handler.clock.now_us())
        self.connection = connection
        self.keep_alive = keep_alive
        self.disconnected = False
        self.body_complete = False
        self.body_timer: asyncio.TimerHandle | None = None
        self.body: bytes | bytearray = b""

    def stop_body_timer(self) -> None:
        if self.body_timer is not None:
            self.body_timer.cancel()
            self.body_timer = None

    def deliver(
        self, status: int, fields: bytes, body: Sequence[bytes | memoryview]
    ) -> None:
        assert not self.response_complete
        self.response_complete = True
        self.body = b""
        connection = self.connection
        transport = connection.transport
        if self.disconnected or transport.is_closing():
            return
        if not self.body_complete:
            self.keep_alive = False
        transport.write(
            b"".join(
                (
                    STATUS_LINE[status],
                    fields,
                    b"content-length: %d\r\n" % sum(map(len, body)),
                    b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n",
                    *body,
                )
            )
        )
        if not self.body_complete:
            connection.linger()
        else:
            if not self.keep_alive:
                transport.close()
            connection.on_response_complete()


Cycle: TypeAlias = RequestResponseCycle | HotExchange


def is_answered_early(cycle: Cycle | None) -> bool:
    """Whether the request had its answer before its end: what still comes of it is
    dropped, whatever it is, since a second answer would be nobody's."""
    if cycle is None or not cycle.response_complete:
        return False
    if isinstance(cycle, HotExchange):
        return not cycle.body_complete
    return cycle.more_body


def parting(refusal: Refusal, request_id: str, x_request_id: bytes) -> bytes:
    """The last answer on a connection, of whose bytes no further one can be read."""
    fields, body = refusal_answer(refusal)
    head = identity_fields(request_id, x_request_id) + fields
    return b"%b%bconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (
        STATUS_LINE[refusal.status],
        head,
        len(body),
        body,
    )


def ask_again(connection: InferenceProtocol, known: KnownHead, data: bytes) -> None:
    """``data``, a whole request, does what the parser's callbacks would; the parser
    itself stays before a request."""
    handler = connection.handler
    turned_away = known.turned_away
    if turned_away is not None:
        answer = handler.turned_away_again(turned_away, data)
        if answer is not None:
            connection.transport.write(answer)
            connection.on_response_complete()
            return
        known.turned_away = None
    connection.quiet_since_us = None
    exchange = HotExchange(connection, keep_alive=not handler.drain.is_on)
    connection.cycle = exchange
    exchange.body_complete = True
    handler.begin(exchange, known.target, known.head)
    refusal = handler.finish(exchange, data[len(known.text) :])
    if refusal is not None and refusal is exchange.doubt:
        known.turned_away = handler.turned_away(exchange, refusal)


def learn(connection: InferenceProtocol, data: bytes) -> None:
    """``data`` was one request, perhaps; the next one may have the same head."""
    cycle = connection.cycle
    if (
        connection.heads_left
        and isinstance(cycle, HotExchange)
        and cycle.keep_alive
        and cycle.body_complete
    ):
        connection.heads_left -= 1
        known = known_head(data, connection.target, cycle.head)
        connection.known = known and connection.handler.known_heads.one(known)
