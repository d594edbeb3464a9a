"""Names of record headers; what travels beside a value. All values are UTF-8."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache

from headrace.domain import Source
from headrace.errors import RequestError, UndecodableRecord

__all__ = [
    "ATTEMPT",
    "BODY_SHA256",
    "CANCEL_TYPE",
    "CE_ID",
    "CE_SOURCE",
    "CE_SPECVERSION",
    "CE_TIME",
    "CE_TYPE",
    "CONTENT_TYPE",
    "DATAREF",
    "DEADLINE",
    "ITEM",
    "JSON_HEADERS",
    "LENGTH",
    "MODEL",
    "OUTPUTS",
    "PRIORITY",
    "PROTOBUF_HEADERS",
    "REASON",
    "REDRIVEN",
    "REPLAY_OF",
    "REPLY_PARTITION",
    "REPLY_TOPIC",
    "REQUEST_HEADERS",
    "REQUEST_TYPE",
    "ROWS",
    "SCHEMA",
    "SCHEMA_BYTES",
    "SCHEMA_VERSION",
    "SHAPE",
    "SOURCE",
    "STATUS",
    "STATUS_ERROR",
    "STATUS_OK",
    "TENANT",
    "TEXT",
    "TRACEPARENT",
    "TRACESTATE",
    "UNREADABLE",
    "UNREADABLE_HEADERS",
    "VARYING",
    "VERSION",
    "X_REQUEST_ID",
    "check_schema",
    "made_by_us",
    "number",
    "parse_source",
    "source_text",
    "text",
    "time_bytes",
]

CE_SPECVERSION = "ce_specversion"
CE_ID = "ce_id"
CE_TYPE = "ce_type"
CE_SOURCE = "ce_source"

_OUR_SOURCE = b"headrace/"
CE_TIME = "ce_time"
CONTENT_TYPE = "content-type"
SCHEMA = "inf-schema"
TENANT = "inf-tenant"
MODEL = "inf-model"
VERSION = "inf-version"
PRIORITY = "inf-priority"
DEADLINE = "inf-deadline"
ROWS = "inf-rows"
SHAPE = "inf-shape"
LENGTH = "inf-length"
ITEM = "inf-item"
"""Of a job's record: the number of its first row; :data:`ROWS` follow it."""
STATUS = "inf-status"
STATUS_OK = b"ok"
STATUS_ERROR = b"error"
REASON = "inf-reason"
TEXT = "inf-text"
ATTEMPT = "inf-attempt"
SOURCE = "inf-source"
REDRIVEN = "inf-redriven"
REPLAY_OF = "inf-replay-of"
"""Of a request that a replay wrote: where the recorded one lies."""
OUTPUTS = "inf-outputs"
"""How the client wants its answer, of a request whose answer is kept for it: JSON,
``[[name, is binary], ...]``."""
DATAREF = "inf-dataref"
"""Where the tensors are that the value lacks (:mod:`headrace.wire.payloads`)."""
BODY_SHA256 = "inf-body-sha256"
"""Of the body behind an idempotency key, and of the version in its path."""
REPLY_TOPIC = "reply-topic"
REPLY_PARTITION = "reply-partition"
TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
X_REQUEST_ID = "x-request-id"
"""As the client sent it; never identity."""

VARYING = (CE_ID, DEADLINE, CE_TIME)
"""What differs from one request to the next."""

REQUEST_HEADERS = (
    *VARYING,
    TENANT,
    MODEL,
    VERSION,
    ROWS,
    SHAPE,
    LENGTH,
    REPLY_TOPIC,
    REPLY_PARTITION,
    CE_SOURCE,
    CE_SPECVERSION,
    CE_TYPE,
    CONTENT_TYPE,
)
"""The order in which an ingress writes them. :data:`DEADLINE` is absent for bulk
without a limit, :data:`LENGTH` where it is 0, the reply address for a request that
wants no reply; :data:`SCHEMA` and :data:`PRIORITY` would say what their absence does.
:data:`TRACEPARENT` and :data:`TRACESTATE` follow where the client sent them."""

REQUEST_TYPE = "inf.request.v1"
CANCEL_TYPE = "inf.cancel.v1"
"""Of a record that names a request by its id and ends it (in the same partition)."""

SCHEMA_VERSION = 1
SCHEMA_BYTES = b"%d" % SCHEMA_VERSION

PROTOBUF_HEADERS: tuple[tuple[str, bytes | None], ...] = (
    (SCHEMA, SCHEMA_BYTES),
    (CONTENT_TYPE, b"application/protobuf"),
)
JSON_HEADERS: tuple[tuple[str, bytes | None], ...] = (
    (SCHEMA, SCHEMA_BYTES),
    (CONTENT_TYPE, b"application/json"),
)
"""What every record has whose value says the rest."""

UNREADABLE = "inf-unreadable"
UNREADABLE_HEADERS: tuple[tuple[str, bytes | None], ...] = (
    (UNREADABLE, b"the name of a header is not UTF-8"),
)
"""What a reader gives in place of headers that cannot be read: every decoder answers
it with :class:`headrace.errors.UndecodableRecord`."""

DIGITS_MAX = 18


def text(headers: Mapping[str, bytes | None], name: str) -> str:
    """A header's value; ``""`` where it is absent or null.

    Raises :class:`headrace.errors.RequestError` for what is not UTF-8.
    """
    value = headers.get(name)
    if value is None:
        return ""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise RequestError(f"header {name} is not UTF-8: {error}") from error


def made_by_us(headers: Mapping[str, bytes | None]) -> bool:
    """Whether an ingress or a publisher of ours wrote the record, so that its id names
    one request; who writes records by hand may choose the same id twice."""
    return (headers.get(CE_SOURCE) or b"").startswith(_OUR_SOURCE)


def number(headers: Mapping[str, bytes | None], name: str) -> int | None:
    """A header's value as a number of at least 0; None where it is absent.

    Raises :class:`headrace.errors.RequestError` for anything else.
    """
    value = headers.get(name)
    if value is None:
        return None
    if not value.isdigit() or len(value) > DIGITS_MAX:
        raise RequestError(f"header {name} is {value[:40]!r}, expected a number")
    return int(value)


def time_bytes(log_us: int) -> bytes:
    """Log time as :data:`CE_TIME` has it."""
    second, us = divmod(log_us, 1_000_000)
    return b"%b.%06d+00:00" % (_second(second), us)


@lru_cache(16)
def _second(second: int) -> bytes:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()


def check_schema(headers: Mapping[str, bytes | None]) -> None:
    """Absent is version 1; any other, and headers that could not be read, raise
    :class:`headrace.errors.UndecodableRecord`."""
    if UNREADABLE in headers:
        raise UndecodableRecord("the name of a header is not UTF-8")
    schema = headers.get(SCHEMA)
    if schema not in (None, SCHEMA_BYTES):
        raise UndecodableRecord(
            f"header {SCHEMA} is {schema[:40]!r}, expected {SCHEMA_VERSION}"
        )


def source_text(source: Source) -> bytes:
    """``topic/partition/offset``: where the record that is answered lies."""
    return f"{source.topic}/{source.partition}/{source.offset}".encode()


def parse_source(value: bytes | None) -> Source:
    """The inverse of :func:`source_text`.

    Raises :class:`headrace.errors.UndecodableRecord`.
    """
    try:
        topic, partition, offset = (value or b"").decode().rsplit("/", 2)
        return Source(topic, int(partition), int(offset))
    except ValueError as error:
        raise UndecodableRecord(
            f"{(value or b'')[:300]!r} is no topic/partition/offset"
        ) from error
