"""Inference behind ASGI: what the hot route leaves to uvicorn, with the same handler.

Pipelined requests, HTTP/1.0, ``Expect: 100-continue`` and the like come this way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from services.ingress.exchange import Exchange
from services.ingress.handler import Handler
from services.ingress.head import read_head, read_target

__all__ = ["InferenceApp", "header_list"]


class _AsgiExchange(Exchange):
    """An inference request of an ASGI call, which awaits its answer."""

    __slots__ = ("answer", "fields", "status")

    def __init__(self, handler: Handler) -> None:
        super().__init__(handler.new_request_id(), handler.clock.now_us())
        self.status = 0
        self.fields = b""
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def deliver(
        self, status: int, fields: bytes, body: Sequence[bytes | memoryview]
    ) -> None:
        assert not self.response_complete
        self.response_complete = True
        self.status = status
        self.fields = fields
        self.answer.set_result(b"".join(body))


class InferenceApp:
    """The ASGI application of the inference paths."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._handler
        target = read_target(scope["raw_path"])
        assert target is not None  # the router has matched the path
        exchange = _AsgiExchange(handler)
        handler.begin(exchange, target, read_head(scope["headers"]))
        body = bytearray()
        is_whole = False
        # Without the body that `Expect` announces there is nothing to drop. A client of
        # HTTP/1.0 sends it all the same (RFC 9110, 10.1.1).
        expects = scope["http_version"] != "1.0" and any(
            name == b"expect" for name, _ in scope["headers"]
        )
        if not (expects and (exchange.refusal or exchange.response_complete)):
            try:
                is_whole = await self._read(Request(scope, receive), exchange, body)
            except ClientDisconnect:
                if not exchange.response_complete:
                    exchange.response_complete = True
                    handler.client_left(exchange)
                return
        if not exchange.response_complete:
            handler.finish(exchange, body)
        async with asyncio.TaskGroup() as tasks:
            leaving = tasks.create_task(self._leave(receive, exchange))
            payload = await exchange.answer
            leaving.cancel()
        if not exchange.status:
            return
        headers = header_list(exchange.fields)
        headers.append((b"content-length", b"%d" % len(payload)))
        if not is_whole:
            headers.append((b"connection", b"close"))
        await send(
            {
                "type": "http.response.start",
                "status": exchange.status,
                "headers": headers,
            }
        )
        await send({"type": "http.response.body", "body": payload})

    async def _leave(self, receive: Receive, exchange: _AsgiExchange) -> None:
        """End the request when its client has gone; for as long as it waits."""
        while (await receive())["type"] != "http.disconnect":
            pass
        if not exchange.response_complete:
            exchange.response_complete = True
            self._handler.client_left(exchange)
            exchange.answer.set_result(b"")

    async def _read(
        self, request: Request, exchange: _AsgiExchange, body: bytearray
    ) -> bool:
        """Read the body into ``body``, or drop it when it is of no use any more;
        whether it came to its end."""
        limits = self._handler.limits
        timeout_ms = limits.http_body_timeout_ms
        if exchange.response_complete:
            timeout_ms = limits.http_linger_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                async for chunk in request.stream():
                    if exchange.refusal is None and not exchange.response_complete:
                        body += chunk
                        if exchange.head.content_length is None:
                            self._handler.body_grew(exchange, len(body))
        except TimeoutError:
            self._handler.body_late(exchange)
            return False
        return True


def header_list(fields: bytes) -> list[tuple[bytes, bytes]]:
    """Header lines, each with its CR LF, as ASGI wants them."""
    return [
        (name, value)
        for name, _, value in (
            line.partition(b": ") for line in fields.split(b"\r\n")[:-1]
        )
    ]
