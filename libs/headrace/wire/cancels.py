"""The record by which a client takes its request back.

It has no value. Its headers name the request by what its identity is made of: tenant,
id and reply address. It lies in the request's partition, behind it.
"""

from __future__ import annotations

from headrace.domain import ReplyAddress
from headrace.wire import headers as names

__all__ = ["cancel_headers", "identity"]


def identity(
    tenant: str, request_id: str, reply_to: ReplyAddress | None, redriven: str = ""
) -> str:
    """The key of a request that an ingress or a publisher wrote. ``redriven``: the dead
    letter that it was put back from, so that it does not join what ended so."""
    topic, partition = reply_to or ("", None)
    key = f"{tenant}/{request_id}@{topic}/{partition}"
    return f"{key}#{redriven}" if redriven else key


def cancel_headers(
    request_id: str,
    tenant: str,
    reply_to: ReplyAddress,
    *,
    source: str,
    log_us: int,
    body_sha256: str = "",
) -> list[tuple[str, bytes | None]]:
    """Of the record that cancels this request; ``source`` is the writer's
    ``ce_source``, ``log_us``: now, as ``ce_time``; ``body_sha256`` that of the request,
    if it has one."""
    headers: list[tuple[str, bytes | None]] = [
        (names.CE_ID, request_id.encode()),
        (names.TENANT, tenant.encode()),
        (names.REPLY_TOPIC, reply_to.topic.encode()),
    ]
    if reply_to.partition is not None:
        headers.append((names.REPLY_PARTITION, b"%d" % reply_to.partition))
    headers += [
        (names.CE_SOURCE, source.encode()),
        (names.CE_TIME, names.time_bytes(log_us)),
        (names.CE_SPECVERSION, b"1.0"),
        (names.CE_TYPE, names.CANCEL_TYPE.encode()),
        (names.SCHEMA, names.SCHEMA_BYTES),
    ]
    if body_sha256:
        headers.append((names.BODY_SHA256, body_sha256.encode()))
    return headers
