"""Plain replies as their readers see them: one record per request."""

from __future__ import annotations

import msgspec
from google.protobuf.message import DecodeError

from headrace.domain import Datatype, Reason, Source, Tensor
from headrace.errors import UndecodableRecord
from headrace.wire import headers as names
from headrace.wire._generated import open_inference_pb2 as oip
from headrace.wire.records import Record

__all__ = ["PlainReply", "decode_plain_reply"]


class PlainReply(msgspec.Struct, frozen=True):
    """``reason`` None: a success. ``source``: the record that is answered."""

    id: str
    source: Source
    reason: Reason | None
    text: str
    model: str
    version: str
    outputs: tuple[Tensor, ...]


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
        return PlainReply(
            id=(headers.get(names.CE_ID) or b"").decode(),
            source=names.parse_source(headers.get(names.SOURCE)),
            reason=None if is_ok else Reason((headers[names.REASON] or b"").decode()),
            text=message.parameters["error"].string_param if not is_ok else "",
            model=message.model_name,
            version=message.model_version,
            outputs=tuple(
                Tensor(output.name, Datatype(output.datatype), tuple(output.shape), raw)
                for output, raw in zip(
                    message.outputs, message.raw_output_contents, strict=True
                )
            ),
        )
    except (DecodeError, ValueError, KeyError) as error:
        raise UndecodableRecord(f"no plain reply: {error!r}") from error
