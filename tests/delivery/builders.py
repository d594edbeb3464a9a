"""Requests, versions and records for tests: what matters is named, the rest given."""

from headrace.delivery import CommitMetadata
from headrace.delivery.events import PartitionState
from headrace.domain import (
    Datatype,
    Priority,
    ReplyAddress,
    Request,
    ServedVersion,
    Signature,
    Source,
    TensorSpec,
)
from headrace.wire.topics import Topics

__all__ = [
    "INGRESS",
    "MS",
    "SECOND",
    "TOPICS",
    "a_partition",
    "a_request",
    "a_source",
    "a_version",
]

MS = 1_000
SECOND = 1_000_000
TOPICS = Topics(prefix="t")
INGRESS = ReplyAddress(TOPICS.replies, 0)
MODEL = "m"


def a_source(
    offset: int, *, priority: Priority = Priority.STANDARD, model: str = MODEL
) -> Source:
    partition = Topics.request_partition(0, priority)
    return Source(TOPICS.requests(model), partition, offset)


def a_request(
    offset: int,
    *,
    id: str = "",  # noqa: A002 - the field's name
    priority: Priority = Priority.STANDARD,
    model: str = MODEL,
    deadline_us: int | None = None,
    reply_to: ReplyAddress | None = INGRESS,
    made_by_us: bool = True,
    size_bytes: int = 100,
) -> Request:
    source = a_source(offset, priority=priority, model=model)
    identity = id or f"r{offset}"
    key = f"t/{identity}@{reply_to}" if made_by_us else "/".join(map(str, source))
    return Request(
        key=key,
        id=identity,
        tenant="t",
        model=model,
        version="1",
        shape="x:FP32:4",
        rows=1,
        length=0,
        priority=priority,
        arrived_us=0,
        deadline_us=deadline_us,
        reply_to=reply_to,
        source=source,
        tensors=(),
        size_bytes=size_bytes,
        made_by_us=made_by_us,
    )


def a_version(
    model: str = MODEL,
    *,
    slots: frozenset[int] = frozenset({0, 1}),
    run_us: dict[int, int] | None = None,
) -> ServedVersion:
    spec = TensorSpec("x", Datatype.FP32, (-1, 4))
    return ServedVersion(
        model=model,
        version="1",
        signature=Signature((spec,), (spec,)),
        sha256="0" * 64,
        max_batch=4,
        batch_axes={"x": 0},
        padding=None,
        latency_objective_us=None,
        run_us=run_us or {},
        ready_slots=slots,
        unloading_slots=frozenset(),
    )


def a_partition(
    *,
    priority: Priority = Priority.STANDARD,
    model: str = MODEL,
    log_start: int = 0,
    log_end: int = 0,
    committed: int | None = None,
    metadata: CommitMetadata | str = "",
) -> PartitionState:
    if isinstance(metadata, CommitMetadata):
        metadata = metadata.encode()
    return PartitionState(
        topic=TOPICS.requests(model),
        partition=Topics.request_partition(0, priority),
        log_start=log_start,
        log_end=log_end,
        committed=committed,
        metadata=metadata,
    )
