"""Records of the log as one line each; an envelope of many answers as one each."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import msgspec

from headrace.domain import Done, Priority, Source, Tensor
from headrace.errors import UndecodableRecord
from headrace.replay import Facts
from headrace.wire import (
    TENANT_DEFAULT,
    Announcement,
    Answer,
    Batch,
    Claim,
    Heartbeat,
    PlainReply,
    PlainRequest,
    Record,
    TopicKind,
    Topics,
    decode_completion,
    decode_dead_letter,
    decode_json,
    decode_order,
    decode_plain_reply,
    decode_plain_request,
    decode_replies,
    order_of,
)
from headrace.wire import headers as names
from services.ctl.letters import shown_place
from services.ctl.payload import TensorSummary, summary_of
from services.ctl.wording import counted

__all__ = ["FACTS", "Entries", "Entry"]

_REMEMBERED_MAX = 100_000
_LATENCY = "latency_ms"
FACTS = frozenset(
    {
        *("kind", "id", "tenant", "model", "version", "priority", "rows", "status"),
        *(_LATENCY, "topic", "partition", "offset", "header."),
    }
)
"""What a condition may ask of an entry; ``header.NAME`` is a record's header."""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """``kind`` is the word of its topic; ``status`` of an answer ``ok`` or the reason;
    ``after_us`` since the request's record, where that was read too. What a record
    does not say, and no earlier one did, is empty."""

    at_us: int
    kind: str
    place: str
    id: str = ""
    tenant: str = ""
    model: str = ""
    version: str = ""
    priority: str = ""
    rows: int | None = None
    status: str = ""
    after_us: int | None = None
    text: str = ""
    tensors: list[TensorSummary] = []
    members: list[str] = []
    """Ids of the requests in a batch."""

    def facts(self, record: Record) -> Facts:
        """Under the names of :data:`FACTS`."""
        after_us = self.after_us
        return {
            "kind": self.kind,
            "id": self.id or None,
            "tenant": self.tenant or None,
            "model": self.model or None,
            "version": self.version or None,
            "priority": self.priority or None,
            "rows": self.rows,
            "status": self.status or None,
            _LATENCY: None if after_us is None else after_us / 1000,
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            **{
                f"header.{name}": (value or b"").decode(errors="replace")
                for name, value in record.headers
            },
        }


class _Asked(NamedTuple):
    at_us: int
    id: str
    tenant: str
    model: str
    priority: str
    rows: int | None


class Entries:
    """Decodes the records of one installation, fed in the order of the log, and
    remembers requests until their answers are told (the last 100,000)."""

    def __init__(self, topics: Topics, *, with_values: bool = False) -> None:
        """``with_values``: entries show the first elements of their tensors."""
        self._topics = topics
        self._with_values = with_values
        self._asked: OrderedDict[tuple[str, str] | Source, _Asked] = OrderedDict()

    def of(self, record: Record) -> list[Entry]:
        """One of a record that cannot be read, too."""
        try:
            return list(self._entries(record))
        except UndecodableRecord as error:
            entry = self._entry(record)
            return [
                msgspec.structs.replace(entry, status="undecodable", text=str(error))
            ]

    def _entry(self, record: Record) -> Entry:
        return Entry(
            at_us=record.timestamp_us,
            kind=self._topics.kind_of(record.topic) or "",
            place=shown_place(_source(record)),
        )

    def _entries(self, record: Record) -> Iterator[Entry]:
        entry = self._entry(record)
        change = msgspec.structs.replace
        match kind := self._topics.kind_of(record.topic):
            case TopicKind.REQUESTS:
                yield self._request(entry, record)
            case TopicKind.REPLIES | TopicKind.RESULTS:
                yield from self._answers(entry, record)
            case TopicKind.DEAD_LETTERS:
                letter = decode_dead_letter(record).letter
                told = f"after {counted(letter.attempts, 'attempt')}: {letter.text}"
                found = self._known(letter.source, change(entry, model=letter.model))
                yield change(
                    found,
                    id=letter.id,
                    tenant=letter.tenant,
                    status=letter.reason,
                    text=told,
                )
            case _:
                yield _told(entry, record, kind)

    def _request(self, entry: Entry, record: Record) -> Entry:
        headers = dict(record.headers)
        names.check_schema(headers)
        _, priority = self._topics.lane_and_priority(record.partition)
        entry = msgspec.structs.replace(
            entry,
            id=_text(headers.get(names.CE_ID)),
            tenant=_text(headers.get(names.TENANT)) or TENANT_DEFAULT,
            model=self._topics.model_of(record.topic),
            version=_text(headers.get(names.VERSION)),
            priority=Priority(priority).name.lower(),
        )
        if _text(headers.get(names.CE_TYPE)) == names.CANCEL_TYPE:
            return msgspec.structs.replace(entry, text="cancelled")
        value = decode_plain_request(record.value or b"")
        rows = _text(headers.get(names.ROWS))
        asked = _Asked(
            record.timestamp_us,
            entry.id,
            entry.tenant,
            entry.model,
            entry.priority,
            int(rows) if rows.isdecimal() else None,
        )
        self._remember((entry.tenant, entry.id), asked)
        self._remember(_source(record), asked)
        redriven = headers.get(names.REDRIVEN)
        return msgspec.structs.replace(
            entry,
            rows=asked.rows,
            text=f"put back from {_text(redriven)}" if redriven else _forms(value),
            tensors=self._summaries(value.inputs),
        )

    def _remember(self, key: tuple[str, str] | Source, asked: _Asked) -> None:
        self._asked[key] = asked
        if len(self._asked) > 2 * _REMEMBERED_MAX:
            self._asked.popitem(last=False)

    def _known(self, key: tuple[str, str] | Source, entry: Entry) -> Entry:
        """With what its request said, which is forgotten."""
        asked = self._asked.pop(key, None)
        if asked is None:
            return entry
        return msgspec.structs.replace(
            entry,
            id=asked.id,
            tenant=asked.tenant,
            model=entry.model or asked.model,
            priority=asked.priority,
            rows=asked.rows,
            after_us=entry.at_us - asked.at_us,
        )

    def _answers(self, entry: Entry, record: Record) -> Iterator[Entry]:
        change = msgspec.structs.replace
        replies = None
        if self._topics.takes_envelopes(record.topic):
            replies = decode_replies(record)
        if replies is None:
            reply = decode_plain_reply(record)
            entry = change(entry, id=reply.id, model=reply.model, version=reply.version)
            yield self._answered(self._known(reply.source, entry), reply)
            return
        entry = change(entry, model=replies.model, version=replies.version)
        for answer in replies.answers:
            named = change(entry, id=answer.id, tenant=answer.tenant, rows=answer.rows)
            key = (answer.tenant, answer.id)
            yield self._answered(self._known(key, named), answer)

    def _answered(self, entry: Entry, said: Answer | PlainReply) -> Entry:
        return msgspec.structs.replace(
            entry,
            status=said.reason or "ok",
            text=said.text,
            tensors=self._summaries(said.outputs),
        )

    def _summaries(self, tensors: tuple[Tensor, ...]) -> list[TensorSummary]:
        return [summary_of(each) for each in tensors] if self._with_values else []


def _forms(value: PlainRequest) -> str:
    return ", ".join(
        f"{each.name} {each.datatype} {list(each.shape)}" for each in value.inputs
    )


def _told(entry: Entry, record: Record, kind: TopicKind | None) -> Entry:
    """Of a record between processes."""
    match kind:
        case TopicKind.BATCHES:
            order = decode_order(record)
            if isinstance(order, Batch):
                return _batch(entry, record, order)
            text = f"sync {order.k} to worker slot {record.partition}"
        case TopicKind.COMPLETIONS:
            completion = decode_completion(record)
            if isinstance(completion, Done):
                return _done(entry, completion)
            text = str(completion)
        case TopicKind.STATUS:
            text = _heartbeat(decode_json(Heartbeat, record))
        case TopicKind.CONTROL:
            return _announcement(entry, record)
        case TopicKind.LANES:
            claim = decode_json(Claim, record)
            text = (
                f"lane {record.partition} claimed by {claim.former} on {claim.host}, "
                f"pid {claim.pid}"
            )
        case _:
            text = ""
    return msgspec.structs.replace(entry, text=text)


def _ordered(batch: Batch) -> str:
    return f"{batch.release_reason}, {batch.predicted_us / 1000:.1f} ms predicted"


def _linked(done: Done) -> str:
    """Of a batch without an order in the log."""
    order = order_of(done)
    return "" if order is None else f"; it came by a link: {_ordered(order)}"


def _batch(entry: Entry, record: Record, batch: Batch) -> Entry:
    return msgspec.structs.replace(
        entry,
        id=batch.batch,
        model=batch.model,
        version=batch.version,
        rows=sum(batch.rows),
        members=list(batch.ids),
        text=f"{counted(len(batch.ids), 'request')} to worker slot "
        f"{record.partition}: {_ordered(batch)}",
    )


def _done(entry: Entry, done: Done) -> Entry:
    told = dict.fromkeys(
        " ".join(filter(None, (each.status, each.reason))) for each in done.members
    )
    return msgspec.structs.replace(
        entry,
        id=done.batch,
        model=done.model,
        version=done.version,
        rows=done.rows,
        status=", ".join(told),
        members=[each.id for each in done.members],
        text=f"worker slot {done.slot}: waited {done.wait_us / 1000:.1f} ms, ran "
        f"{done.run_us / 1000:.1f} ms" + _linked(done),
    )


def _heartbeat(heard: Heartbeat) -> str:
    told = f"{heard.role} {heard.slot} is {heard.state}"
    queued = sum(queue.requests for lane in heard.lanes for queue in lane.load.queues)
    if heard.lanes:
        lanes = ", ".join(str(each.lane) for each in heard.lanes)
        told += f", lanes {lanes}, {counted(queued, 'request')} wait"
    if heard.models:
        told += f", has {', '.join(heard.models)}"
    return told


def _announcement(entry: Entry, record: Record) -> Entry:
    if record.value is None:
        return msgspec.structs.replace(entry, text=f"{_text(record.key)} is gone")
    with suppress(UndecodableRecord):
        said = decode_json(Announcement, record)
        return msgspec.structs.replace(
            entry,
            model=said.model,
            version=said.version,
            status=said.state,
            text=f"worker slot {said.slot} {said.reason}".rstrip(),
        )
    return msgspec.structs.replace(entry, text=_text(record.value[:200]))


def _source(record: Record) -> Source:
    return Source(record.topic, record.partition, record.offset)


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")
