"""A server that answers as a test tells it to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Reply = Callable[[bytes, int], bytes | None]
"""From a request's body and its number on this server to what is sent; None: the
connection is closed instead."""


def ok(body: bytes, *headers: str) -> bytes:
    return answer("200 OK", body, *headers)


def answer(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@contextmanager
def serving(reply: Reply) -> Iterator[tuple[str, int]]:
    """Its address; a thread for each connection."""
    numbers = iter(range(1_000_000))
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:

        def accept() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=talk, args=(client,), daemon=True).start()

        def talk(client: socket.socket) -> None:
            # Whoever leaves before its answer does so on purpose.
            with suppress(ConnectionError), client, client.makefile("rb") as lines:
                while True:
                    length = 0
                    line = lines.readline()
                    if not line:
                        return
                    while line not in (b"\r\n", b""):
                        name, _, value = line.partition(b":")
                        if name.lower() == b"content-length":
                            length = int(value)
                        line = lines.readline()
                    sent = reply(lines.read(length), next(numbers))
                    if sent is None:
                        return
                    client.sendall(sent)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()
        listener.shutdown(socket.SHUT_RDWR)
