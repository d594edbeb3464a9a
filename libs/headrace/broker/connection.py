"""How every client of Apache Kafka reaches the cluster, and what its errors mean."""

from __future__ import annotations

import logging
import re
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from headrace.errors import BusError, BusTimeout

__all__ = [
    "FRAMING_BYTES",
    "LIBRARY_LOG",
    "KafkaConnection",
    "bus_error",
    "checked_servers",
    "error_of",
    "ignore_brokers_away",
]

_REPEAT_S: Final = 10.0

FRAMING_BYTES: Final = 1024 * 1024
"""Room for headers and envelopes above ``batch_bytes_max``; the broker's
``message.max.bytes`` has the same."""

_OUTCOME_UNKNOWN: Final = frozenset(
    {
        "_MSG_TIMED_OUT",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_WAIT_COORD",
        "REQUEST_TIMED_OUT",
    }
)


class _Sparse(logging.Filter):
    """Passes one line of a kind every ten seconds: while a broker is away, each client
    says so twenty times a second. That a new producer asks again for its number, while
    the coordinator starts, is nobody's business."""

    def __init__(self) -> None:
        super().__init__()
        self._passed_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        # The library's lines are (kind, client, text).
        kind = str(record.args[0] if isinstance(record.args, tuple) else record.msg)
        if kind == "GETPID" and "retrying" in record.getMessage():
            return False
        if record.created - self._passed_s.get(kind, 0.0) < _REPEAT_S:
            return False
        self._passed_s[kind] = record.created
        return True


_SERVER: Final = re.compile(
    r"(?:[A-Za-z_]+://)?(?:[^\s:/\[\]]+|\[[0-9A-Fa-f:.%]+\])(?::(?P<port>[0-9]{1,6}))?"
)
_PORT_MAX: Final = 65_535

LIBRARY_LOG: Final = logging.getLogger("headrace.broker.librdkafka")
LIBRARY_LOG.addFilter(_Sparse())


class KafkaConnection(NamedTuple):
    """One cluster, seen from one process. ``client_id`` stands in the broker's
    logs and quotas."""

    bootstrap_servers: str
    client_id: str
    batch_bytes_max: int = 16 * 1024 * 1024

    def config(self) -> dict[str, Any]:
        """What all clients share. Retries are quick, since a request that waits for
        the default back-off has lost its deadline. A consumer tries to connect twice
        per ``reconnect.backoff.ms`` for as long as the broker is away (measured)."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": self.client_id,
            "socket.keepalive.enable": True,
            "socket.connection.setup.timeout.ms": 5000,
            "reconnect.backoff.ms": 100,
            "reconnect.backoff.max.ms": 1000,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 200,
            "topic.metadata.refresh.interval.ms": 60_000,
            "error_cb": ignore_brokers_away,
            "logger": LIBRARY_LOG,
        }


def checked_servers(text: str) -> str:
    """``text``, brokers with commas between them. Raises ValueError: the client would
    take a port beyond the last for another one."""
    servers = [each.strip() for each in text.split(",")]
    for server in servers:
        found = _SERVER.fullmatch(server)
        if found is None:
            raise ValueError(f"{server!r} is no broker: write HOST:PORT")
        if found["port"] and not 1 <= int(found["port"]) <= _PORT_MAX:
            raise ValueError(f"{server!r}: a port is from 1 to {_PORT_MAX}")
    return text


def ignore_brokers_away(error: KafkaError) -> None:
    """The client's global events. A broker that is away is no event of ours: the
    client reconnects, and what waits for it times out under its own name."""
    if error.name() not in {
        "_ALL_BROKERS_DOWN",
        "_TRANSPORT",
        "_RESOLVE",
    }:
        LIBRARY_LOG.warning("%s: %s", error.name(), error.str())


def error_of(exception: KafkaException) -> KafkaError:
    """The code inside an exception of the client."""
    error = exception.args[0]
    assert isinstance(error, KafkaError)
    return error


def bus_error(error: KafkaError, doing: str) -> BusError:
    """The product's error for one of Kafka; ``doing`` names the operation."""
    kind = BusTimeout if error.name() in _OUTCOME_UNKNOWN else BusError
    return kind(f"{doing}: {error.str()} ({error.name()})", code=error.name())
