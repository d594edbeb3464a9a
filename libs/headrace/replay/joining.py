"""Joins the requests of one model with how they ended.

Fed with records in the order of the log (:class:`headrace.broker.InOrder`), requests
before what answers them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator

import msgspec

from headrace.domain import Priority, Source
from headrace.errors import UndecodableRecord
from headrace.replay.recorded import STATUS_OK, Ending, Recorded
from headrace.wire import (
    TENANT_DEFAULT,
    Answer,
    Record,
    TopicKind,
    Topics,
    decode_dead_letter,
    decode_plain_reply,
    decode_replies,
)
from headrace.wire import headers as names
from headrace.wire.replies import Replies

__all__ = ["CANCELLED", "REPLAY_SOURCE", "Join", "JoinCounts"]

REPLAY_SOURCE = "headrace/replay/"
"""How ``ce_source`` begins of a request that a replay wrote."""

CANCELLED = "cancelled"

WAITING_MAX = 50_000
"""Requests without an end that are held; beyond, the oldest is given out without."""

REMEMBERED_MAX = 200_000
"""Ended requests whose second record is still told from a new request."""

_Key = tuple[str, str, str, str]
"""Tenant, id, topic and partition of the reply address."""


class JoinCounts(msgspec.Struct):
    """What was passed over, or given out early."""

    replays: int = 0
    """Records that a replay wrote."""

    repeated: int = 0
    """Further records of a request."""

    undecodable: int = 0
    """Records of answers that cannot be read."""

    given_up: int = 0
    """Requests given out without an end, to hold no more of them."""


class Join:
    """``is_asked``: whether the record of a request is one of those to be joined."""

    def __init__(
        self,
        topics: Topics,
        is_asked: Callable[[Record], bool],
        *,
        waiting_max: int = WAITING_MAX,
        remembered_max: int = REMEMBERED_MAX,
    ) -> None:
        self._topics = topics
        self._is_asked = is_asked
        self._waiting_max = waiting_max
        self._remembered_max = remembered_max
        self._waiting: OrderedDict[Source, tuple[_Key, Recorded]] = OrderedDict()
        self._by_key: dict[_Key, deque[Source]] = {}
        self._ended: OrderedDict[_Key, None] = OrderedDict()
        self.counts = JoinCounts()

    @property
    def waiting(self) -> int:
        """Requests that have no end yet."""
        return len(self._waiting)

    def take(self, record: Record) -> list[Recorded]:
        """Those that this record ends, or that are given up for it."""
        try:
            match self._topics.kind_of(record.topic):
                case TopicKind.REQUESTS:
                    return self._ask(record)
                case TopicKind.REPLIES | TopicKind.RESULTS:
                    return list(self._answers(record))
                case TopicKind.DEAD_LETTERS:
                    letter = decode_dead_letter(record).letter
                    ending = Ending(
                        _place(record), record.timestamp_us, letter.reason, letter.text
                    )
                    return self._end(letter.source, ending)
                case _:
                    return []
        except UndecodableRecord:
            self.counts.undecodable += 1
            return []

    def rest(self) -> Iterator[Recorded]:
        """Those that have no end, oldest first."""
        for _, recorded in self._waiting.values():
            yield recorded
        self._waiting.clear()
        self._by_key.clear()

    def _ask(self, record: Record) -> list[Recorded]:
        headers = dict(record.headers)
        if (headers.get(names.CE_SOURCE) or b"").startswith(REPLAY_SOURCE.encode()):
            self.counts.replays += self._is_asked(record)
            return []
        key = (
            _text(headers.get(names.TENANT)) or TENANT_DEFAULT,
            _text(headers.get(names.CE_ID)),
            _text(headers.get(names.REPLY_TOPIC)),
            _text(headers.get(names.REPLY_PARTITION)),
        )
        if headers.get(names.CE_TYPE) == names.CANCEL_TYPE.encode():
            at = self._by_key.get(key)
            ending = Ending(_place(record), record.timestamp_us, CANCELLED)
            return self._end(at[0], ending) if at else []
        if not self._is_asked(record):
            return []
        is_known = key in self._by_key or key in self._ended
        if is_known and names.made_by_us(headers) and names.REDRIVEN not in headers:
            self.counts.repeated += 1
            return []
        return self._hold(key, self._recorded(record, key, headers))

    def _recorded(
        self, record: Record, key: _Key, headers: dict[str, bytes | None]
    ) -> Recorded:
        _, priority = self._topics.lane_and_priority(record.partition)
        rows = _text(headers.get(names.ROWS))
        return Recorded(
            record=record,
            id=key[1],
            tenant=key[0],
            model=self._topics.model_of(record.topic),
            priority=Priority(priority),
            rows=int(rows) if rows.isdecimal() else None,
        )

    def _hold(self, key: _Key, recorded: Recorded) -> list[Recorded]:
        given_up = []
        if len(self._waiting) >= self._waiting_max:
            given_up.append(self._forget(next(iter(self._waiting))))
            self.counts.given_up += 1
        self._waiting[recorded.source] = key, recorded
        self._by_key.setdefault(key, deque()).append(recorded.source)
        return given_up

    def _answers(self, record: Record) -> Iterator[Recorded]:
        replies = None
        if self._topics.takes_envelopes(record.topic):
            replies = decode_replies(record)
        if replies is None:
            reply = decode_plain_reply(record)
            ending = Ending(
                place=_place(record),
                at_us=record.timestamp_us,
                status=reply.reason or STATUS_OK,
                text=reply.text,
                version=reply.version,
                outputs=reply.outputs,
                payload=reply.payload,
            )
            yield from self._end(reply.source, ending)
            return
        for answer in replies.answers:
            number = str(record.partition)
            at = self._by_key.get((answer.tenant, answer.id, record.topic, number))
            if at:
                yield from self._end(at[0], _ending(record, replies, answer))

    def _end(self, source: Source, ending: Ending) -> list[Recorded]:
        if source not in self._waiting:
            return []
        key = self._waiting[source][0]
        self._ended[key] = None
        if len(self._ended) > self._remembered_max:
            self._ended.popitem(last=False)
        return [msgspec.structs.replace(self._forget(source), ending=ending)]

    def _forget(self, source: Source) -> Recorded:
        key, recorded = self._waiting.pop(source)
        sources = self._by_key[key]
        sources.remove(source)
        if not sources:
            del self._by_key[key]
        return recorded


def _ending(record: Record, replies: Replies, answer: Answer) -> Ending:
    # Of one answer, whose bytes would hold those of its whole record.
    outputs = tuple(
        msgspec.structs.replace(each, data=bytes(each.data)) for each in answer.outputs
    )
    return Ending(
        place=_place(record),
        at_us=record.timestamp_us,
        status=answer.reason or STATUS_OK,
        text=answer.text,
        version=replies.version,
        outputs=outputs,
        run_us=replies.facts.run_us,
        batch_rows=replies.batch_rows,
        payload=answer.payload,
    )


def _place(record: Record) -> Source:
    return Source(record.topic, record.partition, record.offset)


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")
