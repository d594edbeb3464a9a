"""One request or reply as any reader of the protocol sees it, unchecked."""

from __future__ import annotations

import msgspec
from google.protobuf.message import DecodeError

from headrace.domain import Datatype, PayloadRef, Reason, Source, Tensor
from headrace.errors import RequestError, UndecodableRecord
from headrace.wire import headers as names
from headrace.wire._generated import open_inference_pb2 as oip
from headrace.wire.payloads import read_dataref
from headrace.wire.records import Record

__all__ = ["PlainReply", "PlainRequest", "decode_plain_reply", "decode_plain_request"]


class PlainReply(msgspec.Struct, frozen=True):
    """``reason`` None: a success. ``source``: the record that is answered.
    ``client_id``: the ``id`` of the request's body."""

    id: str
    source: Source
    reason: Reason | None
    text: str
    model: str
    version: str
    outputs: tuple[Tensor, ...]
    payload: PayloadRef | None = None
    """Where the outputs' data are, if they are not here."""

    client_id: str = ""


def decode_plain_reply(record: Record) -> PlainReply:
    """The inverse of :func:`headrace.wire.plain_reply` and
    :func:`headrace.wire.plain_refusal`.

    Raises :class:`headrace.errors.UndecodableRecord`.
    """
    headers = dict(record.headers)
    names.check_schema(headers)
    is_ok = headers.get(names.STATUS) == names.STATUS_OK
    try:
        message = oip.ModelInferResponse.FromString(record.value or b"")
        payload = read_dataref(headers)
        raws = list(message.raw_output_contents)
        if payload is not None:
            raws = [b""] * len(message.outputs)
        return PlainReply(
            id=(headers.get(names.CE_ID) or b"").decode(),
            source=names.parse_source(headers.get(names.SOURCE)),
            reason=None if is_ok else Reason((headers[names.REASON] or b"").decode()),
            text=message.parameters["error"].string_param if not is_ok else "",
            model=message.model_name,
            version=message.model_version,
            outputs=tuple(
                Tensor(output.name, Datatype(output.datatype), tuple(output.shape), raw)
                for output, raw in zip(message.outputs, raws, strict=True)
            ),
            payload=payload,
            client_id=message.id,
        )
    except (DecodeError, RequestError, ValueError, KeyError) as error:
        raise UndecodableRecord(f"no plain reply: {error!r}") from error


class PlainRequest(msgspec.Struct, frozen=True):
    """``client_id`` is the body's own ``id``. An input whose elements travel typed has
    no data here."""

    model: str
    version: str
    client_id: str
    inputs: tuple[Tensor, ...]


def decode_plain_request(value: bytes) -> PlainRequest:
    """What a request says of itself, for people: nothing is held against a signature.

    Raises :class:`headrace.errors.UndecodableRecord`.
    """
    try:
        message = oip.ModelInferRequest.FromString(value)
        raws = list(message.raw_input_contents) or [b""] * len(message.inputs)
        return PlainRequest(
            model=message.model_name,
            version=message.model_version,
            client_id=message.id,
            inputs=tuple(
                Tensor(each.name, Datatype(each.datatype), tuple(each.shape), raw)
                for each, raw in zip(message.inputs, raws, strict=True)
            ),
        )
    except (DecodeError, ValueError) as error:
        raise UndecodableRecord(f"no inference.ModelInferRequest: {error}") from error
