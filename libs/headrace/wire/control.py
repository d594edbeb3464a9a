"""The low-rate records, as JSON: what processes say of themselves and of models.

Their JSON Schemas are generated from these classes into ``schemas/``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

import msgspec

from headrace.domain import Load, ModelState, Padding, Signature
from headrace.errors import UndecodableRecord
from headrace.wire.headers import check_schema
from headrace.wire.records import Record

__all__ = [
    "Announcement",
    "Claim",
    "Heartbeat",
    "LaneLoad",
    "Role",
    "ServiceState",
    "announcement_key",
    "decode_json",
    "encode_json",
    "parse_announcement_key",
]


class Claim(msgspec.Struct, frozen=True):
    """Topic ``lanes.<pool>``: a former was assigned the lane of this partition."""

    instance: str
    """The group's static id, kept over restarts."""

    former: str
    """UUID of this process, 32 hex digits."""

    host: str
    pid: int
    started_us: int
    """Start of the process in log time, epoch microseconds."""


class Role(StrEnum):
    INGRESS = "ingress"
    BATCH_FORMER = "batch_former"
    GPU_WORKER = "gpu_worker"


class ServiceState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


class LaneLoad(msgspec.Struct, frozen=True):
    """A lane as its former sees it; what an ingress admits by."""

    lane: int
    epoch: int
    active: bool
    """False while it is taken over or left."""

    load: Load
    request_us: int
    control_us: int
    response_us: int
    """Measured hops: append to former, former to a run's start, run's end to reply."""


class Heartbeat(msgspec.Struct, frozen=True, omit_defaults=True):
    """Topic ``status``, key ``<role>/<slot>``: every process, every 250 ms, while its
    main loop turns."""

    role: Role
    slot: int
    instance: str
    """UUID of this process, 32 hex digits."""

    state: ServiceState
    host: str = ""
    pid: int = 0
    admin: str = ""
    """Base address of ``/livez /readyz /metrics``."""

    incarnation: int | None = None
    """Worker: offset of its join; None before it is acked."""

    lane: int | None = None
    """Worker: the lane that it serves."""

    models: tuple[str, ...] = ()
    """Worker: ``<model>/<version>`` that it can run now."""

    lanes: tuple[LaneLoad, ...] = ()
    """Former: the lanes that it owns."""


class Announcement(msgspec.Struct, frozen=True, omit_defaults=True):
    """Topic ``control.models``, key ``<model>/<version>/<slot>``: a worker slot on a
    version of its folder. A tombstone: the version left the slot for good."""

    model: str
    version: str
    slot: int
    state: ModelState
    incarnation: int | None = None
    reason: str = ""
    """Why it is refused, or is not ready."""

    warnings: tuple[str, ...] = ()
    signature: Signature | None = None
    sha256: str = ""
    """Of the version folder's files."""

    max_batch: int = 1
    batch_axes: dict[str, int] = {}
    padding: Padding | None = None
    latency_objective_ms: float | None = None
    run_us: dict[int, int] = {}
    """Rows to measured run time, from the probe."""

    platform: str = "onnx_onnxv1"
    backend: str = "onnxruntime"


_Json = TypeVar("_Json", Claim, Heartbeat, Announcement)


def encode_json(value: Claim | Heartbeat | Announcement) -> bytes:
    return msgspec.json.encode(value)


def decode_json(kind: type[_Json], record: Record) -> _Json:
    """Raises :class:`headrace.errors.UndecodableRecord`, also for a tombstone."""
    check_schema(dict(record.headers))
    if record.value is None:
        raise UndecodableRecord("the record has no value")
    try:
        return msgspec.json.decode(record.value, type=kind)
    except msgspec.DecodeError as error:
        raise UndecodableRecord(f"not a {kind.__name__}: {error}") from error


def announcement_key(model: str, version: str, slot: int) -> bytes:
    return f"{model}/{version}/{slot}".encode()


def parse_announcement_key(key: bytes | None) -> tuple[str, str, int]:
    """Model, version and slot of a record of ``control.models``.

    Raises :class:`headrace.errors.UndecodableRecord`.
    """
    try:
        model, version, slot = (key or b"").decode().split("/")
        return model, version, int(slot)
    except ValueError as error:
        raise UndecodableRecord(f"{key!r} is no key of control.models") from error
