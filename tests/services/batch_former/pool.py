"""A pool without services: topics, a model, and workers moved by hand."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import uuid4

from headrace.broker import (
    Delivery,
    Depth,
    KafkaAdmin,
    KafkaConnection,
    KafkaProducer,
    KafkaReader,
    LogRange,
    Record,
    TopicPartition,
    group_depth,
)
from headrace.domain import (
    Completion,
    Datatype,
    Done,
    DoneMember,
    HeldBatch,
    Joined,
    MemberStatus,
    ModelState,
    Priority,
    ReplyAddress,
    Reported,
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
    Batch,
    Heartbeat,
    NewRequest,
    RequestEncoder,
    Role,
    ServiceState,
    Sync,
    Topics,
    announcement_key,
    base_topics,
    compatibility,
    decode_order,
    decode_replies,
    encode_completion,
    encode_json,
    model_topics,
)

WAIT_S = 20.0
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
    ) -> ServedVersion:
        """Say that these worker slots serve the model, and make its topics."""
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
                run_us={1: 1_000, max_batch: 2_000},
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
        starts = {one: log_range(self._reader, one).start for one in partitions}
        self._reader.assign(starts)
        self.records: list[Record] = []

    def look(self) -> list[Record]:
        self.records += self._reader.read(1000, 0.05)
        return self.records

    def answers(self) -> dict[str, Answer]:
        """By id, from a replies partition; the first one counts."""
        answers: dict[str, Answer] = {}
        for record in self.look():
            replies = decode_replies(record)
            assert replies is not None
            for answer in replies.answers:
                answers.setdefault(answer.id, answer)
        return answers


class Worker:
    """A worker slot moved by hand; its heartbeat alone beats by itself."""

    def __init__(self, pool: Pool, slot: int, *, previous_exit: str = "") -> None:
        self._pool = pool
        self._topics = pool.topics
        self.slot = slot
        self.lane = slot % pool.bus.lanes
        self._producer = KafkaProducer(pool.connection)
        self._reader = KafkaReader(pool.connection)
        partition = TopicPartition(self._topics.batches, slot)
        self._reader.assign({partition: log_range(self._reader, partition).end})
        self._orders: deque[Batch | Sync] = deque()
        self._instance = uuid4().hex
        self.held: list[Batch] = []
        self.stopped = threading.Event()
        self.incarnation = self._complete(Joined(slot, previous_exit))
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def next_order(self, timeout_s: float = WAIT_S) -> Batch | Sync:
        def look() -> Batch | Sync | None:
            if not self._orders:
                self._look()
            return self._orders.popleft() if self._orders else None

        return until(f"an order for slot {self.slot}", look, timeout_s)

    def next_batch(self, timeout_s: float = WAIT_S) -> Batch:
        """The next batch addressed to this process; syncs before it are answered."""
        while True:
            order = self.next_order(timeout_s)
            if isinstance(order, Sync):
                self.report(order)
            elif order.stamp.incarnation == self.incarnation:
                self.held.append(order)
                return order

    def ready(self) -> None:
        """Wait for the first sync, and answer it."""
        while not isinstance(order := self.next_order(), Sync):
            pass
        self.report(order)

    def gets_nothing(self, for_s: float) -> bool:
        """Whether no batch comes for so long; syncs are answered."""
        deadline = time.monotonic() + for_s
        while time.monotonic() < deadline:
            self._look()
            while self._orders:
                order = self._orders.popleft()
                if not isinstance(order, Sync):
                    return False
                self.report(order)
        return True

    def report(self, sync: Sync) -> None:
        held = tuple(HeldBatch(one.batch, tuple(one.sources)) for one in self.held)
        reported = Reported(
            slot=self.slot,
            incarnation=self.incarnation,
            epoch=sync.epoch,
            former=sync.former,
            k=sync.k,
            draining=False,
            models=frozenset({f"{MODEL}/1"}),
            held=held,
        )
        self._complete(reported)

    def finish(
        self,
        batch: Batch,
        status: MemberStatus = MemberStatus.OK,
        reason: str = "",
        text: str = "",
    ) -> None:
        """Say that the batch is done; the replies themselves are not written."""
        self.held.remove(batch)
        members = tuple(
            DoneMember(source, member, status, reason, text)
            for source, member in zip(batch.sources, batch.ids, strict=True)
        )
        done = Done(
            batch=batch.batch,
            slot=self.slot,
            incarnation=self.incarnation,
            rows=sum(batch.rows),
            wait_us=10,
            run_us=1_000,
            members=members,
            model=batch.model,
            version=batch.version,
        )
        self._complete(done)

    def serve(self, count: int, timeout_s: float = WAIT_S) -> list[Batch]:
        """Run batches until ``count`` requests are answered."""
        batches: list[Batch] = []
        while sum(len(batch.ids) for batch in batches) < count:
            batch = self.next_batch(timeout_s)
            batches.append(batch)
            self.finish(batch)
        return batches

    def crash(self) -> None:
        """Fall silent without a word."""
        self.stopped.set()
        self._thread.join()

    def _look(self) -> None:
        self._orders.extend(map(decode_order, self._reader.read(100, 0.05)))

    def _complete(self, completion: Completion) -> int:
        ended: list[Delivery] = []
        self._producer.produce(
            self._topics.completions,
            self.lane,
            encode_completion(completion),
            on_delivery=ended.append,
        )
        self._producer.flush(10)
        assert ended[0].error is None
        return ended[0].offset

    def _beat(self) -> None:
        heartbeat = Heartbeat(
            role=Role.GPU_WORKER,
            slot=self.slot,
            instance=self._instance,
            state=ServiceState.READY,
            incarnation=self.incarnation,
            lane=self.lane,
            models=(f"{MODEL}/1",),
        )
        producer = KafkaProducer(self._pool.connection)
        while not self.stopped.wait(0.25):
            producer.produce(self._topics.status, 0, encode_json(heartbeat))
            producer.poll(0)


class Former:
    """A batch former's process."""

    def __init__(self, pool: Pool, slot: int = 0, **settings: str) -> None:
        bus = pool.bus
        environment = {
            "HEADRACE_BUS__BOOTSTRAP_SERVERS": bus.bootstrap_servers,
            "HEADRACE_BUS__PREFIX": bus.prefix,
            "HEADRACE_BUS__LANES": str(bus.lanes),
            "HEADRACE_BUS__WORKER_SLOTS": str(bus.worker_slots),
            "HEADRACE_BUS__INGRESS_SLOTS": str(bus.ingress_slots),
            "HEADRACE_BUS__SESSION_MS": str(bus.session_ms),
            "HEADRACE_LOG__FORMAT": "json",
            **settings,
        }
        self.events: list[dict[str, object]] = []
        self.started = self.admin_heard = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "services.batch_former", "--slot", str(slot)],
            env={**os.environ, **environment},
            stderr=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def heard(self, event: str, **facts: object) -> dict[str, object]:
        """The first log event of this name with these facts, once it is there."""

        def look() -> dict[str, object] | None:
            for found in list(self.events):
                if found["event"] == event and facts.items() <= found.items():
                    return found
            assert self.process.poll() is None, self.events[-3:]
            return None

        return until(f"{event} {facts} in {self.events[-3:]}", look)

    def admin(self) -> str:
        return str(self.heard("admin.listening")["url"])

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.wait(5)

    def stop(self) -> int:
        """Ask it to drain; its exit code."""
        self.process.terminate()
        return self.wait(20)

    def wait(self, timeout_s: float) -> int:
        code = self.process.wait(timeout_s)
        self._thread.join(5)
        return code

    def _listen(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                try:
                    self.events.append(json.loads(line))
                    if self.events[-1]["event"] == "admin.listening":
                        self.admin_heard = time.monotonic()
                except ValueError:
                    self.events.append({"event": "unreadable", "text": line})
