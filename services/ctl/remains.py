"""A request whose own record retention has cut, known by what was written of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from headrace.broker import KafkaConnection, records_since
from headrace.domain import Source
from headrace.errors import UndecodableRecord
from headrace.wire import (
    Headers,
    Record,
    TopicKind,
    Topics,
    decode_dead_letter,
    decode_plain_reply,
    decode_replies,
)
from services.ctl.request_trail import Found, found_in

__all__ = ["remains", "remains_in"]

_ENDS = frozenset({TopicKind.REPLIES, TopicKind.RESULTS, TopicKind.DEAD_LETTERS})
"""Results and dead letters are kept longer than requests are; of those and replies the
limit by bytes may cut requests first."""

_NOWHERE = -1
"""An envelope does not say which record it answers."""


def remains(
    connection: KafkaConnection, topics: Topics, name: str, since_us: int
) -> Iterator[Found]:
    """Of every record with that name. Raises BusError."""
    for record in records_since(
        connection, lambda one: topics.kind_of(one.topic) in _ENDS, since_us
    ):
        with suppress(UndecodableRecord):
            yield from remains_in(topics, record, name)


def remains_in(topics: Topics, record: Record, name: str) -> Iterator[Found]:
    """The requests called ``name`` of which the record tells: by their id, by the
    body's own ``id``, which answers to ingresses lack, and in a dead letter by whatever
    a request record is found by.

    Raises :class:`headrace.errors.UndecodableRecord`.
    """
    asked = name.encode()
    if asked not in (record.value or b"") and not any(
        asked in (value or b"") for _, value in record.headers
    ):
        return
    if topics.kind_of(record.topic) is TopicKind.DEAD_LETTERS:
        buried = decode_dead_letter(record)
        own = _own(record, buried.letter.source, buried.headers, buried.value)
        found = found_in(own, name)
        if found is not None:
            yield found._replace(is_cut=True)
        return
    replies = decode_replies(record) if topics.takes_envelopes(record.topic) else None
    if replies is None:
        reply = decode_plain_reply(record)
        if name in {reply.id, reply.client_id}:
            _, tenant, _ = record.topic.rsplit(".", 2)
            own = _own(record, reply.source)
            yield Found(reply.id, reply.client_id, tenant, own, is_cut=True)
        return
    nowhere = Source(topics.requests(replies.model), _NOWHERE, _NOWHERE)
    for answer in replies.answers:
        if answer.id == name:
            own = _own(record, nowhere)
            yield Found(answer.id, "", answer.tenant, own, is_cut=True)


def _own(
    told: Record, source: Source, headers: Headers = (), value: bytes | None = None
) -> Record:
    """The request's record as far as it is known; its time is that of ``told``."""
    return Record(*source, told.timestamp_us, None, value, list(headers))
