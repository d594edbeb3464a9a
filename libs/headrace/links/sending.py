"""The sending end of links: one thread for all, and nothing that blocks its caller."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Final

from headrace.clock import Clock
from headrace.links.place import LinkFolder

__all__ = ["BUFFER_BYTES", "STALLED_US", "WAITING_BYTES_MAX", "LinkSender"]

BUFFER_BYTES: Final = 1024 * 1024
"""What the kernel takes at once; the rest waits here for its reader."""

WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of a link; one that would hold more ends."""

STALLED_US: Final = 1_000_000
"""A link of which nothing is read for so long, while something waits here, ends."""

LENGTH_BYTES: Final = 4
_LOOK_S: Final = 0.25
_GONE: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
"""The reader never writes, so anything to be read is the end."""


class _Link:
    def __init__(self, number: int, connected: socket.socket) -> None:
        self.number = number
        self.socket = connected
        self.waiting: deque[memoryview] = deque()
        self.waiting_bytes = 0
        self.moved_us = 0
        """When something of what waits was taken last."""

    def push(self) -> None:
        """Send of what waits as much as is taken. Raises OSError."""
        while self.waiting:
            first = self.waiting[0]
            sent = self.socket.send(first)
            self.waiting_bytes -= sent
            if sent < len(first):
                self.waiting[0] = first[sent:]
                return
            self.waiting.popleft()


class LinkSender:
    """Connects to listeners in ``folder`` and sends to them, in order, each value
    behind its length. ``lost`` is called once for each link that ends by itself, on
    any thread: of what was sent last nobody knows whether it was read."""

    def __init__(
        self, folder: LinkFolder, lost: Callable[[int], None], clock: Clock
    ) -> None:
        self._folder = folder
        self._lost = lost
        self._clock = clock
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._links: dict[int, _Link] = {}
        self._by_fd: dict[int, _Link] = {}
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC)
        self._epoll.register(self._bell, select.EPOLLIN)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="links", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        os.eventfd_write(self._bell, 1)
        if self._thread.ident is not None:
            self._thread.join()
        with self._lock:
            for link in list(self._links.values()):
                self._forget(link)
        self._epoll.close()
        os.close(self._bell)

    def connect(self, name: str) -> int | None:
        """The number of a new link; None: nobody listens there."""
        connected = self._folder.connect(name)
        if connected is None:
            return None
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        link = _Link(next(self._numbers), connected)
        with self._lock:
            self._links[link.number] = self._by_fd[connected.fileno()] = link
            self._epoll.register(connected.fileno(), select.EPOLLIN | select.EPOLLRDHUP)
        return link.number

    def send(self, number: int, value: bytes) -> None:
        """Nothing is sent by a link that has ended: ``lost`` was or will be called."""
        with self._lock:
            link = self._links.get(number)
            if link is None:
                return
            try:
                self._send(link, value)
            except OSError:
                self._forget(link)
            else:
                return
        self._lost(number)

    def end(self, number: int) -> None:
        """What was sent is still read. ``lost`` is not called."""
        with self._lock:
            link = self._links.get(number)
            if link is not None:
                self._forget(link)

    def _send(self, link: _Link, value: bytes) -> None:
        head = len(value).to_bytes(LENGTH_BYTES, "little")
        sent = 0
        if not link.waiting:
            with suppress(BlockingIOError):
                sent = link.socket.sendmsg((head, value))
            if sent == LENGTH_BYTES + len(value):
                return
            link.moved_us = self._clock.now_us()
            self._epoll.modify(
                link.socket.fileno(),
                select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLOUT,
            )
        left = memoryview(head + value)[sent:]
        link.waiting.append(left)
        link.waiting_bytes += len(left)
        if link.waiting_bytes > WAITING_BYTES_MAX:
            raise BlockingIOError("more waits than a link may hold")

    def _run(self) -> None:
        while not self._stopped.is_set():
            happened = self._epoll.poll(_LOOK_S)
            lost = []
            with self._lock:
                for fd, what in happened:
                    link = self._by_fd.get(fd)
                    if link is not None and not self._serve(link, what):
                        lost.append(link)
                lost += self._stalled()
                for link in lost:
                    self._forget(link)
            for link in lost:
                self._lost(link.number)

    def _serve(self, link: _Link, what: int) -> bool:
        """False: the link has ended."""
        if what & _GONE:
            return False
        try:
            link.push()
        except BlockingIOError:
            pass
        except OSError:
            return False
        link.moved_us = self._clock.now_us()
        if not link.waiting:
            self._epoll.modify(link.socket.fileno(), select.EPOLLIN | select.EPOLLRDHUP)
        return True

    def _stalled(self) -> list[_Link]:
        since_us = self._clock.now_us() - STALLED_US
        return [
            link
            for link in self._links.values()
            if link.waiting and link.moved_us < since_us
        ]

    def _forget(self, link: _Link) -> None:
        if self._links.pop(link.number, None) is None:
            return
        del self._by_fd[link.socket.fileno()]
        self._epoll.unregister(link.socket.fileno())
        link.socket.close()
