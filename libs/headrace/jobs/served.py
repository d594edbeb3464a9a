"""The version that a job runs on, as the workers announce it."""

from __future__ import annotations

from contextlib import suppress

from headrace.broker import KafkaConnection, records_since
from headrace.domain import ServedVersion
from headrace.errors import UndecodableRecord
from headrace.registry import Catalog
from headrace.wire import Announcement, Topics, decode_json, parse_announcement_key

__all__ = ["served_version"]


def served_version(
    connection: KafkaConnection, topics: Topics, model: str, version: str
) -> ServedVersion:
    """Raises :class:`headrace.errors.RequestError` where there is none, and
    :class:`headrace.errors.BusError`."""
    catalog = Catalog()
    topic = topics.control_models
    for record in records_since(connection, lambda one: one.topic == topic):
        with suppress(UndecodableRecord):
            if record.value is None:
                catalog.remove(*parse_announcement_key(record.key))
            else:
                catalog.apply(decode_json(Announcement, record))
    return catalog.resolve(model, version)
