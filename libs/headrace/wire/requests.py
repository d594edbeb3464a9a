"""A request between its sender and the batch former.

An ingress or a publisher writes every header, and its tensors in the order of the
signature: such a record is cut into byte ranges and decided by its headers. Whatever
anybody else put on the topic is read through the protocol's message, held against the
signature, and gets defaults for the headers that it lacks
(:mod:`headrace.wire.foreign`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import NamedTuple

from google.protobuf.message import DecodeError

from headrace.domain import (
    CancelRead,
    Datatype,
    PayloadRef,
    Priority,
    Reason,
    ReplyAddress,
    Request,
    RequestRead,
    RequestRejected,
    ServedVersion,
    Source,
)
from headrace.errors import RequestError, UndecodableRecord
from headrace.wire import headers as names
from headrace.wire.cancels import identity
from headrace.wire.compatibility import (
    LENGTH,
    ROWS,
    Compatibility,
    batched_shapes,
)
from headrace.wire.deadlines import (
    CLOCK_SLACK_US,
    TIMEOUT_DEFAULT_US,
    TIMEOUT_MAX_US,
    deadline_of,
)
from headrace.wire.familiar import FormKey, KnownForm, form_key, learn, read_known
from headrace.wire.foreign import Contents, read_foreign
from headrace.wire.framing import CLIENT_ID, RAW_INPUT_CONTENTS, fields, size_of
from headrace.wire.payloads import read_dataref
from headrace.wire.records import Record
from headrace.wire.topics import Topics, checked_name

__all__ = [
    "ID_BYTES_MAX",
    "TENANT_DEFAULT",
    "RequestDecoder",
]

ID_BYTES_MAX = 256
"""Longest ``ce_id`` of a hand-made record; a longer one is rejected."""

TENANT_DEFAULT = "default"

REMEMBERED_MAX = 4096
"""What follows from shapes is remembered for so many of them, and so many reply
addresses and tenants are; then all are forgotten."""

PRIORITIES = tuple(Priority)
PRIORITY_NAMES = {each.name.lower().encode(): each for each in Priority}

CANCEL_TYPE = names.CANCEL_TYPE.encode()


class _Size(NamedTuple):
    """Bytes of an input: of one row of length 1, where it has these axes."""

    unit: int | None
    per_row: bool
    per_length: bool


class RequestDecoder:
    """Reads request records, whoever wrote them.

    ``version_of(model, version)`` gives the served version, ``""`` asking for the
    default one, or raises :class:`headrace.errors.RequestError`;
    ``partitions_of(topic)`` is 0 for a topic that does not exist; ``to_mono`` turns
    log time into the holder's monotonic time.
    """

    def __init__(
        self,
        topics: Topics,
        *,
        version_of: Callable[[str, str], ServedVersion],
        partitions_of: Callable[[str], int],
        to_mono: Callable[[int], int],
        payload_bytes_max: int = 0,
    ) -> None:
        """``payload_bytes_max``: most bytes of a payload in the store; 0: there is no
        store."""
        self._payload_bytes_max = payload_bytes_max
        self._topics = topics
        self._version_of = version_of
        self._partitions_of = partitions_of
        self._to_mono = to_mono
        self._known_sizes: dict[tuple[str, str, str, str], tuple[_Size, ...]] = {}
        self._known_tenants: set[str] = set()
        self._known_forms: dict[FormKey, KnownForm] = {}
        self._known_addresses: dict[
            tuple[bytes | None, bytes | None], ReplyAddress | None
        ] = {}

    def decode(self, record: Record) -> RequestRead | CancelRead | RequestRejected:
        """Raises nothing: what cannot run comes back as a rejection with a reason."""
        form = form_key(record)
        if form is not None:
            known = self._known_forms.get(form[0])
            familiar = known and self._read_familiar(known, record, form[1])
            if familiar:
                return familiar
        headers = dict(record.headers)
        reply_to = None
        try:
            reply_to = self._address(headers)
            read = self._read(record, headers, reply_to)
            if form is not None and isinstance(read, RequestRead):
                self._remember(form[0], record, read)
        except (RequestError, UndecodableRecord) as error:
            return RequestRejected(
                source=Source(record.topic, record.partition, record.offset),
                id=_readable(headers.get(names.CE_ID)),
                tenant=_readable(headers.get(names.TENANT)) or TENANT_DEFAULT,
                model=self._topics.model_of(record.topic),
                reply_to=reply_to,
                reason=Reason(error.reason),
                text=str(error),
                client_id=_client_id(record.value),
            )
        else:
            return read

    def _read_familiar(
        self, known: KnownForm, record: Record, values: Sequence[bytes | None]
    ) -> RequestRead | None:
        """None: it is to be read the long way, which also tells what is wrong."""
        like = known.request
        read = read_known(known, record, values)
        try:
            served = self._version_of(like.model, like.version)
        except RequestError:
            return None
        if read is None or served is not known.served:
            return None
        request_id, deadline_us, tensors = read
        left_us = deadline_us - record.timestamp_us
        # What is out of all proportion, and what has none, goes the long way.
        if abs(left_us) > TIMEOUT_MAX_US + CLOCK_SLACK_US:
            return None
        request = Request(
            key=f"{known.before_id}{request_id}{known.after_id}",
            id=request_id,
            tenant=like.tenant,
            model=like.model,
            version=like.version,
            shape=like.shape,
            rows=like.rows,
            length=like.length,
            priority=like.priority,
            arrived_us=self._to_mono(record.timestamp_us),
            deadline_us=self._to_mono(deadline_us),
            reply_to=like.reply_to,
            source=Source(record.topic, record.partition, record.offset),
            tensors=tensors,
            size_bytes=like.size_bytes,
            made_by_us=True,
        )
        return RequestRead(request, left_us <= 0)

    def _remember(self, key: FormKey, record: Record, read: RequestRead) -> None:
        request = read.request
        served = self._version_of(request.model, request.version)
        known = learn(record, read, served)
        if known is not None:
            if len(self._known_forms) >= REMEMBERED_MAX:
                self._known_forms.clear()
            self._known_forms[key] = known

    def _address(self, headers: Mapping[str, bytes | None]) -> ReplyAddress | None:
        key = headers.get(names.REPLY_TOPIC), headers.get(names.REPLY_PARTITION)
        try:
            return self._known_addresses[key]
        except KeyError:
            address = self._checked_address(headers)
        if len(self._known_addresses) >= REMEMBERED_MAX:
            self._known_addresses.clear()
        self._known_addresses[key] = address
        return address

    def _checked_address(
        self, headers: Mapping[str, bytes | None]
    ) -> ReplyAddress | None:
        topic = names.text(headers, names.REPLY_TOPIC)
        partition = names.number(headers, names.REPLY_PARTITION)
        if not topic:
            if partition is None:
                return None
            raise _bad_address(f"{names.REPLY_PARTITION} without {names.REPLY_TOPIC}")
        if not self._topics.is_reply_topic(topic):
            raise _bad_address(
                f"{names.REPLY_TOPIC} is {topic[:250]!r}, expected "
                f"{self._topics.prefix}.replies.* or {self._topics.prefix}.results.*"
            )
        count = self._partitions_of(topic)
        if count == 0:
            raise _bad_address(f"{names.REPLY_TOPIC} {topic!r} does not exist")
        if partition is None:
            return ReplyAddress(topic, None)
        if not self._topics.takes_envelopes(topic):
            raise _bad_address(f"{topic!r} takes no {names.REPLY_PARTITION}")
        if partition >= count:
            raise _bad_address(
                f"{names.REPLY_PARTITION} is {partition}, but {topic!r} has {count} "
                "partitions"
            )
        return ReplyAddress(topic, partition)

    def _read(
        self,
        record: Record,
        headers: Mapping[str, bytes | None],
        reply_to: ReplyAddress | None,
    ) -> RequestRead | CancelRead:
        names.check_schema(headers)
        if record.value is None and headers.get(names.CE_TYPE) != CANCEL_TYPE:
            raise UndecodableRecord("the record has no value")
        model = self._topics.model_of(record.topic)
        if (named := names.text(headers, names.MODEL)) not in ("", model):
            raise RequestError(
                f"{names.MODEL} is {named[:120]!r}, but this is the topic of {model!r}"
            )
        request_id = _request_id(headers)
        tenant = self._tenant(headers)
        source = Source(record.topic, record.partition, record.offset)
        body_sha256 = names.text(headers, names.BODY_SHA256)
        if record.value is None:
            key = identity(tenant, request_id, reply_to)
            return CancelRead(source, key, body_sha256)
        version = names.text(headers, names.VERSION)
        payload = self._payload(headers)
        redriven = names.text(headers, names.REDRIVEN)
        made_by_us = names.made_by_us(headers)
        if made_by_us:
            contents = self._ours(headers, record.value, model, version, payload)
            key = identity(tenant, request_id, reply_to, redriven)
        else:
            contents = read_foreign(
                record.value, model, version, self._version_of, payload
            )
            key = f"{source.topic}/{source.partition}/{source.offset}"
        timeout_us = contents.served.latency_objective_us or TIMEOUT_DEFAULT_US
        deadline_us, overdue = deadline_of(record, headers, timeout_us)
        shape, rows, length = contents.compatibility
        request = Request(
            key=key,
            id=request_id,
            tenant=tenant,
            model=model,
            version=contents.served.version,
            shape=shape,
            rows=rows,
            length=length,
            priority=_priority(record, headers),
            arrived_us=self._to_mono(record.timestamp_us),
            deadline_us=None if deadline_us is None else self._to_mono(deadline_us),
            reply_to=reply_to,
            source=source,
            tensors=contents.tensors,
            size_bytes=payload.length if payload else size_of(contents.tensors),
            made_by_us=made_by_us,
            client_id=contents.client_id,
            payload=contents.payload,
            body_sha256=body_sha256,
            is_redriven=bool(redriven),
        )
        return RequestRead(request, overdue)

    def _payload(self, headers: Mapping[str, bytes | None]) -> PayloadRef | None:
        payload = read_dataref(headers)
        if payload is None:
            return None
        if not self._payload_bytes_max:
            raise RequestError(
                f"{names.DATAREF} names an object, but no payload store is set "
                "(HEADRACE_BUS__PAYLOAD_STORE)"
            )
        if payload.length > self._payload_bytes_max:
            raise RequestError(
                f"the object of {names.DATAREF} has {payload.length} bytes, at most "
                f"{self._payload_bytes_max} are allowed (payload_store_bytes_max)",
                reason=Reason.TOO_LARGE,
            )
        return payload

    def _tenant(self, headers: Mapping[str, bytes | None]) -> str:
        tenant = names.text(headers, names.TENANT) or TENANT_DEFAULT
        if tenant not in self._known_tenants:
            if len(self._known_tenants) >= REMEMBERED_MAX:
                self._known_tenants.clear()
            self._known_tenants.add(checked_name("tenant", tenant))
        return tenant

    def _ours(
        self,
        headers: Mapping[str, bytes | None],
        value: bytes,
        model: str,
        version: str,
        payload: PayloadRef | None,
    ) -> Contents:
        served = self._version_of(model, version)
        shape = names.text(headers, names.SHAPE)
        rows = names.number(headers, names.ROWS) or 0
        length = names.number(headers, names.LENGTH) or 0
        if not 0 < rows <= served.max_batch:
            raise RequestError(
                f"{names.ROWS} is {rows}, expected 1 to {served.max_batch} (max_batch)"
            )
        raws, client_id = _cut(value)
        given = [*map(len, raws), *(payload.sizes if payload else ())]
        sizes = self._sizes(served, shape)
        if len(given) != len(sizes):
            raise RequestError(
                f"the value has {len(given)} raw tensors, expected {len(sizes)}"
            )
        if payload and raws:
            raise RequestError("tensors are in the value and in the payload store")
        for spec, has, size in zip(served.signature.inputs, given, sizes, strict=True):
            if size.unit is None:
                continue
            expected = size.unit * (rows if size.per_row else 1)
            expected *= length if size.per_length else 1
            if has != expected:
                raise RequestError(
                    f"input '{spec.name}' has {has} bytes, expected {expected}"
                )
        key = Compatibility(shape, rows, length)
        return Contents(served, key, raws, client_id, payload)

    def _sizes(self, served: ServedVersion, shape: str) -> tuple[_Size, ...]:
        key = (served.model, served.version, served.sha256, shape)
        sizes = self._known_sizes.get(key)
        if sizes is None:
            if len(self._known_sizes) >= REMEMBERED_MAX:
                self._known_sizes.clear()
            sizes = tuple(
                _size(spec.datatype, extents)
                for spec, extents in zip(
                    served.signature.inputs, batched_shapes(served, shape), strict=True
                )
            )
            self._known_sizes[key] = sizes
        return sizes


def _size(datatype: Datatype, extents: Sequence[int]) -> _Size:
    unit = datatype.item_bytes
    if unit is not None:
        unit *= prod(extent for extent in extents if extent > 0)
    return _Size(unit, ROWS in extents, LENGTH in extents)


def _cut(value: bytes) -> tuple[tuple[memoryview, ...], str]:
    """Raw input contents as slices of ``value``, and the body's ``id``."""
    raws = []
    client_id = b""
    try:
        for number, content in fields(memoryview(value)):
            if number == RAW_INPUT_CONTENTS:
                raws.append(content)
            elif number == CLIENT_ID:
                client_id = bytes(content)
        return tuple(raws), client_id.decode()
    except (DecodeError, UnicodeDecodeError) as error:
        raise UndecodableRecord(
            f"the value is no inference.ModelInferRequest: {error}"
        ) from error


def _priority(record: Record, headers: Mapping[str, bytes | None]) -> Priority:
    """The partition's; a header may only name a less urgent one."""
    priority = PRIORITIES[record.partition % len(PRIORITIES)]
    name = headers.get(names.PRIORITY)
    if not name:
        return priority
    named = PRIORITY_NAMES.get(name)
    if named is None:
        raise RequestError(
            f"{names.PRIORITY} is {name[:40]!r}, expected one of "
            f"{b', '.join(PRIORITY_NAMES).decode()}"
        )
    return max(priority, named)


def _request_id(headers: Mapping[str, bytes | None]) -> str:
    request_id = names.text(headers, names.CE_ID)
    if not 0 < len(request_id) <= ID_BYTES_MAX:
        raise RequestError(
            f"{names.CE_ID} has {len(request_id)} characters, expected 1 to "
            f"{ID_BYTES_MAX}"
        )
    return request_id


def _readable(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")[:ID_BYTES_MAX]


def _client_id(value: bytes | None) -> str:
    try:
        return _cut(value or b"")[1]
    except UndecodableRecord:
        return ""


def _bad_address(text: str) -> RequestError:
    return RequestError(text, reason=Reason.REPLY_ADDRESS)
