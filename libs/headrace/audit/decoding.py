"""Records as the events of an audit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import blake2b

from headrace.audit.events import (
    Answer,
    Answered,
    Asked,
    Cancelled,
    Committed,
    DeadLettered,
    Ended,
    Event,
    Ran,
    Resulted,
)
from headrace.broker import COMMITS_TOPIC, decode_commit
from headrace.domain import (
    Done,
    MemberStatus,
    PayloadRef,
    ReplyAddress,
    Source,
    StaleWritten,
)
from headrace.errors import RequestError, UndecodableRecord
from headrace.wire import (
    TENANT_DEFAULT,
    TIMEOUT_DEFAULT_US,
    Record,
    TopicKind,
    Topics,
    deadline_of,
    decode_completion,
    decode_dead_letter,
    decode_replies,
    is_keyed,
)
from headrace.wire import headers as names
from headrace.wire.payloads import read_dataref
from headrace.wire.replies import Answer as Reply

__all__ = ["EventDecoder"]

_DIGEST_BYTES = 12


class EventDecoder:
    """Decodes the records of one installation. ``timeouts_us``: the time limits of
    models, for requests that name none; ``groups``: the lane groups; ``there``: the
    topics that exist."""

    def __init__(
        self,
        topics: Topics,
        *,
        timeouts_us: Mapping[str, int],
        groups: Collection[str],
        there: Collection[str],
    ) -> None:
        self._topics = topics
        self._timeouts_us = timeouts_us
        self._groups = groups
        self._there = there

    def decode(self, record: Record) -> Event | None:
        """None for a record that an audit has no use for. A request is never
        undecodable: whatever lies on its topic must end.

        Raises :class:`headrace.errors.UndecodableRecord`.
        """
        if record.topic == COMMITS_TOPIC:
            return self._commit(record)
        match self._topics.kind_of(record.topic):
            case TopicKind.REQUESTS:
                return self._request(record)
            case TopicKind.REPLIES:
                return self._replies(record)
            case TopicKind.RESULTS:
                return _result(record)
            case TopicKind.DEAD_LETTERS:
                letter = decode_dead_letter(record).letter
                return DeadLettered(
                    _place(record), record.timestamp_us, letter.source, letter.reason
                )
            case TopicKind.COMPLETIONS:
                return _completion(record)
            case _:
                return None

    def _request(self, record: Record) -> Asked | Cancelled:
        headers = dict(record.headers)
        request_id = _readable(headers.get(names.CE_ID))
        tenant = _readable(headers.get(names.TENANT)) or TENANT_DEFAULT
        address = self._address(headers)
        is_cancel = headers.get(names.CE_TYPE) == names.CANCEL_TYPE.encode()
        if is_cancel and record.value is None:
            at_us = record.timestamp_us
            return Cancelled(_place(record), at_us, request_id, tenant, address)
        model = self._topics.model_of(record.topic)
        timeout_us = self._timeouts_us.get(model, TIMEOUT_DEFAULT_US)
        try:
            deadline_us, _ = deadline_of(record, headers, timeout_us)
        except RequestError:
            # It is poison, which has no more time than others.
            deadline_us, _ = deadline_of(record, {}, timeout_us)
        made_by_us = names.made_by_us(headers)
        return Asked(
            place=_place(record),
            at_us=record.timestamp_us,
            id=request_id,
            tenant=tenant,
            model=model,
            address=address,
            deadline_us=deadline_us,
            made_by_us=made_by_us,
            redriven=names.REDRIVEN in headers,
            is_address_gone=address is not None and self._is_gone(address.topic),
            is_keyed=made_by_us and is_keyed(request_id) and self._is_kept(address),
        )

    def _is_kept(self, address: ReplyAddress | None) -> bool:
        return (
            address is not None
            and address.partition is None
            and self._topics.is_kept_topic(address.topic)
        )

    def _is_gone(self, topic: str) -> bool:
        """Standing topics never are: without them the platform keeps no promise."""
        topics = self._topics
        is_passing = topics.is_results_topic(topic) and not topics.is_kept_topic(topic)
        return is_passing and topic not in self._there

    def _address(self, headers: Mapping[str, bytes | None]) -> ReplyAddress | None:
        """None also for an address that its former refused."""
        topic = _readable(headers.get(names.REPLY_TOPIC))
        if not self._topics.is_reply_topic(topic):
            return None
        try:
            return ReplyAddress(topic, names.number(headers, names.REPLY_PARTITION))
        except RequestError:
            return None

    def _replies(self, record: Record) -> Event:
        replies = decode_replies(record)
        if replies is None:
            return _result(record)
        ran = f"{replies.model}/{replies.version}"
        answers = tuple(
            Answer(
                answer.id,
                answer.tenant,
                _digest(ran, answer) if answer.reason is None else None,
                answer.reason or "",
            )
            for answer in replies.answers
        )
        return Answered(_place(record), record.timestamp_us, answers)

    def _commit(self, record: Record) -> Committed | None:
        commit = decode_commit(record)
        if commit is None or commit.group not in self._groups:
            return None
        return Committed(
            place=_place(record),
            at_us=record.timestamp_us,
            topic=commit.topic,
            partition=commit.partition,
            offset=commit.offset,
            metadata=commit.metadata,
        )


def _result(record: Record) -> Resulted:
    headers = dict(record.headers)
    names.check_schema(headers)
    is_ok = headers.get(names.STATUS) == names.STATUS_OK
    return Resulted(
        place=_place(record),
        at_us=record.timestamp_us,
        source=names.parse_source(headers.get(names.SOURCE)),
        digest=_result_digest(record) if is_ok else None,
        reason="" if is_ok else _readable(headers.get(names.REASON)),
        id=_readable(headers.get(names.CE_ID)),
    )


def _completion(record: Record) -> Ran | Ended | None:
    match decode_completion(record):
        case Done(members=members):
            ran = [each.source for each in members if each.status is MemberStatus.OK]
            return Ran(_place(record), record.timestamp_us, tuple(ran))
        case StaleWritten(topic, partition, ranges):
            return Ended(_place(record), record.timestamp_us, topic, partition, ranges)
        case _:
            return None


def _digest(ran: str, answer: Reply) -> bytes:
    digest = _hash(ran.encode())
    for output in answer.outputs:
        digest.update(f"{output.name}:{output.datatype}:{output.shape}".encode())
        digest.update(output.data)
    _add_object(digest, answer.payload)
    return digest.digest()


def _result_digest(record: Record) -> bytes:
    digest = _hash(record.value or b"")
    try:
        _add_object(digest, read_dataref(dict(record.headers)))
    except RequestError as error:
        raise UndecodableRecord(str(error)) from error
    return digest.digest()


def _add_object(digest: blake2b, payload: PayloadRef | None) -> None:
    """Each run writes an object of its own: the same answers have other names."""
    if payload is not None:
        digest.update(payload.sha256.encode())


def _hash(data: bytes) -> blake2b:
    return blake2b(data, digest_size=_DIGEST_BYTES)


def _place(record: Record) -> Source:
    return Source(record.topic, record.partition, record.offset)


def _readable(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")
