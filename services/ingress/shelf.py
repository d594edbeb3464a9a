"""The kept answers of every tenant that was heard of: followed, and found again.

All of it runs on the event loop; what blocks is done by the archive's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from headrace.clock import Clock
from headrace.domain import Reason, Source, is_final
from headrace.errors import BusError, RequestError, UndecodableRecord
from headrace.wire import NewTopic, Record
from headrace.wire import headers as names
from services.ingress.archive import Archive
from services.ingress.kept import Kept, KeptAnswers, Key

__all__ = ["SLACK_US", "Shelf", "When"]

SLACK_US = 60_000_000
"""Answers are looked for so much further back than keys are remembered: an answer is
older than the settling of its request, from which a key's memory counts."""

READ_TIMEOUT_S = 10.0
"""Longest that an answer waits until a topic was read to its end for the first time."""


class When(msgspec.Struct, frozen=True):
    """Which answers count, by their log time: final ones from the one instant on, any
    from the other."""

    final_since_us: int
    any_since_us: int

    def admits(self, kept: Kept) -> bool:
        if kept.log_us >= self.any_since_us:
            return True
        return kept.is_final and kept.log_us >= self.final_since_us


class _Topic(msgspec.Struct):
    """``waiting``: whom to tell, once, that it is there, or why not."""

    waiting: list[Callable[[BusError | None], None]]
    read: asyncio.Event
    is_there: bool = False


class Shelf:
    """``new_topic(tenant, job)`` describes a topic that may have to be made.
    ``follow``, which is set before the first, reads one from a log time on."""

    follow: Callable[[str, int], None]

    def __init__(  # noqa: PLR0913 - what it depends on
        self,
        archive: Archive,
        *,
        new_topic: Callable[[str, str], NewTopic],
        known_max: int,
        topics_max: int,
        memory_us: int,
        clock: Clock,
        to_log_us: Callable[[int], int],
    ) -> None:
        self.archive = archive
        self._new_topic = new_topic
        self._topics_max = topics_max
        self._back_us = memory_us + SLACK_US
        self._clock = clock
        self._to_log_us = to_log_us
        self._known = KeptAnswers(known_max, memory_us)
        self._topics: dict[str, _Topic] = {}
        self._listeners: dict[Key, list[Callable[[Kept, Record], None]]] = {}
        self._waiting: set[asyncio.Future[Record | None]] = set()
        self._is_hurried = False

    def open(
        self, tenant: str, job: str, then: Callable[[BusError | None], None]
    ) -> None:
        """Make and follow the tenant's topic of that job, and call ``then``: at once
        where it is followed already.

        Raises :class:`RequestError` when too many are followed.
        """
        new = self._new_topic(tenant, job)
        topic = self._topics.get(new.name)
        if topic is not None and topic.is_there:
            then(None)
        elif topic is not None:
            topic.waiting.append(then)
        else:
            if len(self._topics) >= self._topics_max:
                raise RequestError(
                    f"kept answers of {self._topics_max} topics are followed, and no "
                    "more may be (kept_topics_max)",
                    reason=Reason.OVERLOADED,
                )
            self._topics[new.name] = _Topic([then], asyncio.Event())
            made = partial(self.archive.create, new)
            self.archive.then(made, partial(self._made, new.name))

    async def opened(self, tenant: str, job: str) -> None:
        """As :meth:`open`, waiting for it. Raises :class:`BusError`, too."""
        there: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def then(error: BusError | None) -> None:
            if there.done():
                pass  # whoever waited has left
            elif error is None:
                there.set_result(None)
            else:
                there.set_exception(error)

        self.open(tenant, job, then)
        await there

    def _made(self, name: str, _: None, error: BusError | None) -> None:
        topic = self._topics[name]
        if error is None:
            topic.is_there = True
            since_us = self._to_log_us(self._clock.now_us()) - self._back_us
            self._known.follow(name, since_us)
            self.follow(name, since_us)
        else:
            del self._topics[name]
        for then in topic.waiting:
            then(error)
        topic.waiting.clear()

    def caught_up(self, topics: Iterable[str]) -> None:
        """All that these held when they were first read has arrived."""
        for topic in topics:
            self._topics[topic].read.set()

    def arrived(self, records: Iterable[Record]) -> None:
        """Records of the topics that are followed, in their order."""
        for record in records:
            found = read_kept(record)
            if found is not None and self._known.add(*found):
                key, kept = found
                self.archive.remember(kept.place, record)
                for listener in list(self._listeners.get(key, ())):
                    listener(kept, record)

    def listen(self, key: Key, listener: Callable[[Kept, Record], None]) -> None:
        """Call ``listener`` with every new answer to ``key``, until it is dropped."""
        self._listeners.setdefault(key, []).append(listener)

    def drop(self, key: Key, listener: Callable[[Kept, Record], None]) -> None:
        """It may have been dropped before."""
        listeners = self._listeners.get(key, [])
        if listener in listeners:
            listeners.remove(listener)
            if not listeners:
                del self._listeners[key]

    def known(self, key: Key, when: When) -> Kept | None:
        """The answer, where it is known without a look into the log."""
        kept = self._known.find(key)
        return kept if kept is not None and when.admits(kept) else None

    def hurry(self) -> None:
        """From now on nobody waits for an answer that is not there yet."""
        self._is_hurried = True
        for came in self._waiting:
            if not came.done():
                came.set_result(None)

    async def find(self, key: Key, when: When, wait_s: float) -> Record | None:
        """The answer, from wherever it lies; one that comes within ``wait_s``, too. Its
        topic is open.

        Raises :class:`BusError`.
        """
        came: asyncio.Future[Record | None] = asyncio.get_running_loop().create_future()

        def listener(kept: Kept, record: Record) -> None:
            if when.admits(kept) and not came.done():
                came.set_result(record)

        self.listen(key, listener)
        try:
            return await self._find(key, when, came, wait_s)
        finally:
            self.drop(key, listener)

    async def answer_of(self, asked: Source, key: Key, when: When) -> Record | None:
        """That of one request record, where another with its key has an answer, too.

        Raises :class:`BusError`.
        """

        def is_its(record: Record) -> bool:
            found = read_kept(record)
            return found is not None and found[1].asked == asked

        since_us = min(when.final_since_us, when.any_since_us)
        return await self.archive.run(
            partial(self.archive.search, key.topic, since_us, is_its)
        )

    async def _searched(
        self, key: Key, since_us: int, is_wanted: Callable[[Record], bool]
    ) -> Record | None:
        search = partial(self.archive.search, key.topic, since_us, is_wanted)
        return await self.archive.run(search)

    async def _find(
        self,
        key: Key,
        when: When,
        came: asyncio.Future[Record | None],
        wait_s: float,
    ) -> Record | None:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                await self._topics[key.topic].read.wait()
        except TimeoutError as error:
            text = f"{key.topic} was not read in {READ_TIMEOUT_S:g} s"
            raise BusError(text, code="_TIMED_OUT") from error
        kept = self.known(key, when)
        if kept is not None:
            record = await self.archive.look(kept.place)
            if isinstance(record, Record):
                return record
        since_us = min(when.final_since_us, when.any_since_us)
        if kept is not None or not self._known.covers(key.topic, since_us):
            found = await self._searched(key, since_us, partial(_is, key, when))
            if found is not None:
                good = partial(_makes_good, key, found)
                return await self._searched(key, since_us, good) or found
        self._waiting.add(came)
        try:
            async with asyncio.timeout(0 if self._is_hurried else wait_s):
                return await came
        except TimeoutError:
            return None
        finally:
            self._waiting.discard(came)


def read_kept(record: Record) -> tuple[Key, Kept] | None:
    """None: it is no plain reply."""
    headers = dict(record.headers)
    try:
        names.check_schema(headers)
        asked = names.parse_source(headers.get(names.SOURCE))
        reason = None
        if headers.get(names.STATUS) != names.STATUS_OK:
            reason = Reason((headers.get(names.REASON) or b"").decode())
        request_id = (record.key or b"").decode()
    except (UndecodableRecord, ValueError):
        return None
    place = Source(record.topic, record.partition, record.offset)
    is_success = reason is None
    kept = Kept(place, record.timestamp_us, asked, is_final(reason), is_success)
    return Key(record.topic, request_id), kept


def _makes_good(key: Key, before: Record, record: Record) -> bool:
    found, erred = read_kept(record), read_kept(before)
    if found is None or erred is None or found[0] != key:
        return False
    return found[1].makes_good(erred[1])


def _is(key: Key, when: When, record: Record) -> bool:
    if record.key != key.id.encode():
        return False
    found = read_kept(record)
    return found is not None and when.admits(found[1])
