"""Builders of versions, records and requests; what is not named is ordinary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from headrace.domain import (
    Datatype,
    Padding,
    Priority,
    ReplyAddress,
    Request,
    RequestRead,
    RequestRejected,
    ServedVersion,
    Signature,
    Source,
    Tensor,
    TensorSpec,
)
from headrace.errors import RequestError
from headrace.wire import (
    PROTOBUF_HEADERS,
    NewRequest,
    Record,
    RequestDecoder,
    RequestEncoder,
    Topics,
    compatibility,
)
from headrace.wire._generated import open_inference_pb2 as oip

TOPICS = Topics()
EPOCH_US = 1_700_000_000_000_000
"""Log time of the monotonic clock's zero."""

AN_INGRESS = ReplyAddress("headrace.replies.default", 0)
REPLY_PARTITIONS = {"headrace.replies.default": 16, "headrace.results.acme.scan": 4}


INGRESS = RequestEncoder("headrace/ingress/0", AN_INGRESS)
BY_HAND = {
    "ce_id": b"mine-1",
    "inf-model": b"digits",
    "reply-topic": b"headrace.results.acme.scan",
}
PLAIN = ReplyAddress("headrace.results.acme.scan", None)
S = 1_000_000


def a_version(
    *inputs: TensorSpec,
    batch_axes: Mapping[str, int] | None = None,
    padding: Padding | None = None,
    max_batch: int = 32,
    latency_objective_us: int | None = None,
) -> ServedVersion:
    """Of model ``digits``; by default one input ``x`` of 4 numbers a row."""
    inputs = inputs or (TensorSpec("x", Datatype.FP32, (-1, 4)),)
    axes = {spec.name: 0 for spec in inputs} if batch_axes is None else batch_axes
    return ServedVersion(
        model="digits",
        version="3",
        signature=Signature(inputs, (TensorSpec("y", Datatype.FP32, (-1,)),)),
        sha256="aa",
        max_batch=max_batch,
        batch_axes=dict(axes),
        padding=padding,
        latency_objective_us=latency_objective_us,
        run_us={},
        ready_slots=frozenset({0}),
        unloading_slots=frozenset(),
    )


def a_padded_version() -> ServedVersion:
    """Tokens ``ids`` of any length, padded up to 8, 16 or 32."""
    return a_version(
        TensorSpec("ids", Datatype.INT64, (-1, -1)),
        padding=Padding("sequence", {"ids": 0}, {"ids": 1}, {}, (8, 16, 32)),
    )


def a_record(
    value: bytes | None,
    headers: Mapping[str, bytes | None],
    *,
    priority: Priority = Priority.STANDARD,
    lane: int = 0,
    at_us: int = 1_000_000,
) -> Record:
    """A record of ``requests.digits``; ``at_us`` is on the monotonic clock."""
    return Record(
        topic=TOPICS.requests("digits"),
        partition=TOPICS.request_partition(lane, priority),
        offset=77,
        timestamp_us=EPOCH_US + at_us,
        key=None,
        value=value,
        headers=list(headers.items()),
    )


def an_envelope(value: bytes | None) -> Record:
    """A record of one of our own topics."""
    return Record("t", 0, 0, EPOCH_US, None, value, list(PROTOBUF_HEADERS))


def a_decoder(served: ServedVersion, payload_bytes_max: int = 0) -> RequestDecoder:
    """Of a former that knows this one version of ``digits``."""

    def version_of(model: str, version: str) -> ServedVersion:
        if (model, version) in {("digits", ""), ("digits", served.version)}:
            return served
        raise RequestError(
            f"model {model!r} has no version {version!r}", reason="model_unknown"
        )

    return RequestDecoder(
        TOPICS,
        version_of=version_of,
        partitions_of=lambda topic: REPLY_PARTITIONS.get(topic, 0),
        to_mono=lambda log_us: log_us - EPOCH_US,
        payload_bytes_max=payload_bytes_max,
    )


def read(decoder: RequestDecoder, record: Record) -> Request:
    decoded = decoder.decode(record)
    assert isinstance(decoded, RequestRead), decoded
    return decoded.request


def rejected(decoder: RequestDecoder, record: Record) -> RequestRejected:
    decoded = decoder.decode(record)
    assert isinstance(decoded, RequestRejected), decoded
    return decoded


def a_value(
    raw: bytes = bytes(16),
    *,
    name: str = "x",
    datatype: str = "FP32",
    shape: tuple[int, ...] = (1, 4),
    client_id: str = "",
) -> oip.ModelInferRequest:
    """What a producer of the protocol writes for one raw input."""
    return oip.ModelInferRequest(
        model_name="digits",
        id=client_id,
        inputs=[
            oip.ModelInferRequest.InferInputTensor(
                name=name, datatype=datatype, shape=shape
            )
        ],
        raw_input_contents=[raw],
    )


def a_request(
    *,
    request_id: str = "a" * 32,
    shape: str = "x:FP32:4",
    rows: int = 1,
    length: int = 0,
    tensors: tuple[bytes | memoryview, ...] = (bytes(16),),
    reply_to: ReplyAddress | None = AN_INGRESS,
    offset: int = 0,
    partition: int = 2,
    tenant: str = "default",
    attempt: int = 1,
    client_id: str = "",
) -> Request:
    return Request(
        key=request_id,
        id=request_id,
        tenant=tenant,
        model="digits",
        version="3",
        shape=shape,
        rows=rows,
        length=length,
        priority=Priority.STANDARD,
        arrived_us=0,
        deadline_us=None,
        reply_to=reply_to,
        source=Source("headrace.requests.digits", partition, offset),
        tensors=tensors,
        size_bytes=sum(map(len, tensors)),
        attempt=attempt,
        client_id=client_id,
    )


def a_new_request(
    tensors: Sequence[Tensor] = (Tensor("x", Datatype.FP32, (2, 4), bytes(32)),),
    **changes: object,
) -> NewRequest:
    served = a_version()
    request = NewRequest(
        id="0190" + "0" * 28,
        tenant="acme",
        model="digits",
        version="3",
        priority=Priority.STANDARD,
        deadline_us=EPOCH_US + 3 * S,
        compatibility=compatibility(
            served, [each.shape for each in tensors], [each.data for each in tensors]
        ),
        tensors=tuple(tensors),
    )
    return msgspec.structs.replace(request, **changes)
