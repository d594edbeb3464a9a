"""A pool without services: topics, a model, and workers moved by hand."""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import uuid4

from confluent_kafka.admin import AdminClient

from headrace.broker import (
    Delivery,
    Depth,
    KafkaAdmin,
    KafkaConnection,
    KafkaLeader,
    KafkaProducer,
    KafkaReader,
    LeaderListener,
    LogRange,
    Record,
    TopicPartition,
    group_depth,
)
from headrace.domain import (
    Datatype,
    ModelState,
    Priority,
    ReplyAddress,
    ServedVersion,
    Signature,
    Tensor,
    TensorSpec,
)
from headrace.errors import BusError
from headrace.lifecycle import BusSettings
from headrace.wire import (
    Announcement,
    Answer,
    NewRequest,
    RequestEncoder,
    Topics,
    announcement_key,
    base_topics,
    compatibility,
    decode_replies,
    encode_json,
    model_topics,
)

WAIT_S = 40.0
MODEL = "m"
WIDTH = 4

T = TypeVar("T")


def until(what: str, look: Callable[[], T | None], timeout_s: float = WAIT_S) -> T:
    """What ``look`` finds, as soon as it finds anything."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"not within {timeout_s} s: {what}")


def log_range(reader: KafkaReader, partition: TopicPartition) -> LogRange:
    """Also of a topic that was made just now."""

    def look() -> LogRange | None:
        with contextlib.suppress(BusError):
            return reader.log_range(partition, 5)
        return None

    return until(f"the range of {partition}", look)


class _Taken(LeaderListener):
    def __init__(self) -> None:
        self.is_member = False

    def on_assign(self, lanes: Sequence[int]) -> None:
        self.is_member = bool(lanes)

    def on_revoke(self, lanes: Sequence[int]) -> None: ...

    def on_lost(self, lanes: Sequence[int]) -> None: ...


class Pool:
    """The topics of one test, and what ingresses and operators do with them."""

    def __init__(self, kafka: str, prefix: str, *, lanes: int = 1) -> None:
        self.bus = BusSettings(
            bootstrap_servers=kafka,
            prefix=prefix.rstrip("."),
            lanes=lanes,
            worker_slots=4,
            ingress_slots=4,
            session_ms=3000,
        )
        self.topics: Topics = self.bus.topics
        self.connection: KafkaConnection = self.bus.connection("test")
        self.admin = KafkaAdmin(self.connection)
        self.admin.create_topics(base_topics(self.topics, self.bus), 20)
        self.producer = KafkaProducer(self.connection)
        self.encoder = RequestEncoder(
            "headrace/ingress/0", ReplyAddress(self.topics.replies, 0)
        )

    def usurp(self, slot: int) -> None:
        """Join the group under a former's name, and be gone: a member that is fenced
        though no process but its own lives."""
        taken = _Taken()
        leader = KafkaLeader(
            self.connection,
            group=self.topics.lane_group,
            instance_id=f"{self.bus.prefix}.{self.bus.pool}.batch_former.{slot}",
            topic=self.topics.lanes,
            listener=taken,
            settings=self.bus.leader,
        )

        def look() -> bool:
            leader.poll(0.01)
            return taken.is_member

        until("to be a member", look)
        leader.close()

    def members(self) -> list[str]:
        """The instances that the group of formers has."""
        admin = AdminClient({"bootstrap.servers": self.bus.bootstrap_servers})
        (asked,) = admin.describe_consumer_groups([self.topics.lane_group]).values()
        return [each.group_instance_id for each in asked.result(WAIT_S).members]

    def produce(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> int:
        """Write a record and wait for it; its offset."""
        ended: list[Delivery] = []
        self.producer.produce(
            topic,
            partition,
            value,
            key=key,
            headers=headers,
            on_delivery=ended.append,
        )
        self.producer.flush(10)
        assert ended[0].error is None
        return ended[0].offset

    def announce(
        self,
        *slots: int,
        model: str = MODEL,
        version: str = "1",
        state: ModelState = ModelState.READY,
        max_batch: int = 8,
        run_us: int = 2_000,
    ) -> ServedVersion:
        """Say that these worker slots serve the model, and make its topics. Leases are
        six times ``run_us`` and 200 ms."""
        self.admin.create_topics(model_topics(self.topics, model, self.bus), 20)
        x = TensorSpec("x", Datatype.FP32, (-1, -1))
        y = TensorSpec("y", Datatype.FP32, (-1, -1))
        for slot in slots:
            announced = Announcement(
                model,
                version,
                slot,
                state,
                signature=Signature((x,), (y,)),
                sha256="0" * 64,
                max_batch=max_batch,
                batch_axes={"x": 0, "y": 0},
                run_us={1: run_us // 2, max_batch: run_us},
            )
            self.produce(
                self.topics.control_models,
                0,
                encode_json(announced),
                key=announcement_key(model, version, slot),
            )
        return ServedVersion(
            model=model,
            version=version,
            signature=Signature((x,), (y,)),
            sha256="0" * 64,
            max_batch=max_batch,
            batch_axes={"x": 0, "y": 0},
            padding=None,
            latency_objective_us=None,
            run_us={},
            ready_slots=frozenset(slots),
            unloading_slots=frozenset(),
        )

    def withdraw(self, slot: int, *, model: str = MODEL, version: str = "1") -> None:
        key = announcement_key(model, version, slot)
        self.produce(self.topics.control_models, 0, None, key=key)

    def request(
        self,
        served: ServedVersion,
        *,
        priority: Priority = Priority.STANDARD,
        lane: int = 0,
        width: int = WIDTH,
        timeout_s: float | None = 30.0,
        age_s: float = 0.0,
        request_id: str = "",
    ) -> str:
        """Send what an ingress would send; its id."""
        request_id = request_id or uuid4().hex
        log_us = time.time_ns() // 1000
        shape = (1, width)
        data = struct.pack(f"<{width}f", *range(width))
        new = NewRequest(
            id=request_id,
            tenant="default",
            model=served.model,
            version=served.version,
            priority=priority,
            deadline_us=None
            if timeout_s is None
            else log_us + int((timeout_s - age_s) * 1e6),
            compatibility=compatibility(served, [shape], [data]),
            tensors=(Tensor("x", Datatype.FP32, shape, data),),
        )
        headers, value = self.encoder.encode(new, log_us)
        partition = self.topics.request_partition(lane, priority)
        self.producer.produce(
            self.topics.requests(served.model), partition, value, headers=headers
        )
        return request_id

    def requests(self, count: int, served: ServedVersion, **facts: object) -> list[str]:
        ids = [self.request(served, **facts) for _ in range(count)]  # type: ignore[arg-type] # facts of one request
        self.producer.flush(10)
        return ids

    def reading(self, topic: str, *partitions: int) -> Reading:
        """These partitions from their starts; none: the first."""
        numbers = partitions or (0,)
        return Reading(
            self.connection, [TopicPartition(topic, number) for number in numbers]
        )

    def depth(self, priority: Priority = Priority.STANDARD, lane: int = 0) -> Depth:
        """A request partition of the model, and what is committed of it."""
        topic = self.topics.requests(MODEL)
        found = group_depth(
            self.connection, self.topics.lane_group, lambda name: name == topic
        )
        partition = self.topics.request_partition(lane, priority)
        return found[TopicPartition(topic, partition)]


class Reading:
    """Everything that is in some partitions, as far as it was looked at."""

    def __init__(
        self, connection: KafkaConnection, partitions: Sequence[TopicPartition]
    ) -> None:
        self._reader = KafkaReader(connection)
        ranges = {one: log_range(self._reader, one) for one in partitions}
        self._count = sum(one.end - one.start for one in ranges.values())
        self._reader.assign({one: found.start for one, found in ranges.items()})
        self.records: list[Record] = []

    def look(self) -> list[Record]:
        self.records += self._reader.read(1000, 0.05)
        return self.records

    def whole(self) -> list[Record]:
        """All that was there when reading began."""
        return until(
            "the end", lambda: self._count <= len(self.look()) and self.records
        )

    def answers(self) -> dict[str, Answer]:
        """By id, from a replies partition; the first one counts."""
        answers: dict[str, Answer] = {}
        for record in self.look():
            replies = decode_replies(record)
            assert replies is not None
            for answer in replies.answers:
                answers.setdefault(answer.id, answer)
        return answers
