"""Whether a client that ended its side of a connection still reads.

One that closes and one that only asks no more send the same FIN, and nothing else until
they get bytes: the first resets the connection then, the second reads. The bytes are an
interim response, which every client of HTTP/1.1 has to skip (RFC 9110, 15.2).
"""

from __future__ import annotations

import asyncio
import fcntl
import select
import socket
import sys
import termios
from collections.abc import Callable

__all__ = ["Departure", "may_have_ended"]

INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
LOOK_AFTER_S = 0.02
LOOKS_MAX = 7
"""After the interim response, each look twice as late as the one before: the last one
after 2.5 s, when any network has carried a reset back."""

UNREAD_BYTES = 32 * 1024
"""A socket has room for so much, and for more only as the kernel likes."""

TCP_CLOSE = 7
"""``tcpi_state``, the first byte of ``TCP_INFO``: the kernel has got the reset."""


def may_have_ended(transport: asyncio.Transport) -> bool:
    """Whether the client has ended its side, or the whole connection, as far as can be
    told without reading: a transport that is paused does not say so itself. Where much
    is unread the end may lie with the client's kernel, behind what finds no room."""
    descriptor = transport.get_extra_info("socket").fileno()
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    return bool(poll.poll(0)) or _unread_bytes(descriptor) >= UNREAD_BYTES


def _unread_bytes(descriptor: int) -> int:
    count = fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4))
    return int.from_bytes(count, sys.byteorder)


class Departure:
    """Aborts ``transport`` when its client turns out to be gone, for as long as
    ``is_waiting`` says that nothing of an answer was written."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        is_waiting: Callable[[], bool],
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._is_waiting = is_waiting
        self._looks = 0

    def suspect(self, after_s: float) -> None:
        self._loop.call_later(after_s, self._ask)

    def _ask(self) -> None:
        if self._is_waiting() and not self._transport.is_closing():
            self._transport.write(INTERIM)
            self._loop.call_later(LOOK_AFTER_S, self._look)

    def _look(self) -> None:
        if self._transport.is_closing() or not self._is_waiting():
            return
        connection = self._transport.get_extra_info("socket")
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        self._looks += 1
        if info[0] == TCP_CLOSE:
            self._transport.abort()
        elif self._looks < LOOKS_MAX:
            self._loop.call_later(LOOK_AFTER_S * 2**self._looks, self._look)
