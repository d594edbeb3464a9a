"""What the log says of one request, gathered record by record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import msgspec

from headrace.audit import invites_retry
from headrace.domain import (
    Done,
    DoneMember,
    MemberStatus,
    Source,
    StaleWritten,
)
from headrace.errors import UndecodableRecord
from headrace.wire import (
    TENANT_DEFAULT,
    Answer,
    Batch,
    PlainReply,
    Record,
    TopicKind,
    Topics,
    decode_completion,
    decode_dead_letter,
    decode_order,
    decode_plain_reply,
    decode_plain_request,
    decode_replies,
)
from headrace.wire import headers as names
from services.ctl.batch_trail import Ordered
from services.ctl.letters import shown_place
from services.ctl.payload import Payload, TensorSummary, payload_of, summary_of
from services.ctl.wording import counted

__all__ = [
    "AnswerTrail",
    "FollowRequest",
    "Found",
    "RequestTrail",
    "Stage",
    "Step",
    "found_in",
]


class Found(NamedTuple):
    """A request that was looked for. ``is_cut``: the log no longer has its record, and
    ``record`` is what another one says of it."""

    id: str
    client_id: str
    tenant: str
    record: Record
    is_cut: bool = False

    @property
    def source(self) -> Source:
        return Source(self.record.topic, self.record.partition, self.record.offset)

    @property
    def is_ours(self) -> bool:
        """Whether its id was made by an ingress or a publisher, and names it alone."""
        return names.made_by_us(dict(self.record.headers))

    @property
    def is_put_back(self) -> bool:
        return bool(self._header(names.REDRIVEN))

    @property
    def identity(self) -> tuple[str, str] | Source:
        return (self.tenant, self.id) if self.is_ours else self.source

    def _header(self, name: str) -> bytes:
        return dict(self.record.headers).get(name) or b""


def found_in(record: Record, name: str) -> Found | None:
    """The request of a record, when ``name`` is its id, the client's
    ``x-request-id``, its body's ``id``, or the id of its trace."""
    headers = dict(record.headers)
    request_id = _text(headers.get(names.CE_ID))
    trace = _text(headers.get(names.TRACEPARENT))
    value = record.value or b""
    asked_as = _text(headers.get(names.X_REQUEST_ID))
    is_named = name in {request_id, asked_as} or name in trace.split("-")
    if not is_named and name.encode() not in value:
        return None
    client_id = ""
    with suppress(UndecodableRecord):
        client_id = decode_plain_request(value).client_id
    if not is_named and name != client_id:
        return None
    tenant = _text(headers.get(names.TENANT)) or TENANT_DEFAULT
    return Found(request_id, client_id, tenant, record)


class Step(msgspec.Struct, frozen=True):
    """One record that concerns the request; ``after_us`` since it was asked."""

    at_us: int
    after_us: int
    what: str
    place: str


class Stage(msgspec.Struct, frozen=True):
    """A part of its time, as whoever had it measured it; ``by`` names them."""

    name: str
    us: int
    by: str


class AnswerTrail(msgspec.Struct, frozen=True):
    """``reason`` empty: a success, of this version."""

    at_us: int
    place: str
    version: str
    reason: str
    text: str
    outputs: list[TensorSummary]


class RequestTrail(msgspec.Struct, frozen=True):
    id: str
    client_id: str
    """The body's own ``id``."""

    tenant: str
    model: str
    priority: str
    deadline_us: int | None
    """As it was sent; None: that of the model, or none."""

    steps: list[Step]
    headers: dict[str, str | None] = {}
    payload: Payload | None = None
    cut: str = ""
    """Where its record was, if retention has removed that; times then count from the
    first of what is left."""

    answers: list[AnswerTrail] = []
    stages: list[Stage] = []
    """Of the attempt that was answered, from the record that was answered to the
    answer's."""

    shared: str = ""
    """How it ended with another record of its identity, or whose the stages are."""

    timeliness: str = ""
    """Whether its client may have been told otherwise than the log has it."""


class _End(NamedTuple):
    """The record at ``source`` had it; ``is_final``: so did every repetition."""

    at_us: int
    source: Source
    is_final: bool


class FollowRequest:
    """Picks the records of one request out of others.

    ``take`` raises :class:`headrace.errors.UndecodableRecord`.
    """

    kinds = frozenset(
        {
            TopicKind.REQUESTS,
            TopicKind.BATCHES,
            TopicKind.COMPLETIONS,
            TopicKind.REPLIES,
            TopicKind.RESULTS,
            TopicKind.DEAD_LETTERS,
        }
    )

    def __init__(self, topics: Topics, request: Found) -> None:
        self._topics = topics
        self._request = request
        self._bytes = request.id.encode()
        self._asked_us = {request.source: request.record.timestamp_us}
        """Of all records of its identity."""

        self._ends: list[_End] = []
        self._steps: list[tuple[int, str, Source]] = []
        self._answers: list[AnswerTrail] = []
        self._sent_us: dict[str, tuple[int, int]] = {}
        """Of batches that it rode in: when each was sent, and to which slot."""
        self._ran: tuple[Done, Source] | None = None
        """The first run that succeeded, and of which record."""

        self.ended_us: int | None = None
        """When its newest end was appended, or itself, if that was later."""

    def may_concern(self, record: Record) -> bool:
        """Cheap, and true for some records too many."""
        if self._topics.kind_of(record.topic) is TopicKind.COMPLETIONS:
            return True
        source = shown_place(self._request.source).encode()
        is_header = any(value in {self._bytes, source} for _, value in record.headers)
        return is_header or self._bytes in (record.value or b"")

    def take(self, record: Record) -> None:
        for what, is_end in self._words(record):
            self._step(record.timestamp_us, what, record)
            if is_end:
                own_us = self._request.record.timestamp_us
                self.ended_us = max(record.timestamp_us, own_us)

    def _step(self, at_us: int, what: str, record: Record) -> None:
        place = Source(record.topic, record.partition, record.offset)
        self._steps.append((at_us, what, place))

    def trail(self) -> RequestTrail:
        record = self._request.record
        headers = dict(record.headers)
        deadline = _text(headers.get(names.DEADLINE))
        asked_us = record.timestamp_us
        if self._request.is_cut and self._steps:
            asked_us = min(at_us for at_us, _, _ in self._steps)
        return RequestTrail(
            id=self._request.id,
            client_id=self._request.client_id,
            tenant=self._request.tenant,
            model=self._topics.model_of(record.topic),
            priority=self._priority(),
            deadline_us=int(deadline) if deadline.isdigit() else None,
            steps=[
                Step(at_us, at_us - asked_us, what, shown_place(place))
                for at_us, what, place in sorted(self._steps)
            ],
            headers={
                name: None if value is None else value.decode(errors="replace")
                for name, value in record.headers
            },
            payload=payload_of(record.value),
            cut=self._cut(),
            answers=self._answers,
            stages=self._stages(),
            shared=self._shared(),
        )

    def _priority(self) -> str:
        """Empty: nobody says which partition it was in."""
        partition = self._request.source.partition
        if partition < 0:
            return ""
        return self._topics.lane_and_priority(partition)[1].name.lower()

    def _cut(self) -> str:
        request = self._request
        if not request.is_cut:
            return ""
        is_placed = request.source.partition >= 0
        return shown_place(request.source) if is_placed else request.source.topic

    def _shared(self) -> str:
        own, asked_us = self._request.source, self._request.record.timestamp_us
        if self._stages() and self._ran is not None and self._ran[1] != own:
            head = self._ran[1]
            if any(end.source == own for end in self._ends):
                return f"The stages are those of {self._other(head)}"
        if any(end.source == own for end in self._ends):
            return ""
        for end in self._ends:
            if end.at_us >= asked_us:
                return f"It ended with {self._other(end.source)}"
        for end in self._ends:
            if end.is_final:
                ago_ms = (asked_us - end.at_us) / 1000
                return (
                    f"It was answered {ago_ms:.0f} ms before it was asked, and that "
                    f"answer is kept: that of {self._other(end.source)}"
                )
        return ""

    def _other(self, source: Source) -> str:
        later_ms = (self._asked_us[source] - self._request.record.timestamp_us) / 1000
        when = "after" if later_ms > 0 else "before"
        return f"{shown_place(source)}, asked {abs(later_ms):.0f} ms {when} it"

    def _stages(self) -> list[Stage]:
        """Empty: the log does not tell of all of them, or not yet."""
        answered_us = [each.at_us for each in self._answers if not each.reason]
        if self._ran is None or not answered_us:
            return []
        ran, source = self._ran
        if ran.batch not in self._sent_us:
            return []
        asked_us = self._asked_us[source]
        sent_us, slot = self._sent_us[ran.batch]
        worker = f"worker slot {slot}"
        # What brokers' clocks disagree by may be more than what a stage took.
        stages = [
            Stage("waited for a batch", max(0, sent_us - asked_us), "batch former"),
            Stage("waited for its turn", ran.wait_us, worker),
            Stage("input", ran.input_us, worker),
            Stage("run", ran.run_us, worker),
            Stage("output", ran.output_us, worker),
        ]
        whole_us = max(0, min(answered_us) - asked_us)
        rest_us = max(0, whole_us - sum(each.us for each in stages))
        stages.append(Stage("on the way there and back", rest_us, "log"))
        return [*stages, Stage("from record to record", whole_us, "log")]

    def _words(self, record: Record) -> Iterator[tuple[str, bool]]:
        """What a record says of the request, and whether that ends it."""
        match self._topics.kind_of(record.topic):
            case TopicKind.REQUESTS:
                yield from self._request_words(record)
            case TopicKind.BATCHES:
                order = decode_order(record)
                if isinstance(order, Batch):
                    yield from self._batch_words(Ordered.logged(record, order))
            case TopicKind.COMPLETIONS:
                yield from self._completion_words(record)
            case TopicKind.REPLIES | TopicKind.RESULTS:
                yield from self._reply_words(record)
            case TopicKind.DEAD_LETTERS:
                letter = decode_dead_letter(record).letter
                if letter.source in self._asked_us:
                    self._end(record, letter.source, letter.reason)
                    yield f"dead letter: {letter.reason}: {letter.text}", True
            case _:
                pass

    def _request_words(self, record: Record) -> Iterator[tuple[str, bool]]:
        source = Source(record.topic, record.partition, record.offset)
        if source == self._request.source:
            yield "asked", False
            return
        headers = dict(record.headers)
        tenant = _text(headers.get(names.TENANT)) or TENANT_DEFAULT
        named = (_text(headers.get(names.CE_ID)), tenant)
        if named != (self._request.id, self._request.tenant):
            return
        if _text(headers.get(names.CE_TYPE)) == names.CANCEL_TYPE:
            yield "cancelled", True
        elif names.REDRIVEN in headers:
            self._asked_us[source] = record.timestamp_us
            yield f"put back from {_text(headers[names.REDRIVEN])}", False
        elif self._request.is_ours:
            self._asked_us[source] = record.timestamp_us
            is_before = record.timestamp_us < self._request.record.timestamp_us
            yield "asked before" if is_before else "asked once more", False

    def _batch_words(self, sent: Ordered) -> Iterator[tuple[str, bool]]:
        batch = sent.batch
        way = " by a link, past the log," if sent.is_linked else ""
        for number, source in enumerate(batch.sources):
            if source in self._asked_us:
                self._sent_us[batch.batch] = sent.at_us, sent.slot
                what = (
                    f"sent to worker slot {sent.slot}{way} in batch {batch.batch} "
                    f"({batch.release_reason}: {counted(len(batch.ids), 'request')}, "
                    f"{counted(sum(batch.rows), 'row')}, "
                    f"{batch.predicted_us / 1000:.1f} ms predicted), "
                    f"attempt {batch.attempts[number]}"
                )
                yield what, False

    def _completion_words(self, record: Record) -> Iterator[tuple[str, bool]]:
        match decode_completion(record):
            case Done() as done:
                linked = Ordered.linked(record, done)
                if linked is not None:
                    for what, _ in self._batch_words(linked):
                        self._step(linked.at_us, what, record)
                for member in done.members:
                    if member.source in self._asked_us:
                        if member.status is MemberStatus.OK:
                            self._ran = self._ran or (done, member.source)
                            self._end(record, member.source, "")
                        yield _done(done, member), False
            case StaleWritten(topic, partition, ranges):
                for source in self._asked_us:
                    if (topic, partition) == source[:2] and any(
                        first <= source.offset <= last for first, last in ranges
                    ):
                        yield "ended as stale, without an answer", True
            case _:
                pass

    def _reply_words(self, record: Record) -> Iterator[tuple[str, bool]]:
        replies = decode_replies(record) if self._is_envelope(record) else None
        if replies is None:
            reply = decode_plain_reply(record)
            if reply.source in self._asked_us:
                self._end(record, reply.source, reply.reason or "")
                self._answer(record, reply.version, reply)
                yield _answered(reply.reason, reply.text), True
            return
        for answer in replies.answers:
            if (answer.id, answer.tenant) == (self._request.id, self._request.tenant):
                self._answer(record, replies.version, answer)
                yield _answered(answer.reason, answer.text), True

    def _answer(self, record: Record, version: str, said: Answer | PlainReply) -> None:
        place = Source(record.topic, record.partition, record.offset)
        outputs = [summary_of(each) for each in said.outputs]
        self._answers.append(
            AnswerTrail(
                at_us=record.timestamp_us,
                place=shown_place(place),
                version=version,
                reason=said.reason or "",
                text=said.text,
                outputs=outputs,
            )
        )

    def _end(self, record: Record, source: Source, reason: str) -> None:
        """``reason`` empty: a success."""
        is_final = not reason or not invites_retry(reason)
        self._ends.append(_End(record.timestamp_us, source, is_final))

    def _is_envelope(self, record: Record) -> bool:
        return self._topics.takes_envelopes(record.topic)


def _done(done: Done, member: DoneMember) -> str:
    reason = "" if member.reason == member.status else member.reason
    why = " ".join(filter(None, (reason, member.text)))
    how = f"{member.status}: {why}" if why else member.status
    return (
        f"done by worker slot {done.slot}/{done.incarnation}: {how}; "
        f"waited {done.wait_us / 1000:.1f} ms there, ran {done.run_us / 1000:.1f} ms"
    )


def _answered(reason: str | None, text: str) -> str:
    return "answered: success" if reason is None else f"answered: {reason}: {text}"


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")
