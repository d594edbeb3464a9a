"""One inference request on a connection of the hot route."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from services.ingress.exchange import Exchange

if TYPE_CHECKING:
    from services.ingress.protocol import InferenceProtocol

__all__ = ["HotExchange"]


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
