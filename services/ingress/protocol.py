"""The hot route: inference requests on uvicorn's connections, without ASGI.

A POST to ``/v2/models/.../infer`` gets one object, which is what uvicorn calls a
cycle and what the handler calls an exchange: no scope, no task, no future. Whatever
is unusual (pipelined behind a running request, HTTP/1.0, ``Expect``, an upgrade,
another method or path) goes on to uvicorn's ASGI cycle, where the same handler
answers inference. After any error a connection is either in step or closed.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from headrace.domain import Reason
from services.ingress.departure import Departure, may_have_ended
from services.ingress.flow import PIECE_BYTES, Flow
from services.ingress.handler import Handler
from services.ingress.head import Target, read_head, read_target, read_x_request_id
from services.ingress.hot import (
    Cycle,
    HotExchange,
    ask_again,
    is_answered_early,
    learn,
    parting,
)
from services.ingress.known import KNOWN_HEADS_MAX, KnownHead
from services.ingress.refusal import OWN_FAULT, Refusal, refuse
from services.ingress.rules import (
    CUT_SHORT,
    NO_UPGRADE,
    NOT_A_PATH,
    broken_rule,
    head_late,
    head_too_large,
    is_over,
    message_too_large,
    not_http,
    too_many_connections,
)

__all__ = ["InferenceProtocol"]

_HOT_PREFIX = b"/v2/models/"
_HOT_SUFFIX = b"/infer"
_BODY_FIELDS = frozenset({b"content-length", b"transfer-encoding"})


class InferenceProtocol(HttpToolsProtocol):
    """uvicorn's HTTP connection with a short way for inference."""

    cycle: Cycle | None  # type: ignore[assignment] # ours
    flow: Flow

    def __init__(
        self,
        handler: Handler,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.handler = handler
        self.quiet_since_us: int | None = None
        """Since when the client owes us a complete head; None while it does not."""
        self.head_since_us: int | None = None
        """Since when a head has been incomplete."""
        self.unread_since_us: int | None = None
        """Since when the client has read too little of its answers."""
        self.target = Target("", "")
        self.known: KnownHead | None = None
        self.heads_left = KNOWN_HEADS_MAX
        self._message_bytes = 0
        self._in_head = True
        self._in_message = False
        self.is_deaf = False
        self._ahead: Cycle | None = None
        """What is answered while others are pipelined behind it."""
        self._asked_whether_there: Cycle | None = None
        self._parting: Refusal | None = None
        """What follows the answers still to come."""

    def connection_made(  # type: ignore[override] # as uvicorn's own
        self, transport: asyncio.Transport
    ) -> None:
        super().connection_made(transport)
        limits = self.handler.limits
        self.flow = Flow(transport, limits.http_pipelined_max)
        self.quiet_since_us = self.handler.clock.now_us()
        if self.handler.drain.is_on:
            self.shutdown()
        if len(self.connections) > limits.connections_max:
            self._refuse_connection(too_many_connections(limits))

    def connection_lost(self, exc: Exception | None) -> None:
        cycle = self._answered_next
        if isinstance(cycle, HotExchange):
            cycle.stop_body_timer()
            if not cycle.response_complete:
                self.handler.client_left(cycle)
        elif cycle is not None and not cycle.response_complete:
            # uvicorn tells the last one alone.
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    @property
    def _answered_next(self) -> Cycle | None:
        """The request whose answer comes next; the last one, if all have theirs."""
        ahead = self._ahead
        return self.cycle if ahead is None or ahead.response_complete else ahead

    def eof_received(self) -> bool:  # type: ignore[override] # as asyncio's own
        """The client asks no more, and may still read: what is complete is answered
        before the connection ends. True keeps it open for that."""
        if self._in_message and not self.is_deaf:
            self._refuse_connection(CUT_SHORT)
        self.is_deaf = True
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        if self._parting is None:
            cycle.keep_alive = False
        self._ask_whether_there(self.handler.limits.http_half_closed_ms / 1000)
        return True

    def _ask_whether_there(self, after_s: float) -> None:
        cycle = self._answered_next
        if (
            self.parser.get_http_version() == "1.1"
            and self._asked_whether_there is not cycle
        ):
            self._asked_whether_there = cycle
            Departure(self.transport, self.loop, self._is_awaited).suspect(after_s)

    def _is_awaited(self) -> bool:
        """Whether the next bytes to be written begin an answer."""
        cycle = self._answered_next
        return cycle is not None and not (
            cycle.response_complete
            if isinstance(cycle, HotExchange)
            else cycle.response_started
        )

    def data_received(self, data: bytes) -> None:
        if self.is_deaf:
            return
        is_between = not self._in_message and not self._message_bytes
        previous, known = self.cycle, self.known
        if (
            is_between
            and known is not None
            and known.begins(data)
            and (previous is None or previous.response_complete)
        ):
            try:
                ask_again(self, known, data)
            except Exception as error:  # noqa: BLE001 - as in the parser's callbacks
                self._crash(error)
            return
        if len(data) > PIECE_BYTES or self.pipeline:
            is_parsed = self.flow.take(self, data)
        else:
            is_parsed = self.parse(data)
        if is_parsed:
            if is_between and not self._in_message and self.cycle is not previous:
                learn(self, data)
            self._await_the_rest()

    def parse(self, data: bytes | memoryview) -> bool:
        """The next bytes of the connection, whatever they are of; whether it can be
        read any further."""
        self._message_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Nothing here speaks another protocol: the request is answered as if it
            # had not asked, and the connection ends with the answer.
            self.is_deaf = True
        except httptools.HttpParserCallbackError as error:
            self._crash(error)
        except httptools.HttpParserError as error:
            self._refuse_connection(not_http(bytes(data), error))
        return not self.is_deaf

    def _crash(self, error: Exception) -> None:
        """A fault of ours outside the handler, or in how it answers."""
        cycle, request_id = self.cycle, ""
        if isinstance(cycle, HotExchange):
            request_id = cycle.request_id
            if cycle.body_complete and not self.handler.ends.is_waiting(cycle):
                cycle.response_complete = True  # its answer is not to come any more
        self.handler.outcomes.crashed(request_id, error)
        self._refuse_connection(refuse(Reason.CRASH, OWN_FAULT))

    def _await_the_rest(self) -> None:
        limits = self.handler.limits
        cycle = self.cycle
        if self._in_head:
            if self._message_bytes > limits.http_header_bytes_max:
                self._refuse_connection(head_too_large(limits))
            elif self._in_message and self.head_since_us is None:
                self.head_since_us = self.handler.clock.now_us()
        elif is_answered_early(cycle):
            pass  # what still comes is dropped
        elif self._message_bytes > limits.message_bytes_max(self.url):
            self._refuse_connection(message_too_large(limits))
        elif (
            isinstance(cycle, HotExchange)
            and cycle.body_timer is None
            and not cycle.response_complete
        ):
            cycle.body_timer = self.loop.call_later(
                limits.http_body_timeout_ms / 1000, self.handler.body_late, cycle
            )

    def on_message_begin(self) -> None:
        # uvicorn's own builds a scope here; _to_asgi does, for those that need one.
        self._in_message = True
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"expect" and self.parser.get_http_version() != "1.0":
            self.expect_100_continue = True  # broken_rule lets nothing else pass
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.is_deaf:
            return
        self._in_head = False
        self.quiet_since_us = self.head_since_us = None
        header_bytes_max = self.handler.limits.http_header_bytes_max
        if self._message_bytes > header_bytes_max and (
            len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            > header_bytes_max
        ):
            self._refuse_connection(head_too_large(self.handler.limits))
            return
        parser = self.parser
        broken = broken_rule(parser.get_http_version(), self.headers)
        if broken is not None:
            self._refuse_connection(broken)
            return
        previous = self.cycle
        if (
            self.url.startswith(_HOT_PREFIX)
            and self.url.endswith(_HOT_SUFFIX)
            and (previous is None or previous.response_complete)
            and parser.get_method() == b"POST"
            and not self.expect_100_continue
            and not parser.should_upgrade()
            and parser.get_http_version() == "1.1"
            and (target := read_target(self.url)) is not None
        ):
            keeps = parser.should_keep_alive() and not self.handler.drain.is_on
            exchange = HotExchange(self, keep_alive=keeps)
            self.cycle = exchange
            self.target = target
            self.handler.begin(exchange, target, read_head(self.headers))
        elif not parser.should_upgrade():
            self._to_asgi()
        elif any(name in _BODY_FIELDS for name, _ in self.headers):
            # The parser takes whatever follows such a head for the other protocol.
            self._refuse_connection(NO_UPGRADE)
        else:
            self._to_asgi()
            if self.cycle is not None:
                self.cycle.keep_alive = False
        if self.handler.drain.is_on and self.cycle is not None:
            self.cycle.keep_alive = False

    def _to_asgi(self) -> None:
        url, headers = self.url, self.headers
        expect_100_continue = self.expect_100_continue
        previous = self.cycle
        super().on_message_begin()
        self.url = url
        self.expect_100_continue = expect_100_continue
        self.headers.extend(headers)
        try:
            super().on_headers_complete()
        except (httptools.HttpParserError, UnicodeDecodeError):
            self._refuse_connection(NOT_A_PATH)
        else:
            if self.pipeline:
                self.flow.is_held = True
            if len(self.pipeline) == 1:
                self._ahead = previous

    def on_body(self, body: bytes) -> None:
        cycle = self.cycle
        if self.is_deaf:
            pass
        elif not isinstance(cycle, HotExchange):
            super().on_body(body)
        elif cycle.refusal is None and not cycle.response_complete:
            if not cycle.body:
                cycle.body = body
            elif isinstance(cycle.body, bytearray):
                cycle.body += body
            else:
                cycle.body = bytearray(cycle.body) + body
            if cycle.head.content_length is None:
                self.handler.body_grew(cycle, len(cycle.body))

    def on_message_complete(self) -> None:
        if self.is_deaf:
            return
        self._in_head = True
        self._in_message = False
        self._message_bytes = 0
        cycle = self.cycle
        if not isinstance(cycle, HotExchange):
            super().on_message_complete()
            if cycle is not None and cycle.response_complete:
                cycle.more_body = False  # which uvicorn leaves as it was
            return
        cycle.body_complete = True
        cycle.stop_body_timer()
        if cycle.response_complete:
            # It was answered before its end, with the promise to close.
            self.is_deaf = True
            self.transport.close()
        else:
            self.handler.finish(cycle, cycle.body)

    def on_response_complete(self) -> None:
        """As uvicorn's own, but for a sweep in place of a timer per request, and
        reading stays paused while the client does not read."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if not self.flow.write_paused:
            self.flow.resume_reading()
        if self.pipeline:
            self._ahead, app = self.pipeline.pop()
            self._start_asgi_task(self._ahead, app)
            if self.flow.go_on(self):
                self._await_the_rest()
        elif self._parting is not None:
            self._part(self._parting)
        else:
            self.quiet_since_us = self.handler.clock.now_us()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.unread_since_us = self.handler.clock.now_us()
        self.flow.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.unread_since_us = None
        if self.cycle is None or self.cycle.response_complete:
            self.flow.resume_reading()

    def look(self, now_us: int) -> None:
        """Close when no complete head has come, or nothing was read, for too long, and
        when the client has gone while nothing of it is read."""
        if (
            (self.flow.read_paused or self.is_deaf)
            and self._is_awaited()
            and may_have_ended(self.transport)
        ):
            self._ask_whether_there(0)
        limits = self.handler.limits
        is_late = is_over(self.head_since_us, limits.http_head_timeout_ms, now_us)
        if is_late and not self.is_deaf:
            self._refuse_connection(head_late(limits))
        elif is_over(self.quiet_since_us, limits.http_keep_alive_ms, now_us):
            self.transport.close()
        if is_over(self.unread_since_us, limits.http_keep_alive_ms, now_us):
            self.transport.abort()

    def shutdown(self) -> None:
        """The process drains. A request may be on its way on an idle connection."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.keep_alive = False
        else:
            self.loop.call_later(
                self.handler.limits.drain_idle_ms / 1000, self._close_if_idle
            )

    def _close_if_idle(self) -> None:
        cycle = self.cycle
        if not self._in_message and (cycle is None or cycle.response_complete):
            self.transport.close()

    def cut_off(self, refusal: Refusal) -> None:
        """The process ends: no more of a request is waited for. What runs behind ASGI
        is told by others."""
        self._close_if_idle()
        if self._in_message and (
            isinstance(self.cycle, HotExchange) or not self._is_awaited()
        ):
            self._refuse_connection(refusal)

    def linger(self) -> None:
        """Read and drop what is left of an answered request's body, for a while:
        closing at once would reset the connection under the answer."""
        self.loop.call_later(
            self.handler.limits.http_linger_ms / 1000, self.transport.close
        )

    def _refuse_connection(self, refusal: Refusal) -> None:
        """The bytes that come in cannot be read as requests any further."""
        self.is_deaf = True
        cycle = self.cycle
        if is_answered_early(cycle):
            self.linger()
            return
        if cycle is not None and not cycle.response_complete:
            if not isinstance(cycle, HotExchange):
                is_whole = not cycle.more_body
            elif not cycle.body_complete:
                cycle.keep_alive = False
                cycle.body_complete = True
                cycle.stop_body_timer()
                self.handler.ends.refuse(cycle, refusal)
                return
            else:
                is_whole = True
            if self.pipeline and not is_whole:
                self.pipeline.popleft()
                self._parting = refusal
                return
            if is_whole:
                # Its answer is still to come: nothing may pass it.
                if cycle.keep_alive:
                    self._parting = refusal
                return
            cycle.keep_alive = False
        self._part(refusal)

    def _part(self, refusal: Refusal) -> None:
        request_id = self.handler.new_request_id()
        x_request_id = read_x_request_id(self.headers) if self._in_message else b""
        self.handler.outcomes.unread(request_id, x_request_id, refusal)
        self.transport.write(parting(refusal, request_id, x_request_id))
        self.transport.close()
