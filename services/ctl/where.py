"""Which platform a command speaks to: named, or the one that runs here."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

from headrace.broker import KafkaConnection, reach
from headrace.domain import PayloadRef
from headrace.errors import SetupError
from headrace.lifecycle import BusSettings, read_settings
from headrace.payloads import PayloadStore, no_store
from services.ctl.options import checked_bootstrap, checked_url
from services.ctl.running import DATA_FOLDER, Document, all_running, find_running

__all__ = [
    "KAFKA_ANSWERS_WITHIN_S",
    "ingress_url",
    "kafka",
    "kafka_elsewhere",
    "payload_reader",
    "payload_store",
    "topic_pool",
    "topic_prefix",
]

KAFKA_ANSWERS_WITHIN_S = 5.0


def ingress_url(url: str | None, data: Path | None) -> str:
    """Base address of an ingress: the option's, HEADRACE_URL's, or a running one's.

    Raises SetupError if there is none, UsageError for what is no address.
    """
    for text, source in (
        (url, "--url"),
        (os.environ.get("HEADRACE_URL"), "HEADRACE_URL"),
    ):
        if text:
            return checked_url(text, source=source)
    return _running(data, "--url").http[0]


def kafka(
    named: str | None, data: Path | None, client_id: str = "headrace-ctl"
) -> KafkaConnection:
    """As :func:`ingress_url`, for Kafka and KAFKA_BOOTSTRAP_SERVERS; a broker has
    answered there. Raises SetupError."""
    if named:
        servers = checked_bootstrap(named, source="--bootstrap")
    else:
        servers = kafka_elsewhere()
    if not servers:
        servers = _running(data, "--bootstrap").bootstrap_servers
    connection = KafkaConnection(servers, client_id)
    reach(connection, KAFKA_ANSWERS_WITHIN_S)
    return connection


def kafka_elsewhere() -> str:
    """Address of the cluster to use in place of an embedded one, or nothing. Raises
    UsageError for what is no address."""
    name = "KAFKA_BOOTSTRAP_SERVERS"
    servers = os.environ.get(name, "").strip()
    return checked_bootstrap(servers, source=name) if servers else ""


def _running(data: Path | None, option: str) -> Document:
    running = find_running(data)
    if running is None:
        others = "" if data else " ".join(str(each.data) for each in all_running())
        raise SetupError(
            f"Nothing runs from {data or DATA_FOLDER}: start it with `headrace up`, "
            f"or name a platform with {option}"
            + (f" or --data (there is {others})." if others else ".")
        )
    return running.document


def topic_prefix() -> str:
    """How the topics' names begin, from the variable that the services read. Raises
    SetupError, also for a name that is near it and no setting."""
    return _bus().prefix


def payload_reader() -> Callable[[PayloadRef], memoryview]:
    """Reads its objects, or raises PayloadLost or StoreUnavailable, as it does where
    no store is set. Raises SetupError."""
    store = payload_store()
    return no_store if store is None else store.read


def payload_store() -> PayloadStore | None:
    """The store of what is too large for a record, likewise; None: there is none.
    Raises SetupError."""
    url = _bus().payload_store
    return PayloadStore(url) if url else None


def topic_pool() -> str:
    """The pool of workers, likewise."""
    return _bus().pool


class _Settings(BaseModel, frozen=True, extra="forbid"):
    bus: BusSettings = BusSettings()


def _bus() -> BusSettings:
    return read_settings(_Settings, os.environ).bus
