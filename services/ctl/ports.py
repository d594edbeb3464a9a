"""Ports that are kept for a child over its restarts.

A bound socket that does not listen holds the port: the child may listen on it (both
set SO_REUSEADDR), another listener and the kernel's choice for outgoing connections
stay away. One that listens is handed to each child in turn: who connects while none
runs waits in the kernel for the next.
"""

from __future__ import annotations

import socket

from headrace.embedded import port_error

__all__ = ["HOST", "ReservedPort"]

HOST = "127.0.0.1"
_BACKLOG = 2048


class ReservedPort:
    """One port of this machine, ours until ``release``; ``number`` 0 takes a free one.

    Raises SetupError, naming ``option`` as the way out, if it cannot be had.
    """

    def __init__(self, number: int, *, option: str) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((HOST, number))
        except OSError as error:
            self._socket.close()
            raise port_error(number, option, error) from error
        self.number: int = self._socket.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.number}"

    def listen(self) -> None:
        """Let connections wait here for who takes them."""
        self._socket.listen(_BACKLOG)

    def fileno(self) -> int:
        """For a child to inherit; -1 once it is released."""
        return self._socket.fileno()

    def release(self) -> None:
        self._socket.close()
