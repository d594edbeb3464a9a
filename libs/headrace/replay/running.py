"""Recorded requests on their way through the platform once more.

They wait as bulk, for a tenant of their own, and are answered to a topic of their own:
nobody who asked them first hears of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from headrace.broker import Answered, BulkExchange, KafkaAdmin, KafkaConnection
from headrace.clock import Clock, SystemClock, wall_us
from headrace.delivery import Outstanding
from headrace.domain import PayloadRef, Priority, ReplyAddress, ServedVersion, Tensor
from headrace.errors import HeadraceError, RequestError, UndecodableRecord
from headrace.replay.joining import REPLAY_SOURCE
from headrace.replay.leftovers import SIGN_EVERY_US
from headrace.replay.pace import Pace
from headrace.replay.reading import REPLAY_TENANT
from headrace.replay.recorded import STATUS_OK, Recorded
from headrace.wire import (
    Headers,
    NewRequest,
    RequestEncoder,
    Topics,
    TopicSizes,
    cancel_headers,
    results_topic,
)
from headrace.wire import headers as names
from headrace.wire.foreign import read_inputs
from headrace.wire.payloads import read_dataref

__all__ = ["LOST", "SIGN", "UNFIT", "Replayed", "Rerun"]

UNFIT = "unfit"
"""It does not fit the version that was to run it, and was not sent."""

LOST = "lost"
"""Sent three times, and the log has settled it each time without an answer."""

SIGN: Final = b"at work"
"""Key of the record by which a replay says that it lives."""

_TURN_S: Final = 0.05
_TURN_S_MIN: Final = 0.001
_TOPIC_S: Final = 30.0
_FLUSH_S: Final = 10.0


class Replayed(msgspec.Struct, frozen=True):
    """``status``: ``ok``, the reason of an error, :data:`UNFIT` or :data:`LOST`;
    ``took_us``: from sending to its answer's arrival here, behind all else that is
    more urgent."""

    recorded: Recorded
    status: str
    text: str = ""
    version: str = ""
    outputs: tuple[Tensor, ...] = ()
    took_us: int | None = None
    payload: PayloadRef | None = None
    """Where the outputs' data are, if they are not here."""

    @property
    def is_ok(self) -> bool:
        return self.status == STATUS_OK


class _Sent(msgspec.Struct, frozen=True):
    name: str
    recorded: Recorded
    headers: Headers
    value: bytes
    at_us: int


class Rerun:
    """Runs recorded requests with ``served``. ``run``: its name, in ids and topics.

    Raises :class:`headrace.errors.BusError`, as do its methods.
    """

    def __init__(  # noqa: PLR0913 - an address, a version, and how
        self,
        connection: KafkaConnection,
        topics: Topics,
        served: ServedVersion,
        run: str,
        sizes: TopicSizes,
        *,
        speed: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        """``speed``: that of :class:`headrace.replay.pace.Pace`."""
        self._served = served
        self._run = run
        self._pace = Pace(speed)
        self._clock = clock or SystemClock()
        self._admin = KafkaAdmin(connection)
        topic = results_topic(topics, REPLAY_TENANT, run, sizes, partitions=1)
        self._admin.create_topics([topic], _TOPIC_S)
        self._address = ReplyAddress(topic.name, None)
        self._encoder = RequestEncoder(f"{REPLAY_SOURCE}{run}", self._address)
        self._exchange = BulkExchange(
            connection, topics, served.model, topic.name, since_us=wall_us()
        )
        self._outstanding = Outstanding()
        self._sent: dict[str, _Sent] = {}
        self._number = 0
        self._following: _Sent | None = None
        """Made, and not sent yet."""

        self._is_read = False
        self._sign_at_us = 0

    @property
    def results(self) -> str:
        """The topic of the answers."""
        return self._address.topic

    def run(self, recorded: Iterator[Recorded]) -> Iterator[Replayed]:
        """In the order in which they end. A caller that stops early takes back what
        still waits."""
        is_whole = False
        try:
            yield from self._run_all(recorded)
            is_whole = True
        finally:
            if not is_whole:
                self._take_back()
            self._exchange.close()
        # Whoever still had an answer for it would wait in vain for the topic.
        self._admin.delete_topic(self.results, _TOPIC_S)

    def _run_all(self, recorded: Iterator[Recorded]) -> Iterator[Replayed]:
        while True:
            yield from self._fill(recorded)
            wait_s = _TURN_S
            if self._following is not None:
                early_s = self._early_us(self._following) / 1e6
                wait_s = min(max(early_s, _TURN_S_MIN), _TURN_S)
            yield from self._turn(wait_s)
            if self._is_read and self._following is None:
                if not self._sent:
                    return
                if self._exchange.is_quiet:
                    yield from self._again()

    def _fill(self, recorded: Iterator[Recorded]) -> Iterator[Replayed]:
        """Send what is due and has room; gives those that cannot be sent at all."""
        while not self._is_read or self._following is not None:
            following = self._following
            if following is None:
                one = next(recorded, None)
                if one is None:
                    self._is_read = True
                    return
                made = self._made(one)
                if isinstance(made, Replayed):
                    yield made
                    continue
                following = self._following = made
            if self._early_us(following) > 0 or not self._send(following):
                return
            self._following = None

    def _turn(self, wait_s: float) -> Iterator[Replayed]:
        if self._clock.now_us() >= self._sign_at_us:
            self._sign_at_us = self._clock.now_us() + SIGN_EVERY_US
            self._exchange.sign(SIGN)
        for answered in self._exchange.turn(wait_s):
            replayed = self._answered(answered)
            if replayed is not None:
                yield replayed

    def _made(self, recorded: Recorded) -> _Sent | Replayed:
        served = self._served
        try:
            payload = read_dataref(dict(recorded.record.headers))
            inputs = read_inputs(recorded.record.value or b"", served, payload)
        except (RequestError, UndecodableRecord) as error:
            return Replayed(recorded, UNFIT, str(error))
        name = f"{self._run}.{self._number}"
        self._number += 1
        request = NewRequest(
            id=name,
            tenant=REPLAY_TENANT,
            model=served.model,
            version=served.version,
            priority=Priority.BULK,
            deadline_us=None,
            compatibility=inputs.compatibility,
            tensors=inputs.tensors,
            payload=inputs.payload,
        )
        headers, value = self._encoder.encode(request, wall_us())
        headers.append((names.REPLAY_OF, recorded.place.encode()))
        return _Sent(name, recorded, headers, value, 0)

    def _early_us(self, one: _Sent) -> int:
        return self._pace.early_us(
            one.recorded.record.timestamp_us, self._clock.now_us()
        )

    def _send(self, one: _Sent) -> bool:
        if not self._exchange.offer(one.headers, one.value, one.name.encode()):
            return False
        now_us = self._clock.now_us()
        self._pace.sent(one.recorded.record.timestamp_us, now_us)
        self._sent[one.name] = msgspec.structs.replace(one, at_us=now_us)
        self._outstanding.sent(one.name)
        return True

    def _answered(self, answered: Answered) -> Replayed | None:
        """None: of somebody else, or once more."""
        if not self._outstanding.answered(answered.id):
            return None
        sent = self._sent.pop(answered.id)
        took_us = self._clock.now_us() - sent.at_us
        reply, letter = answered.reply, answered.letter
        if reply is None:
            assert letter is not None
            return Replayed(sent.recorded, letter.reason, letter.text, took_us=took_us)
        return Replayed(
            recorded=sent.recorded,
            status=reply.reason or STATUS_OK,
            text=reply.text,
            version=reply.version,
            outputs=reply.outputs,
            took_us=took_us,
            payload=reply.payload,
        )

    def _again(self) -> Iterator[Replayed]:
        """The log has settled everything, and some have no answer."""
        missing, lost = self._outstanding.missing()
        for name in lost:
            yield Replayed(self._sent.pop(name).recorded, LOST)
        for name in missing:
            sent = self._sent[name]
            while not self._exchange.offer(sent.headers, sent.value, name.encode()):
                yield from self._turn(_TURN_S)
            self._outstanding.sent(name)

    def _take_back(self) -> None:
        for name in self._sent:
            headers = cancel_headers(
                name,
                REPLAY_TENANT,
                self._address,
                source=self._encoder.source,
                log_us=wall_us(),
            )
            try:
                self._exchange.cancel(headers, name.encode())
            except HeadraceError:
                break
        self._exchange.flush(_FLUSH_S)
