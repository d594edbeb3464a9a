"""Ownership of lanes: a static member of a classic group, and its commits."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import confluent_kafka
from confluent_kafka import OFFSET_END, OFFSET_INVALID, KafkaError, KafkaException

from headrace.broker.connection import KafkaConnection, bus_error, error_of
from headrace.broker.interface import (
    CommitRefused,
    Committed,
    LeaderListener,
    TopicPartition,
)
from headrace.errors import BusError

__all__ = ["KafkaLeader", "LeaderSettings"]

_LOG: Final = logging.getLogger("headrace.broker")

_REFUSED: Final[dict[str, CommitRefused]] = {
    "ILLEGAL_GENERATION": CommitRefused.TRANSIENT,
    "REBALANCE_IN_PROGRESS": CommitRefused.TRANSIENT,
    "UNKNOWN_MEMBER_ID": CommitRefused.NOT_MEMBER,
    "_ASSIGNMENT_LOST": CommitRefused.NOT_MEMBER,
    "FENCED_INSTANCE_ID": CommitRefused.FENCED,
    "_FATAL": CommitRefused.FENCED,
}

_HEARTBEAT_MS: Final = 250
"""A member learns of a rebalance by its heartbeat, and lanes wait for that."""

_ANSWER_POLL_S: Final = 0.001
_LEAVE_S: Final = 1.0
"""Longest that leaving holds up the end; later the session's end does the same."""

_Answer = Callable[[CommitRefused | None], None]
_Key = frozenset[tuple[str, int, int]]


class LeaderSettings(NamedTuple):
    """A member silent for ``session_ms`` loses its lanes; the broker's
    ``group.min.session.timeout.ms`` (6 s unless configured) is its lower limit."""

    session_ms: int = 6000

    def config(self) -> dict[str, Any]:
        return {
            "session.timeout.ms": self.session_ms,
            "heartbeat.interval.ms": min(_HEARTBEAT_MS, self.session_ms // 4),
            "max.poll.interval.ms": max(10_000, self.session_ms * 5 // 2),
        }


class KafkaLeader:
    """A member of the lane group (:class:`headrace.broker.Leader`). One thread makes
    all its calls.

    ``instance_id`` is the member's name over restarts: a process started under the
    name of a dead one has its lanes back at once, without a rebalance, and the
    thawed twin of a living one is fenced.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        *,
        group: str,
        instance_id: str,
        topic: str,
        listener: LeaderListener,
        settings: LeaderSettings = LeaderSettings(),  # noqa: B008 - immutable
    ) -> None:
        self._listener = listener
        self._awaited: list[tuple[_Key, _Answer]] = []
        self._outsiders: list[_Answer] = []
        self._in_listener = False
        self._failed: BusError | None = None
        self._client = confluent_kafka.Consumer(
            connection.config()
            | settings.config()
            | {
                "group.id": group,
                "group.instance.id": instance_id,
                "group.protocol": "classic",
                "partition.assignment.strategy": "cooperative-sticky",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "on_commit": self._on_commit,
            }
        )
        self._client.subscribe(
            [topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def poll(self, timeout_s: float) -> None:
        """As :meth:`headrace.broker.Leader.poll`."""
        self._serve(timeout_s)
        if self._failed is not None:
            raise self._failed

    def commit(
        self, offsets: Mapping[TopicPartition, Committed], on_done: _Answer
    ) -> None:
        """As :meth:`headrace.broker.Leader.commit`."""
        # A commit that names no member is accepted while the group is empty: it
        # would prove nothing.
        if not self._client.memberid():
            self._outsiders.append(on_done)
            return
        wanted = [_offset(one, committed) for one, committed in offsets.items()]
        self._awaited.append((_key(wanted), on_done))
        try:
            self._client.commit(offsets=wanted, asynchronous=True)
        except KafkaException as error:
            self._awaited.pop()
            raise bus_error(error_of(error), "commit") from error

    def commit_now(
        self, offsets: Mapping[TopicPartition, Committed], timeout_s: float
    ) -> CommitRefused | None:
        """As :meth:`headrace.broker.Leader.commit_now`."""
        # The client's own synchronous commit has no time-out (8 s measured against
        # a frozen broker), and it aborts the process when polled inside a callback.
        assert not self._in_listener, "use commit inside a listener call"
        answers: list[CommitRefused | None] = []
        self.commit(offsets, answers.append)
        deadline = time.monotonic() + timeout_s
        while not answers:
            if time.monotonic() > deadline:
                return CommitRefused.UNAVAILABLE
            # A poll goes on waiting for records after it has served the answer.
            self._serve(_ANSWER_POLL_S)
            if self._failed is not None and self._failed.code == "_FATAL":
                return CommitRefused.FENCED
        return answers[0]

    def committed(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, Committed]:
        """As :meth:`headrace.broker.Leader.committed`."""
        try:
            found = self._client.committed(
                [confluent_kafka.TopicPartition(*one) for one in partitions],
                timeout_s,
            )
        except KafkaException as error:
            raise bus_error(error_of(error), "committed offsets") from error
        result = {}
        for one in found:
            if one.error is not None:
                raise bus_error(one.error, f"committed offset of {one.topic}")
            offset = None if one.offset == OFFSET_INVALID else one.offset
            result[TopicPartition(one.topic, one.partition)] = Committed(
                offset, one.metadata or ""
            )
        return result

    def close(self, *, leave: bool = False) -> None:
        """As :meth:`headrace.broker.Leader.close`."""
        if leave:
            self._leave()
        self._client.close()

    def _leave(self) -> None:
        # The client leaves in the name of a static member when it unsubscribes, not
        # when it closes; it forgets its member id as it says so.
        self._client.unsubscribe()
        deadline = time.monotonic() + _LEAVE_S
        while self._client.memberid() and time.monotonic() < deadline:
            self._serve(_ANSWER_POLL_S)

    def _serve(self, timeout_s: float) -> None:
        if self._outsiders:
            answers, self._outsiders = self._outsiders, []
            for answer in answers:
                answer(CommitRefused.NOT_MEMBER)
        message = self._client.poll(timeout_s)
        error = None if message is None else message.error()
        if (
            error is not None
            and not error.retriable()
            # The listener is told: on_lost comes with the next poll.
            and error.name() != "_MAX_POLL_EXCEEDED"
        ):
            # Such an event comes once, whoever polled; what ended stays ended.
            self._failed = bus_error(error, "lane group")

    def _on_assign(
        self,
        client: confluent_kafka.Consumer,
        partitions: list[confluent_kafka.TopicPartition],
    ) -> None:
        for one in partitions:
            one.offset = OFFSET_END
        client.incremental_assign(partitions)
        # Claims are read by a reader; here the topic only says who owns what.
        client.pause(partitions)
        self._tell(self._listener.on_assign, partitions)

    def _on_revoke(
        self,
        _client: confluent_kafka.Consumer,
        partitions: list[confluent_kafka.TopicPartition],
    ) -> None:
        self._tell(self._listener.on_revoke, partitions)

    def _on_lost(
        self,
        _client: confluent_kafka.Consumer,
        partitions: list[confluent_kafka.TopicPartition],
    ) -> None:
        self._tell(self._listener.on_lost, partitions)

    def _tell(
        self,
        hear: Callable[[Sequence[int]], None],
        partitions: list[confluent_kafka.TopicPartition],
    ) -> None:
        if not partitions:
            return
        self._in_listener = True
        try:
            hear([one.partition for one in partitions])
        finally:
            self._in_listener = False

    def _on_commit(
        self,
        error: KafkaError | None,
        partitions: list[confluent_kafka.TopicPartition],
    ) -> None:
        # Answers name their offsets and nothing else; equal commits are answered
        # in the order in which they were sent.
        key = _key(partitions)
        for place, (sent, answer) in enumerate(self._awaited):
            if sent == key:
                del self._awaited[place]
                refused = None if error is None else _refused(error)
                if refused is CommitRefused.FENCED and self._failed is None:
                    self._failed = BusError("lane group: fenced", code="_FATAL")
                answer(refused)
                return


def _refused(error: KafkaError) -> CommitRefused:
    refused = _REFUSED.get(error.name())
    if refused is not None:
        return refused
    if not error.retriable():
        _LOG.warning("commit refused: %s (%s)", error.str(), error.name())
    return CommitRefused.UNAVAILABLE


def _offset(
    partition: TopicPartition, committed: Committed
) -> confluent_kafka.TopicPartition:
    assert committed.offset is not None
    return confluent_kafka.TopicPartition(
        *partition, committed.offset, metadata=committed.metadata
    )


def _key(partitions: Sequence[confluent_kafka.TopicPartition]) -> _Key:
    return frozenset((one.topic, one.partition, one.offset) for one in partitions)
