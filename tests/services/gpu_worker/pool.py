"""A pool without a former: worker processes, and a hand that writes their orders."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from confluent_kafka.admin import AdminClient

from headrace.broker import (
    KafkaAdmin,
    KafkaProducer,
    KafkaReader,
    Record,
    TopicPartition,
)
from headrace.domain import (
    Completion,
    Dispatch,
    Done,
    Joined,
    ModelState,
    Priority,
    ReleaseReason,
    ReplyAddress,
    Reported,
    Request,
    ServedVersion,
    Source,
)
from headrace.lifecycle import BusSettings
from headrace.registry import Catalog
from headrace.wire import (
    PROTOBUF_HEADERS,
    Announcement,
    Answer,
    BatchStamp,
    NewTopic,
    Replies,
    Sync,
    base_topics,
    compatibility,
    decode_completion,
    decode_json,
    decode_replies,
    encode_batch,
    encode_sync,
    parse_announcement_key,
)
from tests.freezing import freeze

FORMER = "f" * 32
WAIT_S = 40.0
T = TypeVar("T")


class Log:
    """Records of one partition, from its start, as far as they are read."""

    def __init__(self, bus: BusSettings, topic: str, partition: int) -> None:
        self._reader = KafkaReader(bus.connection("test"))
        place = TopicPartition(topic, partition)
        # The topic is new: its start is 0, and who asks may hear of no leader yet.
        self._reader.assign({place: 0})
        self.records: list[Record] = []

    def read(self, timeout_s: float = 0.05) -> None:
        self.records += self._reader.read(1000, timeout_s)

    def close(self) -> None:
        self._reader.close()


class Pool:
    def __init__(self, bootstrap: str, prefix: str, folder: Path) -> None:
        self.bus = BusSettings(
            bootstrap_servers=bootstrap, prefix=prefix.rstrip("."), worker_slots=3
        )
        self.topics = self.bus.topics
        self.folder = folder
        self.models = folder / "models"
        self.models.mkdir()
        connection = self.bus.connection("test")
        KafkaAdmin(connection).create_topics(base_topics(self.topics, self.bus), 30)
        self.producer = KafkaProducer(connection)
        self.completions = Log(self.bus, self.topics.completions, 0)
        self.control = Log(self.bus, self.topics.control_models, 0)
        self.replies = Log(self.bus, self.topics.replies, 0)
        self.workers: list[subprocess.Popen[bytes]] = []
        self.incarnations: dict[int, int] = {}

    def close(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
        for log in (self.completions, self.control, self.replies):
            log.close()

    # -- workers

    def start(self, slot: int = 0, **settings: str) -> subprocess.Popen[bytes]:
        """Start a worker and wait for its join."""
        joins = self._joins(slot)
        process = self.launch(slot, **settings)
        self.until(lambda: len(self._joins(slot)) > len(joins), process)
        self.incarnations[slot] = self._joins(slot)[-1]
        return process

    def launch(self, slot: int = 0, **settings: str) -> subprocess.Popen[bytes]:
        environment = {
            "HEADRACE_BUS__BOOTSTRAP_SERVERS": self.bus.bootstrap_servers,
            "HEADRACE_BUS__PREFIX": self.bus.prefix,
            "HEADRACE_BUS__WORKER_SLOTS": "3",
            "HEADRACE_MODELS__FOLDER": str(self.models),
            "HEADRACE_MODELS__SCAN_MS": "100",
            "HEADRACE_MODELS__UNLOAD_IDLE_S": "1",
            "HEADRACE_DEVICE__PROVIDER": "cpu",
        } | {f"HEADRACE_{name.upper()}": value for name, value in settings.items()}
        path = self.folder / f"worker-{slot}-{len(self.workers)}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "services.gpu_worker", "--slot", str(slot)],
                env=os.environ | environment,
                stderr=log,
            )
        self.workers.append(process)
        return process

    def end(self, process: subprocess.Popen[bytes], number: signal.Signals) -> int:
        process.send_signal(number)
        return process.wait(WAIT_S)

    @staticmethod
    @contextmanager
    def still(process: subprocess.Popen[bytes]) -> Iterator[None]:
        """The worker stands still: what is written meanwhile, it finds together."""
        freeze(process.pid)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def worker_log(self, slot: int = 0) -> str:
        paths = sorted(self.folder.glob(f"worker-{slot}-*.log"))
        return "".join(path.read_text() for path in paths)

    # -- what they say

    def until(
        self,
        found: Callable[[], T],
        process: subprocess.Popen[bytes] | None = None,
        timeout_s: float = WAIT_S,
    ) -> T:
        """The first true value of ``found``, asked while records come in."""
        deadline = time.monotonic() + timeout_s
        while True:
            for log in (self.completions, self.control, self.replies):
                log.read(0.01)
            value = found()
            if value:
                return value
            if process is not None and process.poll() is not None:
                raise AssertionError(f"ended {process.returncode}: {self.worker_log()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {timeout_s} s: {self.worker_log()}")

    def completed(self) -> list[Completion]:
        return [decode_completion(record) for record in self.completions.records]

    def _joins(self, slot: int) -> list[int]:
        return [
            record.offset
            for record in self.completions.records
            if isinstance(said := decode_completion(record), Joined)
            and said.slot == slot
        ]

    def announced(self, model: str, version: str = "1", slot: int = 0) -> list[Any]:
        """Every announcement of a version by a slot; None: a tombstone."""
        return [
            None if record.value is None else decode_json(Announcement, record)
            for record in self.control.records
            if parse_announcement_key(record.key) == (model, version, slot)
        ]

    def wait_said(self, state: ModelState, model: str, times: int) -> Any:
        """The announcement by which version 1 reached ``state`` for the ``times``-th
        time, also where it has left it again."""

        def found() -> list[Any]:
            said = [one for one in self.announced(model) if one and one.state is state]
            return said[times - 1 : times]

        return self.until(found)[0]

    def wait_state(
        self, state: ModelState | None, model: str, version: str = "1", slot: int = 0
    ) -> Any:
        """The announcement by which the version reached ``state``; None: its
        tombstone was read."""

        def reached() -> tuple[Any] | None:
            said = self.announced(model, version, slot)
            if not said or (said[-1].state if said[-1] else None) != state:
                return None
            return (said[-1],)

        return self.until(reached)[0]

    def served(self, model: str, version: str = "1") -> ServedVersion:
        self.wait_state(ModelState.READY, model, version)
        return self.known(model, version)

    def known(self, model: str, version: str = "1") -> ServedVersion:
        catalog = Catalog()
        for record in self.control.records:
            if record.value is not None:
                catalog.apply(decode_json(Announcement, record))
        return catalog.lookup(model, version)

    def answers(self) -> list[Answer]:
        replies = [decode_replies(record) for record in self.replies.records]
        return [answer for each in replies if each for answer in each.answers]

    def reply_envelopes(self) -> list[Replies]:
        replies = [decode_replies(record) for record in self.replies.records]
        return [each for each in replies if each]

    def done(self, batch: str) -> Done:
        def found() -> Done | None:
            return next(
                (
                    each
                    for each in self.completed()
                    if isinstance(each, Done) and each.batch == batch
                ),
                None,
            )

        return self.until(found)

    def create(self, topic: NewTopic) -> None:
        KafkaAdmin(self.bus.connection("test")).create_topics([topic], 30)

    def make_anew(self, topic: str) -> None:
        """Delete the topic and make it again, empty."""
        admin = AdminClient({"bootstrap.servers": self.bus.bootstrap_servers})
        admin.delete_topics([topic])[topic].result(10)
        self.until(lambda: topic not in admin.list_topics(timeout=10).topics)
        for each in base_topics(self.topics, self.bus):
            if each.name == topic:
                self.create(each)

    def wait_ready(self, slot: int = 0) -> None:
        """Until the worker answers ``/readyz`` with 200."""
        address = self.until(
            lambda: re.findall(r'"url":"(http[^"]*)"', self.worker_log(slot))
        )[-1]

        def ready() -> bool:
            try:
                with urllib.request.urlopen(f"{address}/readyz") as answer:
                    return answer.status == 200
            except urllib.error.HTTPError:
                return False

        self.until(ready)

    # -- what they are told

    @staticmethod
    def unanswered(request: Request) -> Request:
        return msgspec.structs.replace(request, reply_to=None)

    @staticmethod
    def renamed(served: ServedVersion, *, version: str) -> ServedVersion:
        return msgspec.structs.replace(served, version=version)

    def request(
        self,
        served: ServedVersion,
        tensors: Sequence[tuple[tuple[int, ...], bytes]],
        *,
        id_: str = "a",
        reply_to: ReplyAddress | None = None,
        offset: int = 0,
    ) -> Request:
        shapes = [shape for shape, _ in tensors]
        values = [value for _, value in tensors]
        key = compatibility(served, shapes, values)
        return Request(
            key=id_,
            id=id_,
            tenant="default",
            model=served.model,
            version=served.version,
            shape=key.shape,
            rows=key.rows,
            length=key.length,
            priority=Priority.STANDARD,
            arrived_us=0,
            deadline_us=None,
            reply_to=reply_to or ReplyAddress(self.topics.replies, 0),
            source=Source(self.topics.requests(served.model), 2, offset),
            tensors=tuple(values),
            size_bytes=sum(map(len, values)),
        )

    def send(
        self,
        served: ServedVersion,
        requests: Sequence[Request],
        *,
        slot: int = 0,
        epoch: int = 1,
        former: str = FORMER,
        incarnation: int | None = None,
        lane: int = 0,
        latest_start_us: int | None = None,
        copies: int = 1,
    ) -> str:
        """Write a batch of these requests, in so many records; its uuid."""
        batch = secrets.token_hex(16)
        dispatch = Dispatch(
            batch=batch,
            slot=slot,
            requests=tuple(requests),
            padded_rows=sum(request.rows for request in requests),
            predicted_us=1000,
            predicted_p99_us=1000,
            latest_start_us=None,
            reason=ReleaseReason.IDLE,
        )
        stamp = BatchStamp(
            lane,
            epoch,
            former,
            self.incarnations[slot] if incarnation is None else incarnation,
            1_000_000,
            latest_start_us,
        )
        value = encode_batch(dispatch, stamp, served)
        for _ in range(copies):
            self.write(slot, value)
        return batch

    def sync(self, k: int, *, slot: int = 0, epoch: int = 1) -> Reported:
        """Ask the slot what it holds; its report."""
        self.ask(k, slot=slot, epoch=epoch)
        return self.report(k, slot=slot, epoch=epoch)

    def ask(self, k: int, *, slot: int = 0, epoch: int = 1) -> None:
        self.write(slot, encode_sync(Sync(0, epoch, FORMER, k)))

    def report(self, k: int, *, slot: int = 0, epoch: int = 1) -> Reported:
        def found() -> Reported | None:
            return next(
                (
                    each
                    for each in self.completed()
                    if isinstance(each, Reported)
                    and (each.slot, each.epoch, each.k) == (slot, epoch, k)
                ),
                None,
            )

        return self.until(found)

    def write(self, slot: int, value: bytes) -> None:
        self.producer.produce(
            self.topics.batches, slot, value, headers=PROTOBUF_HEADERS
        )
        assert self.producer.flush(10) == 0


@contextmanager
def a_pool(bootstrap: str, prefix: str, folder: Path) -> Iterator[Pool]:
    pool = Pool(bootstrap, prefix, folder)
    try:
        yield pool
    finally:
        pool.close()
