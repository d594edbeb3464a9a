"""What an operator can set for an ingress; defaults stand here and nowhere else."""

from __future__ import annotations

from pydantic import BaseModel, Field, PositiveInt

from headrace.admission import AdmissionSettings
from headrace.lifecycle import BusSettings
from headrace.telemetry import LogSettings
from services.ingress.batches.settings import FilesSettings

__all__ = ["HttpSettings", "IngressLimits", "IngressSettings"]


FRAMING_FACTOR_MAX = 2
"""A message on the wire, above so many times the largest body, is refused with 413."""

FILES_PATH = b"/v1/files"


class HttpSettings(BaseModel, frozen=True, extra="forbid"):
    """Where the ingress listens."""

    host: str = "127.0.0.1"
    """Address to listen on."""

    port: int = Field(default=8000, ge=0, le=65_535)
    """0: any free port; the log says which."""

    socket: int | None = Field(default=None, ge=3)
    """Descriptor of a listening socket that the process has inherited, in place of a
    host and a port. Whoever started it keeps the socket too, so that connections wait
    while this process starts: it takes them when it can answer."""

    succession: int | None = Field(default=None, ge=3)
    """Descriptor of a socket on which the process asks for its successor when it is to
    end: it takes connections until that one is ready, or the other side is closed."""


class IngressLimits(BaseModel, frozen=True, extra="forbid"):
    """What one ingress process holds at most, and for how long."""

    http_body_bytes_max: PositiveInt = 64 * 1024 * 1024
    """A longer body, also when decompressed, is refused with 413."""

    file_bytes_max: PositiveInt = 200 * 1024 * 1024
    """A larger file is refused with 413."""

    json_element_bytes_max: PositiveInt = 32
    """Text of a JSON part per element that `payload_bytes_max` has room for, so that
    its length is bounded by the model's inputs before it is parsed; a longer one, also
    when decompressed, is refused with 413. The digits of an FP64 are at most 24."""

    http_header_bytes_max: PositiveInt = 32 * 1024
    """A longer request head is refused with 431 and the connection closed."""

    http_head_timeout_ms: PositiveInt = 10_000
    """From the first byte of a request to the end of its head; later, 408 and closed,
    a second later at most."""

    http_pipelined_max: PositiveInt = 64
    """Requests that wait on their connection behind the one that runs; further ones are
    not read until there is room."""

    bodies_bytes_max: PositiveInt = 512 * 1024 * 1024
    """Bodies that are being received; beyond, new ones are refused: `overloaded`."""

    http_body_timeout_ms: PositiveInt = 10_000
    """From a request's head to the end of its body; later, 408 and closed."""

    http_linger_ms: PositiveInt = 5_000
    """How long the rest of an answered request's body is read and dropped."""

    http_half_closed_ms: PositiveInt = 250
    """A client that ends its side while it waits may have closed, or only ask no more.
    After so long an interim response (100) finds out; one that has closed resets the
    connection, and its request is cancelled."""

    http_keep_alive_ms: PositiveInt = 75_000
    """A connection that sends no complete head for so long is closed, and one that does
    not read its answers."""

    connections_max: PositiveInt = 10_000
    """A further connection is answered 503 and closed."""

    in_flight_max: PositiveInt = 20_000
    """Requests between admission and answer; beyond, refused: `overloaded`."""

    kept_known_max: PositiveInt = 100_000
    """Kept answers whose place is known without a look into the log, about 300 bytes
    each; beyond, the oldest are looked up again when they are asked for."""

    kept_topics_max: PositiveInt = 1_000
    """Topics of kept answers that are followed, two for a tenant at most; a request of
    a further tenant is refused: `overloaded`."""

    wait_s_max: PositiveInt = 60
    """Longest that ``?wait=`` holds an answer back; asked for longer, it is so long."""

    drain_ms: PositiveInt = 15_000
    """After SIGTERM, how long answers are awaited before the process ends."""

    drain_succeeded_ms: PositiveInt = 600_000
    """The same where a successor has its place: a request's longest time limit."""

    drain_idle_ms: PositiveInt = 750
    """How long a connection that is idle at SIGTERM, or made just then, stays open:
    what it asks is answered, with ``connection: close``. It may be on its way."""

    def message_bytes_max(self, url: bytes) -> int:
        """Of a request to ``url`` on the wire: trailers and chunks of a byte each are
        no body, and have no end either."""
        largest = self.http_body_bytes_max
        if url.startswith(FILES_PATH):
            largest = max(largest, self.file_bytes_max)
        return self.http_header_bytes_max + FRAMING_FACTOR_MAX * largest


class IngressSettings(BaseModel, frozen=True, extra="forbid"):
    """All groups that an ingress reads."""

    bus: BusSettings = BusSettings()
    http: HttpSettings = HttpSettings()
    limits: IngressLimits = IngressLimits()
    admission: AdmissionSettings = AdmissionSettings()
    files: FilesSettings = FilesSettings()
    log: LogSettings = LogSettings()
