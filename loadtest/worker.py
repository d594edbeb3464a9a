"""What a batch costs its worker beside the model: CPU of the process, by rows.

    .venv/bin/python -m loadtest.worker [--rows 32] [--batches 1000] [--every-ms 6]

The worker's own threads fetch, run and reply, between a log that answers at once and
a model that costs nothing. Members are from one ingress, with tensors of 256 bytes in
and 40 out. Batches come at a pace, so that every thread sleeps in between and wakes up
cold, as in the platform; with ``--every-ms 0`` as fast as they go, one behind the one
that runs. What the client of Apache Kafka spends on its own threads is not in it.
"""

from __future__ import annotations

import argparse
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue

import numpy as np

from headrace.broker import (
    Delivery,
    Headers,
    LogRange,
    ProducerThread,
    Record,
    TopicPartition,
)
from headrace.clock import SystemClock
from headrace.delivery import VersionFitness, WorkerCore, WorkerLimits
from headrace.delivery.worker_events import RepliesEnded, ReplyStoring, WorkerEvent
from headrace.domain import (
    Datatype,
    Dispatch,
    Manifest,
    Priority,
    ReleaseReason,
    ReplyAddress,
    Request,
    ServedVersion,
    Signature,
    Source,
    TensorSpec,
)
from headrace.lifecycle import DrainFlag, Health, Pulse, configure_interpreter
from headrace.runtime import Array, settle_layout
from headrace.telemetry import (
    LogLevel,
    LogSettings,
    MetricsRegistry,
    ProcessMetrics,
    WorkerMetrics,
    configure_logs,
    get_log,
)
from headrace.wire import (
    PROTOBUF_HEADERS,
    BatchStamp,
    Sync,
    compatibility,
    encode_batch,
    encode_sync,
)
from services.gpu_worker.claims import WorkerClaims
from services.gpu_worker.control import ControlWriter
from services.gpu_worker.fetching import Fetcher
from services.gpu_worker.fitness import FitnessWatch
from services.gpu_worker.jobs import ReadyModels, Runnable
from services.gpu_worker.linked import Linked
from services.gpu_worker.loop import Inbox, Loop, Parts, Surroundings
from services.gpu_worker.orders import BatchFetched, OrderIntake
from services.gpu_worker.replying import Replier
from services.gpu_worker.running import Runner

ROWS = (1, 8, 32, 64)
FLOATS_IN, FLOATS_OUT = 64, 10
BATCHES_AHEAD = 2
BEFORE_DONES = 2
"""A join and a report are written before the first done."""

BYTES_MAX = 1_000_000
FORMER, NAME = "f" * 32, "e" * 32
JOIN = 7
BATCHES, COMPLETIONS, REPLIES = "headrace.batches", "headrace.completions", "r"
SIGNATURE = Signature(
    (TensorSpec("input", Datatype.FP32, (-1, FLOATS_IN)),),
    (TensorSpec("output", Datatype.FP32, (-1, FLOATS_OUT)),),
)
SERVED = ServedVersion(
    "tiny",
    "1",
    SIGNATURE,
    "",
    max(ROWS),
    {"input": 0, "output": 0},
    None,
    None,
    {},
    frozenset({0}),
    frozenset(),
)
DIMENSIONS = {"input": ("batch", ""), "output": ("batch", "")}


class NoModel:
    """Answers at once."""

    signature = SIGNATURE
    dimensions = DIMENSIONS
    platform = provider = "none"

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        return [inputs["input"][:, :FLOATS_OUT]]

    def stop(self) -> None: ...
    def shrink(self) -> None: ...
    def rebuild(self) -> None: ...
    def close(self) -> None: ...


class Orders:
    """A reader of what was put, and nothing else."""

    def __init__(self) -> None:
        self._values: SimpleQueue[bytes] = SimpleQueue()
        self._offset = -1

    def put(self, value: bytes) -> None:
        self._values.put(value)

    def read(self, records_max: int, timeout_s: float) -> list[Record]:
        values: list[bytes] = []
        try:
            values.append(self._values.get(timeout=timeout_s))
            while len(values) < records_max:
                values.append(self._values.get_nowait())
        except Empty:
            pass
        return list(map(self._record, values))

    def _record(self, value: bytes) -> Record:
        self._offset += 1
        headers = list(PROTOBUF_HEADERS)
        return Record(BATCHES, 0, self._offset, 0, None, value, headers)

    def assign(self, positions: Mapping[TopicPartition, int]) -> None: ...
    def unassign(self, partitions: Sequence[TopicPartition]) -> None: ...
    def pause(self, partitions: Sequence[TopicPartition]) -> None: ...
    def resume(self, partitions: Sequence[TopicPartition]) -> None: ...
    def close(self) -> None: ...
    def restart(self) -> None: ...

    def log_ranges(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, LogRange]:
        return {}

    def offsets_since(
        self, partitions: Sequence[TopicPartition], since_us: int, timeout_s: float
    ) -> dict[TopicPartition, int]:
        return {}

    def positions(self) -> dict[TopicPartition, int]:
        return {}

    def log_range(self, partition: TopicPartition, timeout_s: float) -> LogRange:
        return LogRange(0, 0)


class Acks:
    """A producer whose records are acked at once, by the thread that polls."""

    def __init__(self, produced: Callable[[], None] = lambda: None) -> None:
        self._produced = produced
        self._acked: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._offset = JOIN

    def produce(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> None:
        assert on_delivery is not None
        delivery = Delivery(topic, partition, self._offset, 0, None)
        self._offset += 1
        self._acked.put(partial(on_delivery, delivery))
        self._produced()

    def poll(self, timeout_s: float) -> int:
        ran = 0
        try:
            acked = self._acked.get(timeout=timeout_s) if timeout_s else None
            while True:
                if acked is not None:
                    acked()
                    ran += 1
                acked = self._acked.get_nowait()
        except Empty:
            return ran

    def flush(self, timeout_s: float) -> int:
        return 0

    @property
    def is_holding(self) -> bool:
        return False


class Worker:
    """A worker that has joined and knows its former, and the former's hand."""

    def __init__(self) -> None:
        clock, log = SystemClock(), get_log()
        self.orders = Orders()
        self.written = 0
        self._more: Callable[[], None] = lambda: None
        registry = MetricsRegistry()
        pulse = Pulse(clock)
        claims = WorkerClaims(
            None,
            inline_bytes_max=BYTES_MAX,
            stored_bytes_max=BYTES_MAX,
            timeout_ms=1000,
            came=print,
        )
        intake = OrderIntake(
            find=_a_model().find,
            prefetch=claims.prefetch,
            store_wait_us=claims.wait_us,
            to_mono=lambda log_us: log_us,
            clock=clock,
        )
        control, replies = Acks(self._ended), Acks()
        replier = Replier(
            replies, self._replies_told, claims, batch_bytes_max=BYTES_MAX
        )
        self.acks = ProducerThread("replies", replies, replier.tell_acked)
        self.fetcher = Fetcher(
            self.orders,
            TopicPartition(BATCHES, 0),
            put=self._take_order,
            orders=intake,
            clock=clock,
            log=log,
        )
        self.runner = Runner(clock, payload_bytes_max=BYTES_MAX)
        linked = Linked(
            None, "", put=print, orders=intake, order_bytes_max=BYTES_MAX, log=log
        )
        parts = Parts(
            WorkerCore(lane=0),
            self.fetcher,
            linked,
            self.runner,
            replier,
            ControlWriter(control, COMPLETIONS, 0, ProcessMetrics(registry)),
            FitnessWatch(print, clock, log),
        )
        around = Surroundings(
            0, "", Health(pulse, {}), pulse, clock, log, WorkerMetrics(registry)
        )
        self.loop = Loop(Inbox(), parts, around)

    def _take_order(self, order: WorkerEvent | BatchFetched) -> None:
        self.loop.take_order(order)

    def _replies_told(self, told: Sequence[RepliesEnded | ReplyStoring]) -> None:
        self.loop.replies_told(told)

    def _ended(self) -> None:
        self.written += 1
        self._more()

    def run(self, values: Sequence[bytes], every_s: float) -> float:
        """CPU seconds of the process from the first batch to the last done."""
        done = threading.Event()
        drain = DrainFlag()
        self.runner.start(self.loop.run_ended)
        self.acks.start()
        self.fetcher.start()
        loop = threading.Thread(target=self.loop.run, args=(drain,))
        loop.start()
        while self.loop.vitals.incarnation is None:
            time.sleep(0.01)
        self.orders.put(encode_sync(Sync(0, 1, FORMER, 1, JOIN)))
        coming = iter(values)

        def more() -> None:
            value = next(coming, None)
            if value is not None:
                self.orders.put(value)

        def ended() -> None:
            if self.written == len(values) + BEFORE_DONES:
                done.set()
            elif not every_s:
                more()

        self._more = ended
        configure_interpreter()
        begun, due = time.process_time(), time.monotonic()
        for _ in values if every_s else range(BATCHES_AHEAD):
            more()
            due += every_s
            time.sleep(max(due - time.monotonic(), 0))
        assert done.wait(60), "a batch did not end"
        spent = time.process_time() - begun
        drain.set()
        loop.join()
        self.acks.stop(0)
        return spent


def _a_model() -> ReadyModels:
    ready = ReadyModels()
    layout = settle_layout(SIGNATURE, DIMENSIONS, Manifest())
    fitness = VersionFitness(WorkerLimits(), max(ROWS))
    ready.put(Runnable(SERVED.model, SERVED.version, NoModel(), layout, fitness))
    return ready


def _requests(rows: int) -> tuple[Request, ...]:
    """Members with one row each."""
    raw = np.zeros(FLOATS_IN, np.float32).tobytes()
    key = compatibility(SERVED, [(1, FLOATS_IN)], [raw])
    return tuple(
        Request(
            key=str(member),
            id=secrets.token_hex(16),
            tenant="default",
            model=SERVED.model,
            version=SERVED.version,
            shape=key.shape,
            rows=1,
            length=key.length,
            priority=Priority.STANDARD,
            arrived_us=0,
            deadline_us=None,
            reply_to=ReplyAddress(REPLIES, 0),
            source=Source("headrace.requests.tiny", 0, 1_000_000 + member),
            tensors=(raw,),
            size_bytes=len(raw),
        )
        for member in range(rows)
    )


def batches(rows: int, count: int) -> list[bytes]:
    """The orders of so many batches."""
    stamp = BatchStamp(0, 1, FORMER, JOIN, 1_000_000, None)
    value = encode_batch(
        Dispatch(
            batch=NAME,
            slot=0,
            requests=_requests(rows),
            padded_rows=rows,
            predicted_us=1000,
            predicted_p99_us=1000,
            latest_start_us=None,
            reason=ReleaseReason.FULL,
        ),
        stamp,
        SERVED,
    )
    name = bytes.fromhex(NAME)
    return [value.replace(name, secrets.token_bytes(16)) for _ in range(count)]


def main() -> None:
    configure_logs(LogSettings(level=LogLevel.WARNING), service="worker")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, action="append", help="of a batch")
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--every-ms", type=float, default=6, help="a batch")
    arguments = parser.parse_args()
    for rows in arguments.rows or ROWS:
        values = batches(rows, arguments.batches)
        spent_us = Worker().run(values, arguments.every_ms / 1e3) / len(values) * 1e6
        print(
            f"{rows:3} rows: {spent_us:5.0f} µs a batch, {spent_us / rows:5.1f} a row"
        )


if __name__ == "__main__":
    main()
