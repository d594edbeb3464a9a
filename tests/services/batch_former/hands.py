"""Workers moved by hand, and formers as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from uuid import uuid4

from headrace.broker import Delivery, KafkaProducer, KafkaReader, TopicPartition
from headrace.domain import (
    Completion,
    Done,
    DoneMember,
    HeldBatch,
    Joined,
    MemberStatus,
    Reported,
)
from headrace.wire import (
    Batch,
    Heartbeat,
    Role,
    ServiceState,
    Sync,
    decode_order,
    encode_completion,
    encode_json,
)
from tests.services.batch_former.pool import MODEL, WAIT_S, Pool, log_range, until


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

    def __init__(
        self,
        pool: Pool,
        slot: int = 0,
        *,
        module: str = "services.batch_former",
        **settings: str,
    ) -> None:
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
            [sys.executable, "-m", module, "--slot", str(slot)],
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
        self.wait(WAIT_S)

    def stop(self) -> int:
        """Ask it to drain; its exit code."""
        self.process.terminate()
        return self.wait(WAIT_S)

    def wait(self, timeout_s: float) -> int:
        code = self.process.wait(timeout_s)
        self._thread.join(WAIT_S)
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
