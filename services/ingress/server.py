"""uvicorn with our protocol on a socket of our own, drained when we say so."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator
from functools import partial
from typing import cast

from uvicorn.config import Config
from uvicorn.server import Server

from headrace.errors import SetupError
from services.ingress.cold import Edge
from services.ingress.handler import Handler
from services.ingress.protocol import InferenceProtocol
from services.ingress.refusal import Refusal
from services.ingress.settings import HttpSettings

__all__ = ["HttpServer", "allow_connections", "bind", "url_of"]

BACKLOG = 2048


def bind(settings: HttpSettings) -> socket.socket:
    """The listening address; raises :class:`SetupError` where it is not to be had."""
    if settings.socket is not None:
        return _inherited(settings.socket)
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise SetupError(
            f"{settings.host}:{settings.port} cannot be listened on "
            f"({error.strerror}): choose another HEADRACE_HTTP__PORT; 0 takes any free "
            "one."
        ) from error
    return listener


def _inherited(descriptor: int) -> socket.socket:
    try:
        listener = socket.socket(fileno=descriptor)
        is_listening = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise SetupError(
            f"HEADRACE_HTTP__SOCKET={descriptor} is no socket of this process "
            f"({error.strerror}): whoever starts it must pass it on."
        ) from error
    if not is_listening:
        listener.close()
        raise SetupError(
            f"HEADRACE_HTTP__SOCKET={descriptor} does not listen: name a listening "
            "socket, or set HEADRACE_HTTP__PORT in its place."
        )
    listener.set_inheritable(False)
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def allow_connections() -> None:
    """A connection is an open file, and the soft limit is often 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class HttpServer(Server):
    """Serves until ``drain``; then answers what is in flight and ends."""

    def __init__(self, app: Edge, handler: Handler) -> None:
        self._app = app
        self._handler = handler
        protocol = partial(InferenceProtocol, handler)
        super().__init__(
            Config(
                app,
                http=cast("type[InferenceProtocol]", protocol),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                backlog=BACKLOG,
            )
        )

    def drain(self) -> None:
        """Take no new connection, close each with its next answer or when it stays
        idle, end with the last one."""
        self.should_exit = True
        for connection in self._open():
            connection.shutdown()

    def cut_off(self, refusal: Refusal) -> None:
        """What is unanswered is answered so. To be repeated: whoever reads slowly is
        not gone at once."""
        self._handler.cut_off(refusal)
        self._app.cut_off(refusal)
        for connection in self._open():
            connection.cut_off(refusal)

    def abort(self) -> None:
        """Whoever is still connected reads no answer."""
        for connection in self._open():
            connection.transport.abort()

    def give_up(self) -> None:
        """For what outlives even `abort`."""
        self.force_exit = True

    @property
    def connections(self) -> int:
        return len(self.server_state.connections)

    def look(self, now_us: int) -> None:
        """Close the connections that owe us a request for too long, or whose client
        has gone."""
        for connection in self._open():
            connection.look(now_us)

    def _open(self) -> list[InferenceProtocol]:
        return [
            connection
            for connection in self.server_state.connections
            if isinstance(connection, InferenceProtocol)
        ]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the service: uvicorn would raise them again at the end,
        and a drained process would not exit with 0."""
        yield
