"""The low-rate records, as JSON: what processes say of themselves and of models.

Their JSON Schemas are generated from these classes into ``schemas/``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from headrace.domain import (
    ROWS_MAX,
    Count,
    Load,
    Microseconds,
    ModelState,
    Padding,
    Signature,
)
from headrace.errors import RequestError, UndecodableRecord
from headrace.wire.headers import check_schema
from headrace.wire.records import Record
from headrace.wire.topics import checked_name

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

_VERSION = re.compile(r"[1-9][0-9]{0,17}")
_Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Rows = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_RunTime = Annotated[int, Meta(ge=0, le=86_400_000_000)]
_Axis = Annotated[int, Meta(ge=-1, le=2**31 - 1)]


class Claim(msgspec.Struct, frozen=True):
    """Topic ``lanes.<pool>``: a former was assigned the lane of this partition."""

    instance: str
    """The group's static id, kept over restarts."""

    former: str
    """UUID of this process, 32 hex digits."""

    host: str
    pid: Count
    started_us: Microseconds
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

    lane: Count
    epoch: Annotated[int, Meta(ge=-1, le=2**63 - 1)]
    active: bool
    """False while it is taken over or left."""

    load: Load
    request_us: Microseconds
    control_us: Microseconds
    response_us: Microseconds
    """Measured hops: append to former, former to a run's start, run's end to reply."""


class Heartbeat(msgspec.Struct, frozen=True, omit_defaults=True):
    """Topic ``status``, key ``<role>/<slot>``: every process, every 250 ms, while its
    main loop turns."""

    role: Role
    slot: Count
    instance: str
    """UUID of this process, 32 hex digits."""

    state: ServiceState
    host: str = ""
    pid: Count = 0
    admin: str = ""
    """Base address of ``/livez /readyz /metrics``."""

    incarnation: _Offset | None = None
    """Worker: offset of its join; None before it is acked."""

    lane: Count | None = None
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
    slot: Count
    state: ModelState
    incarnation: _Offset | None = None
    reason: str = ""
    """Why it is refused, or is not ready."""

    warnings: tuple[str, ...] = ()
    signature: Signature | None = None
    sha256: str = ""
    """Of the version folder's files."""

    load_begun: bool = False
    """Loading: it has begun, and if the slot's next process finds this, it ended this
    one perhaps. Refused: it did, as it was tried apart."""

    max_batch: Annotated[int, Meta(ge=1, le=ROWS_MAX)] = 1
    rows_fit: Annotated[int, Meta(ge=1, le=ROWS_MAX)] | None = None
    """Most rows in one run of this slot for the time being; None: ``max_batch``."""

    batch_axes: dict[str, _Axis] = {}
    padding: Padding | None = None
    latency_objective_ms: Annotated[float, Meta(gt=0, le=600_000)] | None = None
    run_us: dict[_Rows, _RunTime] = {}
    """Rows to measured run time, from the probe."""

    run_length: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    """Padded length at which ``run_us`` was measured; 0 without padding."""

    recent_runs: dict[str, tuple[tuple[_Rows, _RunTime], ...]] = {}
    """Rows and run time of the last runs by compatibility key, a few of each size."""

    platform: str = "onnx_onnxv1"
    backend: str = "onnxruntime"


_Json = TypeVar("_Json", Claim, Heartbeat, Announcement)


def encode_json(value: Claim | Heartbeat | Announcement) -> bytes:
    return msgspec.json.encode(value)


def decode_json(kind: type[_Json], record: Record) -> _Json:
    """Raises :class:`headrace.errors.UndecodableRecord`, also for a tombstone, and for
    what no process of ours could have meant: whoever folds it need not look."""
    check_schema(dict(record.headers))
    if record.value is None:
        raise UndecodableRecord("the record has no value")
    try:
        value = msgspec.json.decode(record.value, type=kind)
        _check(value)
    except (msgspec.DecodeError, RequestError, RecursionError) as error:
        raise UndecodableRecord(f"not a {kind.__name__}: {error}") from error
    return value


def _check(value: Claim | Heartbeat | Announcement) -> None:
    """What their types do not say."""
    if isinstance(value, Heartbeat):
        for each in value.lanes:
            if any(one > other for one, other in pairwise(each.load.free_us)):
                raise UndecodableRecord(f"free_us of lane {each.lane} does not ascend")
    elif isinstance(value, Announcement):
        if value.state is not ModelState.REFUSED:
            _check_names(value.model, value.version)
        if value.signature is not None:
            _check_axes(value, value.signature)
        edges = value.padding.edges if value.padding else ()
        if any(one >= other for one, other in pairwise(edges)):
            raise UndecodableRecord("the edges of padding do not ascend")


def _check_names(model: str, version: str) -> None:
    """A folder may be refused for its very name; what is served has a fit one."""
    checked_name("model", model)
    if not _VERSION.fullmatch(version):
        raise UndecodableRecord(
            f"version {version[:40]!r} is not a number from 1 of at most 18 digits"
        )


def _check_axes(value: Announcement, signature: Signature) -> None:
    inputs = {spec.name: len(spec.shape) for spec in signature.inputs}
    outputs = {spec.name: len(spec.shape) for spec in signature.outputs}
    if len(inputs) < len(signature.inputs) or len(outputs) < len(signature.outputs):
        raise UndecodableRecord("the signature has a name twice")
    _check_ranks("batch_axes", value.batch_axes, inputs)
    _check_ranks("batch_axes", value.batch_axes, outputs)
    if value.padding is not None:
        _check_ranks("padding.input_axes", value.padding.input_axes, inputs)
        _check_ranks("padding.output_axes", value.padding.output_axes, outputs)


def _check_ranks(what: str, axes: Mapping[str, int], ranks: Mapping[str, int]) -> None:
    for name, axis in axes.items():
        if axis >= ranks.get(name, axis + 1):
            raise UndecodableRecord(
                f"{what}: '{name[:120]}' has no axis {axis}, only {ranks[name]}"
            )


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
