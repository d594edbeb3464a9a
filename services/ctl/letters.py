"""Dead letters as they lie in the log, and what becomes of those that are put back.

A letter is put back once: not when its id has a success, nor after it was put back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from headrace.broker import KafkaConnection, TopicPartition, records_since
from headrace.domain import DeadLetter, Source
from headrace.errors import UndecodableRecord
from headrace.wire import (
    Buried,
    Outgoing,
    Record,
    TopicKind,
    Topics,
    decode_dead_letter,
    decode_plain_reply,
    decode_replies,
)
from headrace.wire import headers as names

__all__ = [
    "Fate",
    "Letter",
    "chosen",
    "fates",
    "put_back",
    "read_letters",
    "shown_place",
]

FLIGHT_US_MAX = 900_000_000
"""A success of a request that has a dead letter was written no earlier than this
before the letter: no request is in flight for longer."""


class Letter(NamedTuple):
    place: Source
    at_us: int
    key: bytes | None
    buried: Buried

    @property
    def letter(self) -> DeadLetter:
        return self.buried.letter

    def text(self, header: str) -> str:
        """A header of the original record."""
        value = dict(self.buried.headers).get(header)
        return (value or b"").decode(errors="replace")

    @property
    def is_ours(self) -> bool:
        """Whether its id was made by an ingress or a publisher, so that it names one
        request."""
        return names.made_by_us(dict(self.buried.headers))


class Fate(StrEnum):
    """What becomes of a letter that is to be put back."""

    SENT = "sent"
    ANSWERED = "answered"
    """Its id has a success."""
    REDRIVEN = "redriven"
    """It was put back before."""
    EMPTY = "empty"
    """The log had lost its record, or the record had no value."""


def read_letters(
    connection: KafkaConnection,
    topics: Topics,
    models: Collection[str],
    since_us: int,
) -> Iterator[Letter]:
    """Of these models (none: of all), oldest first within each. Records that are no
    dead letters are passed over.

    Raises :class:`headrace.errors.BusError`.
    """
    wanted = {topics.dead_letters(model) for model in models}

    def is_wanted(partition: TopicPartition) -> bool:
        topic = partition.topic
        is_kind = topics.kind_of(topic) is TopicKind.DEAD_LETTERS
        return topic in wanted if wanted else is_kind

    for record in records_since(connection, is_wanted, since_us):
        try:
            buried = decode_dead_letter(record)
        except UndecodableRecord:
            continue
        place = Source(record.topic, record.partition, record.offset)
        yield Letter(place, record.timestamp_us, record.key, buried)


def chosen(letters: Sequence[Letter], name: str) -> list[Letter]:
    """Those that ``name`` can mean: a request's id, the client's ``x-request-id``, or
    a letter's place as ``topic/partition/offset``. Of a request that was put back and
    failed again, the last one; more than one for different requests with one name."""
    placed = [each for each in letters if shown_place(each.place) == name]
    if placed:
        return placed
    named = [
        each
        for each in letters
        if name in {each.letter.id, each.text(names.X_REQUEST_ID)}
    ]
    followed = {each.text(names.REDRIVEN) for each in named}
    last = [each for each in named if shown_place(each.place) not in followed]
    requests = {
        each.letter.tenant if each.is_ours else each.place: each for each in last
    }
    return list(requests.values())


def fates(
    connection: KafkaConnection, topics: Topics, letters: Sequence[Letter]
) -> dict[Source, tuple[Fate, str]]:
    """For the letters (by place) that should not be put back: why, and where in the
    log that stands.

    Raises :class:`headrace.errors.BusError`.
    """
    found: dict[Source, tuple[Fate, str]] = {}
    by_place = {shown_place(each.place): each for each in letters}
    for each in letters:
        if each.buried.value is None:
            found[each.place] = Fate.EMPTY, each.letter.text
    for record in _later(connection, topics, letters):
        place = shown_place(Source(record.topic, record.partition, record.offset))
        if topics.kind_of(record.topic) is TopicKind.REQUESTS:
            header = dict(record.headers).get(names.REDRIVEN) or b""
            letter = by_place.get(header.decode(errors="replace"))
            if letter is not None:
                found.setdefault(letter.place, (Fate.REDRIVEN, place))
            continue
        for success in _successes(record):
            for letter in letters:
                if success.ends(letter):
                    found[letter.place] = Fate.ANSWERED, place
    return found


def put_back(letter: Letter) -> Outgoing:
    """The original record once more, naming the letter. Its deadline is over and left
    out, so that the model's time limit counts from now."""
    place = shown_place(letter.place).encode()
    headers = [
        (name, value)
        for name, value in letter.buried.headers
        if name not in {names.DEADLINE, names.REDRIVEN}
    ]
    return Outgoing(
        letter.key, [*headers, (names.REDRIVEN, place)], letter.buried.value
    )


def shown_place(place: Source) -> str:
    return names.source_text(place).decode()


class _Success(NamedTuple):
    """``source`` None: its reader knows it by its id alone."""

    id: str
    tenant: str | None
    source: Source | None

    def ends(self, letter: Letter) -> bool:
        if self.source is not None and self.source == letter.letter.source:
            return True
        is_named = self.source is None or letter.is_ours
        return (
            is_named
            and self.id == letter.letter.id
            and self.tenant in {None, letter.letter.tenant}
        )


def _successes(record: Record) -> Iterator[_Success]:
    try:
        replies = decode_replies(record)
        if replies is None:
            reply = decode_plain_reply(record)
            if reply.reason is None:
                yield _Success(reply.id, None, reply.source)
            return
        for answer in replies.answers:
            if answer.reason is None:
                yield _Success(answer.id, answer.tenant, None)
    except UndecodableRecord:
        return


def _later(
    connection: KafkaConnection, topics: Topics, letters: Sequence[Letter]
) -> Iterator[Record]:
    """Where their requests would be answered, or put back."""
    waiting: set[TopicPartition] = set()
    kept: set[str] = set()
    for letter in letters:
        source = letter.letter.source
        waiting.add(TopicPartition(source.topic, source.partition))
        address, number = (
            letter.text(each) for each in (names.REPLY_TOPIC, names.REPLY_PARTITION)
        )
        if topics.is_reply_topic(address) and number.isdigit():
            waiting.add(TopicPartition(address, int(number)))
        elif topics.is_reply_topic(address):
            kept.add(address)
    oldest_us = min((each.at_us for each in letters), default=0)
    since_us = max(oldest_us - FLIGHT_US_MAX, 0)
    yield from records_since(connection, waiting.__contains__, since_us)
    yield from records_since(connection, lambda one: one.topic in kept)
