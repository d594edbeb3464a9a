"""A request on its way into the log, as an ingress or a publisher writes it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.domain import PayloadRef, Priority, ReplyAddress, Tensor
from headrace.wire import headers as names
from headrace.wire._generated import open_inference_pb2 as oip
from headrace.wire.compatibility import Compatibility
from headrace.wire.framing import CLIENT_ID, RAW_INPUT_CONTENTS, Piece, frame
from headrace.wire.payloads import dataref_bytes

__all__ = ["NewRequest", "RequestEncoder", "RequestForm"]

FORMS_MAX = 4096
"""So many are remembered, then all are forgotten."""

_ID, _DEADLINE, _TIME = range(3)


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


class RequestForm:
    """What requests of one sender, tenant, version and shape have in common: headers
    but for id, deadline and time, and the value around the client's id."""

    __slots__ = ("_headers", "_inputs", "_opening")

    def __init__(
        self, headers: list[tuple[str, bytes | None]], opening: bytes, inputs: bytes
    ) -> None:
        """``headers`` are those of :data:`headrace.wire.headers.REQUEST_HEADERS`."""
        self._headers = headers
        self._opening = opening
        self._inputs = inputs

    def record(
        self,
        request_id: str,
        tensors: Sequence[Tensor],
        *,
        deadline_us: int,
        log_us: int,
    ) -> tuple[list[tuple[str, bytes | None]], bytes]:
        """Headers and value of one request."""
        headers = self._headers_of(request_id, deadline_us, log_us)
        pieces: list[Piece] = [self._opening, self._inputs]
        for tensor in tensors:
            pieces += frame(RAW_INPUT_CONTENTS, (tensor.data,))
        return headers, b"".join(pieces)

    def record_of(
        self, request: NewRequest, log_us: int
    ) -> tuple[list[tuple[str, bytes | None]], bytes]:
        """As :meth:`record`, of a request with anything that one may have."""
        headers = self._headers_of(request.id, request.deadline_us, log_us)
        if request.traceparent:
            headers.append((names.TRACEPARENT, request.traceparent.encode()))
            if request.tracestate:
                headers.append((names.TRACESTATE, request.tracestate.encode()))
        if request.payload is not None:
            headers.append((names.DATAREF, dataref_bytes(request.payload)))
        pieces: list[Piece] = [self._opening]
        if request.client_id:
            pieces += frame(CLIENT_ID, (request.client_id.encode(),))
        pieces.append(self._inputs)
        if request.payload is None:
            for tensor in request.tensors:
                pieces += frame(RAW_INPUT_CONTENTS, (tensor.data,))
        return headers, b"".join(pieces)

    def _headers_of(
        self, request_id: str, deadline_us: int | None, log_us: int
    ) -> list[tuple[str, bytes | None]]:
        headers = self._headers.copy()
        headers[_ID] = names.CE_ID, request_id.encode()
        headers[_TIME] = names.CE_TIME, names.time_bytes(log_us)
        if deadline_us is None:
            del headers[_DEADLINE]
        else:
            headers[_DEADLINE] = names.DEADLINE, b"%d" % deadline_us
        return headers


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
        self._forms: dict[tuple[object, ...], RequestForm] = {}

    def encode(
        self, request: NewRequest, log_us: int
    ) -> tuple[list[tuple[str, bytes | None]], bytes]:
        """Headers, in the order of :data:`headrace.wire.headers.REQUEST_HEADERS`, and
        value; ``log_us``: now, as ``ce_time``."""
        return self.form(request).record_of(request, log_us)

    def form(self, request: NewRequest) -> RequestForm:
        """That of all requests like this one."""
        key = (
            request.tenant,
            request.model,
            request.version,
            request.compatibility,
            *[tensor.shape for tensor in request.tensors],
        )
        form = self._forms.get(key)
        if form is None:
            if len(self._forms) >= FORMS_MAX:
                self._forms.clear()
            form = self._forms[key] = self._made_form(request)
        return form

    def _made_form(self, request: NewRequest) -> RequestForm:
        shape, rows, length = request.compatibility
        opening = oip.ModelInferRequest(
            model_name=request.model, model_version=request.version
        )
        inputs = oip.ModelInferRequest()
        for tensor in request.tensors:
            described = inputs.inputs.add(name=tensor.name, datatype=tensor.datatype)
            described.shape.extend(tensor.shape)
        return RequestForm(
            [
                *[(name, None) for name in names.VARYING],
                (names.TENANT, request.tenant.encode()),
                (names.MODEL, request.model.encode()),
                (names.VERSION, request.version.encode()),
                (names.ROWS, b"%d" % rows),
                (names.SHAPE, shape.encode()),
                *([(names.LENGTH, b"%d" % length)] if length else ()),
                *self._constant,
                (names.CE_SPECVERSION, b"1.0"),
                (names.CE_TYPE, names.REQUEST_TYPE.encode()),
                (names.CONTENT_TYPE, b"application/protobuf"),
            ],
            opening.SerializeToString(),
            inputs.SerializeToString(),
        )
