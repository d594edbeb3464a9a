"""Names of record headers; what travels beside a value. All values are UTF-8.

The order of :data:`REQUEST_HEADERS` is the order in which an ingress writes them, so
that the batch former reads by position and falls back to a search for other writers.
"""

from __future__ import annotations

__all__ = [
    "CE_ID",
    "CE_SOURCE",
    "CE_SPECVERSION",
    "CE_TIME",
    "CE_TYPE",
    "CONTENT_TYPE",
    "DEADLINE",
    "ITEM",
    "LENGTH",
    "MODEL",
    "PRIORITY",
    "REASON",
    "REPLY_PARTITION",
    "REPLY_TOPIC",
    "REQUEST_HEADERS",
    "REQUEST_TYPE",
    "ROWS",
    "SCHEMA",
    "SCHEMA_VERSION",
    "SHAPE",
    "SOURCE",
    "STATUS",
    "TENANT",
    "TRACEPARENT",
    "TRACESTATE",
    "VERSION",
]

CE_SPECVERSION = "ce_specversion"
CE_ID = "ce_id"
CE_TYPE = "ce_type"
CE_SOURCE = "ce_source"
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
STATUS = "inf-status"
REASON = "inf-reason"
SOURCE = "inf-source"
REPLY_TOPIC = "reply-topic"
REPLY_PARTITION = "reply-partition"
TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"

REQUEST_HEADERS = (
    CE_ID,
    TENANT,
    MODEL,
    VERSION,
    PRIORITY,
    DEADLINE,
    ROWS,
    SHAPE,
    LENGTH,
    REPLY_TOPIC,
    REPLY_PARTITION,
    CE_SOURCE,
    CE_TIME,
    CE_SPECVERSION,
    CE_TYPE,
    CONTENT_TYPE,
    SCHEMA,
)
"""Those that every request of an ingress has; ``traceparent`` and ``tracestate``
follow where the client sent them."""

REQUEST_TYPE = "inf.request.v1"
SCHEMA_VERSION = 1
