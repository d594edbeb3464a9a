"""A request on its way into the log, as an ingress or a publisher writes it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from headrace.domain import PayloadRef, Priority, ReplyAddress, Tensor
from headrace.wire import headers as names
from headrace.wire._generated import open_inference_pb2 as oip
from headrace.wire.compatibility import Compatibility
from headrace.wire.framing import CLIENT_ID, RAW_INPUT_CONTENTS, Piece, frame
from headrace.wire.payloads import dataref_bytes
from headrace.wire.records import Headers

__all__ = ["NewRequest", "RequestEncoder"]

FORMS_MAX = 4096
"""So many are remembered, then all are forgotten."""


class NewRequest(msgspec.Struct, frozen=True, gc=False):
    """A checked request on its way into the log. ``tensors`` stand in the order of
    the signature's inputs; ``deadline_us`` is log time, None for bulk without a
    limit; ``client_id`` is the body's ``id``."""

    id: str
    tenant: str
    model: str
    version: str
    priority: Priority
    deadline_us: int | None
    compatibility: Compatibility
    tensors: tuple[Tensor, ...]
    client_id: str = ""
    traceparent: str = ""
    tracestate: str = ""
    payload: PayloadRef | None = None
    """Where the tensors are that the record does not carry."""


class _Form(NamedTuple):
    """What requests of one tenant, version, priority and shape have in common: the
    headers around id, deadline and time, and the value around the client's id."""

    named: Headers
    shaped: Headers
    opening: bytes
    inputs: bytes


class RequestEncoder:
    """Writes the requests of one sender: ``source`` is its ``ce_source``."""

    def __init__(self, source: str, reply_to: ReplyAddress | None) -> None:
        self.source = source
        self.reply_to = reply_to
        self._constant: list[tuple[str, bytes | None]] = []
        if reply_to:
            self._constant.append((names.REPLY_TOPIC, reply_to.topic.encode()))
            if reply_to.partition is not None:
                number = str(reply_to.partition).encode()
                self._constant.append((names.REPLY_PARTITION, number))
        self._constant.append((names.CE_SOURCE, source.encode()))
        self._ending = [
            (names.CE_SPECVERSION, b"1.0"),
            (names.CE_TYPE, names.REQUEST_TYPE.encode()),
            (names.CONTENT_TYPE, b"application/protobuf"),
            (names.SCHEMA, names.SCHEMA_BYTES),
        ]
        self._forms: dict[tuple[object, ...], _Form] = {}

    def encode(
        self, request: NewRequest, log_us: int
    ) -> tuple[list[tuple[str, bytes | None]], bytes]:
        """Headers, in the order of :data:`headrace.wire.headers.REQUEST_HEADERS`, and
        value; ``log_us``: now, as ``ce_time``."""
        form = self._form(request)
        headers = [(names.CE_ID, request.id.encode()), *form.named]
        if request.deadline_us is not None:
            headers.append((names.DEADLINE, b"%d" % request.deadline_us))
        headers += form.shaped
        headers.append((names.CE_TIME, names.time_bytes(log_us)))
        headers += self._ending
        if request.traceparent:
            headers.append((names.TRACEPARENT, request.traceparent.encode()))
            if request.tracestate:
                headers.append((names.TRACESTATE, request.tracestate.encode()))
        if request.payload is not None:
            headers.append((names.DATAREF, dataref_bytes(request.payload)))
        pieces: list[Piece] = [form.opening]
        if request.client_id:
            pieces += frame(CLIENT_ID, [request.client_id.encode()])
        pieces.append(form.inputs)
        if request.payload is None:
            for tensor in request.tensors:
                pieces += frame(RAW_INPUT_CONTENTS, [tensor.data])
        return headers, b"".join(pieces)

    def _form(self, request: NewRequest) -> _Form:
        key = (
            request.tenant,
            request.model,
            request.version,
            request.priority,
            request.compatibility,
            *[tensor.shape for tensor in request.tensors],
        )
        form = self._forms.get(key)
        if form is None:
            if len(self._forms) >= FORMS_MAX:
                self._forms.clear()
            form = self._forms[key] = self._made_form(request)
        return form

    def _made_form(self, request: NewRequest) -> _Form:
        shape, rows, length = request.compatibility
        opening = oip.ModelInferRequest(
            model_name=request.model, model_version=request.version
        )
        inputs = oip.ModelInferRequest()
        for tensor in request.tensors:
            described = inputs.inputs.add(name=tensor.name, datatype=tensor.datatype)
            described.shape.extend(tensor.shape)
        return _Form(
            [
                (names.TENANT, request.tenant.encode()),
                (names.MODEL, request.model.encode()),
                (names.VERSION, request.version.encode()),
                (names.PRIORITY, request.priority.name.lower().encode()),
            ],
            [
                (names.ROWS, b"%d" % rows),
                (names.SHAPE, shape.encode()),
                (names.LENGTH, b"%d" % length),
                *self._constant,
            ],
            opening.SerializeToString(),
            inputs.SerializeToString(),
        )
