"""``/livez /readyz /metrics`` of a service that serves no HTTP of its own."""

from __future__ import annotations

import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from headrace.errors import SetupError
from headrace.lifecycle.health import Health
from headrace.lifecycle.settings import AdminSettings
from headrace.telemetry import METRICS_CONTENT_TYPE, MetricsRegistry

__all__ = ["ProbeServer", "answer_probe"]

_TEXT: Final = "text/plain; charset=utf-8"
_IDLE_S: Final = 30


def answer_probe(
    path: str, health: Health, metrics: MetricsRegistry
) -> tuple[HTTPStatus, str, bytes] | None:
    """Status, content type and body; None: no probe's path."""
    match path:
        case "/livez":
            return _probe(health.why_not_alive())
        case "/readyz":
            return _probe(health.why_not_ready())
        case "/metrics":
            return HTTPStatus.OK, METRICS_CONTENT_TYPE, metrics.render()
        case _:
            return None


class ProbeServer:
    """Answers probes on a thread of its own, so that a busy main loop is seen.

    Raises SetupError where the port is taken.
    """

    def __init__(
        self, settings: AdminSettings, health: Health, metrics: MetricsRegistry
    ) -> None:
        try:
            self._server = _Server((settings.host, settings.port), _Handler)
        except OSError as error:
            raise SetupError(
                f"{settings.host}:{settings.port} cannot serve probes "
                f"({error.strerror}): choose another HEADRACE_ADMIN__PORT; 0 takes "
                f"any free one."
            ) from error
        self._server.health = health
        self._server.metrics = metrics
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="probes", daemon=True
        )

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    health: Health
    metrics: MetricsRegistry

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked has not waited for the answer: nobody is to be told."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        status, content_type, body = answer_probe(
            path, self.server.health, self.server.metrics
        ) or (
            HTTPStatus.NOT_FOUND,
            _TEXT,
            b"there is /livez, /readyz and /metrics\n",
        )
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """A probe a second says nothing."""


def _probe(why_not: str | None) -> tuple[HTTPStatus, str, bytes]:
    if why_not is None:
        return HTTPStatus.OK, _TEXT, b"ok\n"
    return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, f"{why_not}\n".encode()
