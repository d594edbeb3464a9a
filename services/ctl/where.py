"""Which platform a command speaks to: named, or the one that runs here."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.errors import SetupError
from services.ctl.running import DATA_FOLDER, Document, find_running

__all__ = ["bootstrap_servers", "ingress_url", "topic_prefix"]


def ingress_url(url: str | None, data: Path | None) -> str:
    """Base address of an ingress: the option's, HEADRACE_URL's, or a running one's.

    Raises SetupError if there is none.
    """
    named = url or os.environ.get("HEADRACE_URL")
    return named.rstrip("/") if named else _running(data, "--url").http[0]


def bootstrap_servers(named: str | None, data: Path | None) -> str:
    """As :func:`ingress_url`, for Kafka and KAFKA_BOOTSTRAP_SERVERS."""
    named = named or os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    return named or _running(data, "--bootstrap").bootstrap_servers


def _running(data: Path | None, option: str) -> Document:
    running = find_running(data)
    if running is None:
        raise SetupError(
            f"Nothing runs from {data or DATA_FOLDER}: start it with `headrace up`, "
            f"or name a platform with {option}."
        )
    return running.document


def topic_prefix() -> str:
    """How the topics' names begin, from the variable that the services read."""
    return os.environ.get("HEADRACE_BUS__PREFIX", "headrace")
