"""The reading end of links: a thread that accepts, and one for each link."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Final

from headrace.links.place import LinkFolder
from headrace.links.sending import LENGTH_BYTES

__all__ = ["LINKS_MAX", "LinkListener"]

LINKS_MAX: Final = 8
"""Of one listener; a further connection ends the oldest link."""


class LinkListener:
    """Listens in ``folder`` under ``name``. ``take`` gets each value of each link in
    order, ``ended`` each link once after its last value, both on the link's own
    thread; links of different numbers are side by side."""

    def __init__(
        self,
        folder: LinkFolder,
        name: str,
        *,
        take: Callable[[int, memoryview], None],
        ended: Callable[[int], None],
        bytes_max: int,
    ) -> None:
        """A value of more than ``bytes_max`` ends its link. Raises SetupError."""
        self._folder = folder
        self._name = name
        self._take = take
        self._ended = ended
        self._bytes_max = bytes_max
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._links: dict[int, socket.socket] = {}
        self._listening = folder.bind(name)
        self._thread = threading.Thread(target=self._accept, name="links", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._folder.remove(self._name)
        # Wakes the thread that accepts, which closing alone does not.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._lock:
            links = list(self._links)
        for number in links:
            self.end(number)

    def end(self, number: int) -> None:
        """Read no more of the link than is read already."""
        with self._lock:
            connected = self._links.get(number)
        if connected is not None:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listening.accept()
            except OSError:
                return  # stopped
            number = next(self._numbers)
            with self._lock:
                self._links[number] = connected
                oldest = min(self._links) if len(self._links) > LINKS_MAX else None
            if oldest is not None:
                self.end(oldest)
            threading.Thread(
                target=self._read, args=(number, connected), name="link", daemon=True
            ).start()

    def _read(self, number: int, connected: socket.socket) -> None:
        with connected:
            while True:
                head = _received(connected, LENGTH_BYTES)
                size = int.from_bytes(head, "little")
                if len(head) < LENGTH_BYTES or size > self._bytes_max:
                    break
                value = _received(connected, size)
                if len(value) < size:
                    break
                self._take(number, memoryview(value))
            with self._lock:
                del self._links[number]
        self._ended(number)


def _received(connected: socket.socket, size: int) -> bytes:
    """Fewer bytes: the link has ended."""
    try:
        value = connected.recv(size, socket.MSG_WAITALL)
        # A signal may end a call early.
        while 0 < len(value) < size:
            more = connected.recv(size - len(value), socket.MSG_WAITALL)
            if not more:
                break
            value += more
    except ConnectionError:
        return b""
    return value
