"""How far a connection is read ahead of its answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from uvicorn.protocols.http.flow_control import FlowControl

from services.ingress.hot import HotExchange

if TYPE_CHECKING:
    from services.ingress.protocol import InferenceProtocol

__all__ = ["PIECE_BYTES", "Flow"]

PIECE_BYTES = 4096
"""So much is parsed before pipelined requests are counted again: at 26 bytes, the
least that a request has, 157 of them."""

_HEAD_END = b"\r\n\r\n"


class Flow(FlowControl):
    """uvicorn's, but while requests are pipelined nothing more is read, and what was
    read is parsed only as far as they have room: as an object a request takes hundreds
    of times its bytes, and uvicorn reads on with every answer."""

    def __init__(self, transport: asyncio.Transport, pipelined_max: int) -> None:
        super().__init__(transport)
        self._pipelined_max = pipelined_max
        self._unparsed = memoryview(b"")
        self._is_parsing = False
        self.is_held = False

    def resume_reading(self) -> None:
        if self.read_paused and not self.is_held:
            super().resume_reading()

    def take(self, connection: InferenceProtocol, data: bytes) -> bool:
        """Parse what came, of any size; whether all of it is parsed."""
        head_end = data.find(_HEAD_END, 0, PIECE_BYTES)
        size = PIECE_BYTES if head_end < 0 else head_end + len(_HEAD_END)
        self._unparsed = memoryview(data)
        return self.go_on(connection, max(size, _left_of_body(connection.cycle)))

    def go_on(self, connection: InferenceProtocol, size: int = PIECE_BYTES) -> bool:
        """Parse what is left, as far as there is room now; whether that is all, and
        more can be read. ``size``: of the first piece; after a head's end its body is
        copied in one."""
        if self._is_parsing:
            return False
        self._is_parsing = True
        pipeline = connection.pipeline
        try:
            while (
                self._unparsed
                and len(pipeline) < self._pipelined_max
                and not connection.is_deaf
            ):
                piece, self._unparsed = self._unparsed[:size], self._unparsed[size:]
                connection.parse(piece)
                size = max(PIECE_BYTES, _left_of_body(connection.cycle))
        finally:
            self._is_parsing = False
        if connection.is_deaf:
            self._unparsed = memoryview(b"")
        self.is_held = bool(self._unparsed or pipeline)
        if not (self.is_held or self.write_paused):
            self.resume_reading()
        return not self._unparsed and not connection.is_deaf


def _left_of_body(cycle: object) -> int:
    if (
        not isinstance(cycle, HotExchange)
        or cycle.body_complete
        or cycle.response_complete
        or cycle.refusal is not None
        or cycle.head.content_length is None
    ):
        return 0
    return cycle.head.content_length - len(cycle.body)
