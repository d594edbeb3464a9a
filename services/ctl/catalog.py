"""The versions that workers have announced, as an ingress knows them."""

from __future__ import annotations

from headrace.broker import KafkaConnection, records_since
from headrace.domain import ServedVersion
from headrace.errors import RequestError, UndecodableRecord
from headrace.registry import Catalog
from headrace.wire import Announcement, Topics, decode_json, parse_announcement_key
from services.ctl.errors import UsageError

__all__ = ["read_catalog", "served_version"]


def read_catalog(connection: KafkaConnection, topics: Topics) -> Catalog:
    """Raises BusError."""
    catalog = Catalog()
    for record in records_since(
        connection, lambda one: one.topic == topics.control_models
    ):
        try:
            if record.value is None:
                catalog.remove(*parse_announcement_key(record.key))
            else:
                catalog.apply(decode_json(Announcement, record))
        except UndecodableRecord:
            continue
    return catalog


def served_version(
    connection: KafkaConnection, topics: Topics, model: str, version: str = ""
) -> ServedVersion:
    """The one that takes new requests, by default that of the highest number.

    Raises UsageError when there is none, BusError.
    """
    try:
        return read_catalog(connection, topics).resolve(model, version)
    except RequestError as error:
        raise UsageError(f"{error}.") from error
