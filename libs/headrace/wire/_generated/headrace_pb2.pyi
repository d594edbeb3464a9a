from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MemberStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OK: _ClassVar[MemberStatus]
    UNACKED: _ClassVar[MemberStatus]
    RETRY: _ClassVar[MemberStatus]
    FINAL: _ClassVar[MemberStatus]
OK: MemberStatus
UNACKED: MemberStatus
RETRY: MemberStatus
FINAL: MemberStatus

class SourcePartition(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class ReplyPartition(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class BatchTensor(_message.Message):
    __slots__ = ("name", "datatype", "shape", "contents", "member_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATATYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    CONTENTS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    datatype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    contents: bytes
    member_bytes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., datatype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., contents: _Optional[bytes] = ..., member_bytes: _Optional[_Iterable[int]] = ...) -> None: ...

class Payload(_message.Message):
    __slots__ = ("member", "name", "sha256", "sizes")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    member: int
    name: str
    sha256: bytes
    sizes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, member: _Optional[int] = ..., name: _Optional[str] = ..., sha256: _Optional[bytes] = ..., sizes: _Optional[_Iterable[int]] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("batch", "lane", "epoch", "former", "incarnation", "lease_ms", "latest_start_us", "release_reason", "padded_rows", "predicted_us", "model", "version", "tensors", "sources", "addresses", "tenants", "ids", "source_index", "offsets", "address_index", "tenant_index", "rows", "lengths", "attempts", "client_ids", "payloads")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FORMER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    LATEST_START_US_FIELD_NUMBER: _ClassVar[int]
    RELEASE_REASON_FIELD_NUMBER: _ClassVar[int]
    PADDED_ROWS_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_US_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_INDEX_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_INDEX_FIELD_NUMBER: _ClassVar[int]
    TENANT_INDEX_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_IDS_FIELD_NUMBER: _ClassVar[int]
    PAYLOADS_FIELD_NUMBER: _ClassVar[int]
    batch: bytes
    lane: int
    epoch: int
    former: bytes
    incarnation: int
    lease_ms: int
    latest_start_us: int
    release_reason: str
    padded_rows: int
    predicted_us: int
    model: str
    version: str
    tensors: _containers.RepeatedCompositeFieldContainer[BatchTensor]
    sources: _containers.RepeatedCompositeFieldContainer[SourcePartition]
    addresses: _containers.RepeatedCompositeFieldContainer[ReplyPartition]
    tenants: _containers.RepeatedScalarFieldContainer[str]
    ids: _containers.RepeatedScalarFieldContainer[str]
    source_index: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    address_index: _containers.RepeatedScalarFieldContainer[int]
    tenant_index: _containers.RepeatedScalarFieldContainer[int]
    rows: _containers.RepeatedScalarFieldContainer[int]
    lengths: _containers.RepeatedScalarFieldContainer[int]
    attempts: _containers.RepeatedScalarFieldContainer[int]
    client_ids: _containers.RepeatedScalarFieldContainer[str]
    payloads: _containers.RepeatedCompositeFieldContainer[Payload]
    def __init__(self, batch: _Optional[bytes] = ..., lane: _Optional[int] = ..., epoch: _Optional[int] = ..., former: _Optional[bytes] = ..., incarnation: _Optional[int] = ..., lease_ms: _Optional[int] = ..., latest_start_us: _Optional[int] = ..., release_reason: _Optional[str] = ..., padded_rows: _Optional[int] = ..., predicted_us: _Optional[int] = ..., model: _Optional[str] = ..., version: _Optional[str] = ..., tensors: _Optional[_Iterable[_Union[BatchTensor, _Mapping]]] = ..., sources: _Optional[_Iterable[_Union[SourcePartition, _Mapping]]] = ..., addresses: _Optional[_Iterable[_Union[ReplyPartition, _Mapping]]] = ..., tenants: _Optional[_Iterable[str]] = ..., ids: _Optional[_Iterable[str]] = ..., source_index: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ..., address_index: _Optional[_Iterable[int]] = ..., tenant_index: _Optional[_Iterable[int]] = ..., rows: _Optional[_Iterable[int]] = ..., lengths: _Optional[_Iterable[int]] = ..., attempts: _Optional[_Iterable[int]] = ..., client_ids: _Optional[_Iterable[str]] = ..., payloads: _Optional[_Iterable[_Union[Payload, _Mapping]]] = ...) -> None: ...

class Sync(_message.Message):
    __slots__ = ("lane", "epoch", "former", "k", "incarnation")
    LANE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FORMER_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    lane: int
    epoch: int
    former: bytes
    k: int
    incarnation: int
    def __init__(self, lane: _Optional[int] = ..., epoch: _Optional[int] = ..., former: _Optional[bytes] = ..., k: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Opening(_message.Message):
    __slots__ = ("lane", "epoch", "former", "k", "incarnation")
    LANE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FORMER_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    lane: int
    epoch: int
    former: bytes
    k: int
    incarnation: int
    def __init__(self, lane: _Optional[int] = ..., epoch: _Optional[int] = ..., former: _Optional[bytes] = ..., k: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Order(_message.Message):
    __slots__ = ("batch", "sync", "opening")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    OPENING_FIELD_NUMBER: _ClassVar[int]
    batch: Batch
    sync: Sync
    opening: Opening
    def __init__(self, batch: _Optional[_Union[Batch, _Mapping]] = ..., sync: _Optional[_Union[Sync, _Mapping]] = ..., opening: _Optional[_Union[Opening, _Mapping]] = ...) -> None: ...

class Join(_message.Message):
    __slots__ = ("slot", "pid", "previous_exit", "host")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_EXIT_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    slot: int
    pid: int
    previous_exit: str
    host: str
    def __init__(self, slot: _Optional[int] = ..., pid: _Optional[int] = ..., previous_exit: _Optional[str] = ..., host: _Optional[str] = ...) -> None: ...

class HeldBatch(_message.Message):
    __slots__ = ("batch", "sources", "source_index", "offsets")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_INDEX_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    batch: bytes
    sources: _containers.RepeatedCompositeFieldContainer[SourcePartition]
    source_index: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, batch: _Optional[bytes] = ..., sources: _Optional[_Iterable[_Union[SourcePartition, _Mapping]]] = ..., source_index: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("slot", "incarnation", "epoch", "former", "k", "state", "models", "held")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FORMER_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    slot: int
    incarnation: int
    epoch: int
    former: bytes
    k: int
    state: str
    models: _containers.RepeatedScalarFieldContainer[str]
    held: _containers.RepeatedCompositeFieldContainer[HeldBatch]
    def __init__(self, slot: _Optional[int] = ..., incarnation: _Optional[int] = ..., epoch: _Optional[int] = ..., former: _Optional[bytes] = ..., k: _Optional[int] = ..., state: _Optional[str] = ..., models: _Optional[_Iterable[str]] = ..., held: _Optional[_Iterable[_Union[HeldBatch, _Mapping]]] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ("batch", "slot", "incarnation", "rows", "wait_us", "input_us", "run_us", "output_us", "sources", "source_index", "offsets", "ids", "status", "reason", "text", "result_offsets", "model", "version", "order")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    WAIT_US_FIELD_NUMBER: _ClassVar[int]
    INPUT_US_FIELD_NUMBER: _ClassVar[int]
    RUN_US_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_US_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_INDEX_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    RESULT_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    batch: bytes
    slot: int
    incarnation: int
    rows: int
    wait_us: int
    input_us: int
    run_us: int
    output_us: int
    sources: _containers.RepeatedCompositeFieldContainer[SourcePartition]
    source_index: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    status: _containers.RepeatedScalarFieldContainer[MemberStatus]
    reason: _containers.RepeatedScalarFieldContainer[str]
    text: _containers.RepeatedScalarFieldContainer[str]
    result_offsets: _containers.RepeatedScalarFieldContainer[int]
    model: str
    version: str
    order: bytes
    def __init__(self, batch: _Optional[bytes] = ..., slot: _Optional[int] = ..., incarnation: _Optional[int] = ..., rows: _Optional[int] = ..., wait_us: _Optional[int] = ..., input_us: _Optional[int] = ..., run_us: _Optional[int] = ..., output_us: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[SourcePartition, _Mapping]]] = ..., source_index: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ..., ids: _Optional[_Iterable[str]] = ..., status: _Optional[_Iterable[_Union[MemberStatus, str]]] = ..., reason: _Optional[_Iterable[str]] = ..., text: _Optional[_Iterable[str]] = ..., result_offsets: _Optional[_Iterable[int]] = ..., model: _Optional[str] = ..., version: _Optional[str] = ..., order: _Optional[bytes] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("batch", "k", "slot", "incarnation", "reason", "epoch_seen")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EPOCH_SEEN_FIELD_NUMBER: _ClassVar[int]
    batch: bytes
    k: int
    slot: int
    incarnation: int
    reason: str
    epoch_seen: int
    def __init__(self, batch: _Optional[bytes] = ..., k: _Optional[int] = ..., slot: _Optional[int] = ..., incarnation: _Optional[int] = ..., reason: _Optional[str] = ..., epoch_seen: _Optional[int] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ("slot", "incarnation")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    slot: int
    incarnation: int
    def __init__(self, slot: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class OffsetRange(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class Stale(_message.Message):
    __slots__ = ("topic", "partition", "ranges")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    ranges: _containers.RepeatedCompositeFieldContainer[OffsetRange]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[OffsetRange, _Mapping]]] = ...) -> None: ...

class Completion(_message.Message):
    __slots__ = ("join", "report", "done", "refused", "leave", "stale")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    join: Join
    report: Report
    done: Done
    refused: Refused
    leave: Leave
    stale: Stale
    def __init__(self, join: _Optional[_Union[Join, _Mapping]] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., done: _Optional[_Union[Done, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ..., stale: _Optional[_Union[Stale, _Mapping]] = ...) -> None: ...

class ReplyTensor(_message.Message):
    __slots__ = ("name", "datatype", "shape", "contents", "member_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATATYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    CONTENTS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    datatype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    contents: bytes
    member_bytes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., datatype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., contents: _Optional[bytes] = ..., member_bytes: _Optional[_Iterable[int]] = ...) -> None: ...

class Replies(_message.Message):
    __slots__ = ("batch", "model", "version", "worker", "epoch", "batch_rows", "wait_us", "input_us", "run_us", "output_us", "tensors", "ids", "tenants", "rows", "lengths", "attempts", "reasons", "texts", "retry_after_us", "payloads")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BATCH_ROWS_FIELD_NUMBER: _ClassVar[int]
    WAIT_US_FIELD_NUMBER: _ClassVar[int]
    INPUT_US_FIELD_NUMBER: _ClassVar[int]
    RUN_US_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_US_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_US_FIELD_NUMBER: _ClassVar[int]
    PAYLOADS_FIELD_NUMBER: _ClassVar[int]
    batch: bytes
    model: str
    version: str
    worker: str
    epoch: int
    batch_rows: int
    wait_us: int
    input_us: int
    run_us: int
    output_us: int
    tensors: _containers.RepeatedCompositeFieldContainer[ReplyTensor]
    ids: _containers.RepeatedScalarFieldContainer[str]
    tenants: _containers.RepeatedScalarFieldContainer[str]
    rows: _containers.RepeatedScalarFieldContainer[int]
    lengths: _containers.RepeatedScalarFieldContainer[int]
    attempts: _containers.RepeatedScalarFieldContainer[int]
    reasons: _containers.RepeatedScalarFieldContainer[str]
    texts: _containers.RepeatedScalarFieldContainer[str]
    retry_after_us: _containers.RepeatedScalarFieldContainer[int]
    payloads: _containers.RepeatedCompositeFieldContainer[Payload]
    def __init__(self, batch: _Optional[bytes] = ..., model: _Optional[str] = ..., version: _Optional[str] = ..., worker: _Optional[str] = ..., epoch: _Optional[int] = ..., batch_rows: _Optional[int] = ..., wait_us: _Optional[int] = ..., input_us: _Optional[int] = ..., run_us: _Optional[int] = ..., output_us: _Optional[int] = ..., tensors: _Optional[_Iterable[_Union[ReplyTensor, _Mapping]]] = ..., ids: _Optional[_Iterable[str]] = ..., tenants: _Optional[_Iterable[str]] = ..., rows: _Optional[_Iterable[int]] = ..., lengths: _Optional[_Iterable[int]] = ..., attempts: _Optional[_Iterable[int]] = ..., reasons: _Optional[_Iterable[str]] = ..., texts: _Optional[_Iterable[str]] = ..., retry_after_us: _Optional[_Iterable[int]] = ..., payloads: _Optional[_Iterable[_Union[Payload, _Mapping]]] = ...) -> None: ...
