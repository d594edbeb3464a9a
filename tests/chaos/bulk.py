"""Bulk items while faults strike: published by hand, and the end of each read back."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from uuid import uuid4

from headrace.broker import (
    Delivery,
    KafkaAdmin,
    KafkaConnection,
    KafkaProducer,
    KafkaReader,
    Record,
    TopicPartition,
)
from headrace.clock import wall_us
from headrace.domain import PayloadRef, Priority
from headrace.errors import BusError, PayloadLost, StoreUnavailable
from headrace.lifecycle import BusSettings
from headrace.payloads import PayloadStore
from headrace.wire import results_topic
from headrace.wire._generated.open_inference_pb2 import (
    ModelInferRequest,
    ModelInferResponse,
)
from headrace.wire.payloads import dataref_bytes, object_name, read_dataref
from tests.chaos.clients import INLINE_BYTES_MAX, MODELS, value_of

__all__ = ["Bulk"]

Headers = list[tuple[str, bytes | None]]

TENANT = "chaos"
AHEAD_MAX = 1_000
"""Items on their way; the rest is published as they end."""

ENDS_WITHIN_S = 90.0
"""After the last fault, all of the items."""

SETUP_S = 30.0
AGAIN_S = 0.05
BATCH = 100


class Bulk:
    """``count`` items, from ``start`` to ``finish``. An item is accepted once its
    record is acked; until then it is published again."""

    def __init__(
        self,
        bootstrap_servers: str,
        store: PayloadStore,
        seed: int,
        count: int,
        lanes: int,
    ) -> None:
        self._store = store
        self.count = count
        self.repeated = 0
        """Ends that came again, the same as before."""
        self._lanes = lanes
        bus = BusSettings(bootstrap_servers=bootstrap_servers, lanes=lanes)
        self._topics = bus.topics
        connection = KafkaConnection(bootstrap_servers, "chaos-bulk")
        admin = KafkaAdmin(connection)
        topic = results_topic(bus.topics, TENANT, f"bulk-{seed}-{time.time_ns()}", bus)
        admin.create_topics([topic], SETUP_S)
        self._results = topic.name
        self._producer = KafkaProducer(connection)
        self._reader = KafkaReader(connection)
        self._reader.assign(
            {
                TopicPartition(topic.name, n): 0
                for n in range(admin.partitions(topic.name, SETUP_S))
            }
        )
        letters = [
            TopicPartition(bus.topics.dead_letters(model), 0) for model in MODELS
        ]
        for letter, log in self._reader.log_ranges(letters, SETUP_S).items():
            self._reader.assign({letter: log.end})
        self._waiting = list(range(count, 0, -1))
        self._accepted: set[int] = set()
        self._ends: dict[int, set[str]] = defaultdict(set)
        self._under_way = 0
        self._ends_by: float | None = None
        self._thread = threading.Thread(target=self._work, name="bulk")

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Wait until every item has ended, or should have."""
        self._ends_by = time.monotonic() + ENDS_WITHIN_S
        self._thread.join()
        self._reader.close()

    def breaches(self) -> Iterator[str]:
        for item in range(1, self.count + 1):
            if item not in self._accepted:
                yield f"bulk item {item}: the log never took it"
                continue
            ends = self._ends[item] - {"dead letter"}
            if not self._ends[item]:
                yield f"bulk item {item}: neither a result nor a dead letter"
            elif len(ends) > 1 or ends - {"right"}:
                yield f"bulk item {item}: {', '.join(sorted(ends))}"

    def tally(self) -> dict[str, int]:
        """How many ended in each way; a result counts before a dead letter."""
        ways = Counter(max(ends) for ends in self._ends.values() if ends)
        return {**ways, "repeated": self.repeated}

    def _work(self) -> None:
        while not self._is_over():
            self._publish()
            self._producer.poll(0)
            # A reader that has lost the broker says so, and goes on by itself.
            with suppress(BusError):
                for record in self._reader.read(BATCH, 0.02):
                    self._note(record)

    def _is_over(self) -> bool:
        if self._ends_by is None:
            return False
        ended = sum(map(bool, self._ends.values()))
        return ended == self.count or time.monotonic() > self._ends_by

    def _publish(self) -> None:
        for _ in range(BATCH):
            on_their_way = self._under_way + len(self._accepted) - len(self._ends)
            if not self._waiting or on_their_way >= AHEAD_MAX:
                return
            item = self._waiting.pop()
            model = MODELS[item % len(MODELS)]
            self._under_way += 1
            try:
                headers, body = self._written(item, model)
                self._producer.produce(
                    self._topics.requests(model),
                    self._topics.request_partition(item % self._lanes, Priority.BULK),
                    body,
                    headers=headers,
                    on_delivery=partial(self._delivered, item),
                )
            except (BusError, StoreUnavailable):
                self._under_way -= 1
                self._waiting.append(item)
                return

    def _written(self, item: int, model: str) -> tuple[Headers, bytes]:
        """Headers and body of its record; what is too large for one is stored."""
        value = value_of(item, model)
        request = ModelInferRequest(model_name=model)
        name = "INT64" if value.dtype.kind == "i" else "FP32"
        request.inputs.add(name="X", datatype=name, shape=value.shape)
        headers: Headers = [
            ("ce_id", str(item).encode()),
            ("inf-tenant", TENANT.encode()),
            ("reply-topic", self._results.encode()),
        ]
        if value.nbytes > INLINE_BYTES_MAX:
            own = object_name(wall_us(), TENANT, uuid4().hex)
            ref = self._store.write(own, [value.tobytes()])
            headers.append(("inf-dataref", dataref_bytes(ref)))
        else:
            request.raw_input_contents.append(value.tobytes())
        return headers, request.SerializeToString()

    def _delivered(self, item: int, delivery: Delivery) -> None:
        self._under_way -= 1
        if delivery.error is None:
            self._accepted.add(item)
        else:
            self._waiting.append(item)

    def _note(self, record: Record) -> None:
        headers = dict(record.headers)
        is_letter = record.topic != self._results
        if is_letter and headers.get("inf-tenant") != TENANT.encode():
            return
        item = int(headers["ce_id"] or b"0")
        way = self._way(item, record, headers)
        if way in self._ends[item]:
            self.repeated += 1
        self._ends[item].add(way)

    def _way(self, item: int, record: Record, headers: dict[str, bytes | None]) -> str:
        if record.topic != self._results:
            return "dead letter"
        if headers["inf-status"] != b"ok":
            return f"error {(headers['inf-reason'] or b'').decode()}"
        response = ModelInferResponse.FromString(record.value or b"")
        value = value_of(item, MODELS[item % len(MODELS)])
        ref = read_dataref(headers)
        is_stored = value.nbytes > INLINE_BYTES_MAX
        if (ref is not None) is not is_stored:
            return "in the wrong place"
        contents = list(response.raw_output_contents) if ref is None else self._get(ref)
        return "right" if contents == [value.tobytes()] else "wrong"

    def _get(self, ref: PayloadRef) -> list[bytes]:
        """What is stored; again and again where the store is away."""
        gives_up_at = time.monotonic() + SETUP_S
        while True:
            try:
                return [bytes(self._store.read(ref))]
            except PayloadLost:
                return []
            except StoreUnavailable:
                if time.monotonic() > gives_up_at:
                    raise
                time.sleep(AGAIN_S)
