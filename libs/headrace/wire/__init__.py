"""Bytes <-> domain values; the names of topics and headers."""

from headrace.wire.compatibility import (
    LENGTH,
    ROWS,
    Compatibility,
    batched_shapes,
    compatibility,
)
from headrace.wire.records import Headers, NewTopic, Record
from headrace.wire.requests import (
    TENANT_DEFAULT,
    TIMEOUT_DEFAULT_US,
    TIMEOUT_MAX_US,
    NewRequest,
    RequestDecoder,
    RequestEncoder,
)
from headrace.wire.tensors import (
    check_raw,
    check_shape,
    check_size,
    pack_bytes,
    parse_json_data,
    to_json,
    unpack_bytes,
)
from headrace.wire.topics import Topics, checked_name

__all__ = [
    "LENGTH",
    "ROWS",
    "TENANT_DEFAULT",
    "TIMEOUT_DEFAULT_US",
    "TIMEOUT_MAX_US",
    "Compatibility",
    "Headers",
    "NewRequest",
    "NewTopic",
    "Record",
    "RequestDecoder",
    "RequestEncoder",
    "Topics",
    "batched_shapes",
    "check_raw",
    "check_shape",
    "check_size",
    "checked_name",
    "compatibility",
    "pack_bytes",
    "parse_json_data",
    "to_json",
    "unpack_bytes",
]
