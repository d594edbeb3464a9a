"""Whether there is a cluster at an address, before anything depends on it."""

from __future__ import annotations

import logging
import re
import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import admin as client

from headrace.broker.connection import KafkaConnection, error_of
from headrace.errors import SetupError

__all__ = ["reach"]

_TRY_S: Final = 0.5
_REASON: Final = re.compile(r"/bootstrap: (.+?)(?: \(after .*)?$")
_SILENT: Final = logging.getLogger("headrace.broker.reach")
_SILENT.propagate = False
_SILENT.addHandler(logging.NullHandler())


def reach(connection: KafkaConnection, timeout_s: float) -> None:
    """Return once a broker has answered.

    Raises SetupError with the address and what was heard from there, if none has
    within ``timeout_s``.
    """
    reason = "nothing there speaks Kafka's protocol"

    def hear(error: KafkaError) -> None:
        nonlocal reason
        found = _REASON.search(error.str())
        if found is not None:
            reason = found[1]

    config = connection.config() | {"error_cb": hear, "logger": _SILENT}
    deadline = time.monotonic() + timeout_s
    try:
        admin = client.AdminClient(config)
    except KafkaException as error:
        raise _unreachable(connection, error_of(error).str()) from error
    while True:
        try:
            admin.list_topics(timeout=_TRY_S)
        except KafkaException:
            admin.poll(0)  # tells hear() what went wrong
            if time.monotonic() > deadline:
                raise _unreachable(connection, reason) from None
        else:
            return


def _unreachable(connection: KafkaConnection, reason: str) -> SetupError:
    return SetupError(
        f"No Apache Kafka answers at {connection.bootstrap_servers} ({reason}): start "
        f"it, or correct the address."
    )
