"""An ingress process, and the rest of the pipeline as the ingress sees it: records on
the real topics, answered by a thread of the test in place of former and worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import numpy as np

from headrace.broker import (
    KafkaAdmin,
    KafkaConnection,
    KafkaProducer,
    KafkaReader,
    TopicPartition,
)
from headrace.domain import (
    CancelRead,
    Dispatch,
    Load,
    ModelState,
    Reason,
    ReleaseReason,
    Request,
    RequestRead,
    ServedVersion,
    Terminal,
)
from headrace.lifecycle import BusSettings
from headrace.wire import (
    ROWS,
    Announcement,
    Batch,
    BatchedOutput,
    BatchStamp,
    Heartbeat,
    LaneLoad,
    Record,
    RequestDecoder,
    Role,
    RunFacts,
    ServiceState,
    announcement_key,
    base_topics,
    decode_order,
    encode_batch,
    encode_json,
    encode_refusals,
    encode_replies,
    model_topics,
)

ROOT = Path(__file__).parents[3]
TIMES = RunFacts("0/7", wait_us=10, input_us=20, run_us=300, output_us=40)
BEAT_S = 0.1
FORMER, WORKER = uuid4().hex, uuid4().hex
CLIENT_WAITS_MS = 20_000
"""For an answer, or for the end of a connection."""
HASTE_MS = 700


class Pipeline:
    """Echoes every request, but for models whose name asks for something else:
    ``silent`` never answers, ``twice`` answers twice, ``failing`` fails, ``log`` is
    the logarithm."""

    def __init__(self, bootstrap_servers: str, prefix: str) -> None:
        self.bus = BusSettings(bootstrap_servers=bootstrap_servers, prefix=prefix)
        self.topics = self.bus.topics
        self.requests: list[Request] = []
        self.cancels: list[CancelRead] = []
        self.headers: dict[str, dict[str, bytes | None]] = {}
        self.former_state: ServiceState | None = ServiceState.READY
        """None: no heartbeats of a former."""
        self.worker_beats = True
        connection = KafkaConnection(bootstrap_servers, "test-pipeline")
        self._admin = KafkaAdmin(connection)
        self._admin.create_topics(base_topics(self.topics, self.bus), 30)
        self._producer = KafkaProducer(connection)
        self._reader = KafkaReader(connection)
        self._served: dict[tuple[str, str], ServedVersion] = {}
        self._decoder = RequestDecoder(
            self.topics,
            version_of=lambda model, version: self._served[model, version],
            partitions_of=lambda _topic: self.bus.ingress_slots,
            to_mono=lambda log_us: log_us,
        )
        self._stopped = threading.Event()
        self._new_topics: list[str] = []
        self._threads = [
            threading.Thread(target=self._serve, daemon=True),
            threading.Thread(target=self._beat, daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        self._reader.close()

    def announce(
        self, served: ServedVersion, state: ModelState = ModelState.READY, **more: Any
    ) -> None:
        """Say that worker slot 0 has this version."""
        if (served.model, served.version) not in self._served:
            topics = model_topics(self.topics, served.model, self.bus)
            self._admin.create_topics(topics, 30)
            self._served[served.model, served.version] = served
            self._new_topics.append(self.topics.requests(served.model))
        announcement = Announcement(
            served.model,
            served.version,
            0,
            state,
            signature=served.signature,
            sha256=served.sha256,
            max_batch=served.max_batch,
            batch_axes=served.batch_axes,
            padding=served.padding,
            latency_objective_ms=None
            if served.latency_objective_us is None
            else served.latency_objective_us / 1000,
            run_us=served.run_us,
            **more,
        )
        self._write_announcement(served, encode_json(announcement))

    def retire(self, served: ServedVersion) -> None:
        self._write_announcement(served, None)

    def _write_announcement(self, served: ServedVersion, value: bytes | None) -> None:
        key = announcement_key(served.model, served.version, 0)
        self._producer.produce(self.topics.control_models, 0, value, key=key)
        assert self._producer.flush(10) == 0

    def _beat(self) -> None:
        load = LaneLoad(
            lane=0,
            epoch=1,
            active=True,
            load=Load(slots=1, free_us=[0]),
            request_us=0,
            control_us=0,
            response_us=0,
        )
        while not self._stopped.wait(BEAT_S):
            beats = []
            if self.worker_beats:
                beats.append(
                    Heartbeat(Role.GPU_WORKER, 0, WORKER, ServiceState.READY, lane=0)
                )
            if self.former_state is not None:
                beats.append(
                    Heartbeat(
                        Role.BATCH_FORMER, 0, FORMER, self.former_state, lanes=(load,)
                    )
                )
            for beat in beats:
                self._producer.produce(self.topics.status, 0, encode_json(beat))
            self._producer.poll(0)

    def _serve(self) -> None:
        while not self._stopped.is_set():
            while self._new_topics:
                topic = self._new_topics.pop()
                self._reader.assign(
                    {TopicPartition(topic, n): 0 for n in range(4 * self.bus.lanes)}
                )
            groups: dict[tuple[str, str, str], list[Request]] = defaultdict(list)
            for record in self._reader.read(1000, 0.02):
                read = self._decoder.decode(record)
                if isinstance(read, CancelRead):
                    self.cancels.append(read)
                    continue
                assert isinstance(read, RequestRead), read
                request = read.request
                self.requests.append(request)
                self.headers[request.id] = dict(record.headers)
                groups[request.model, request.version, request.shape].append(request)
            for (model, version, _), requests in groups.items():
                self._answer(self._served[model, version], requests)
            self._producer.poll(0)

    def _answer(self, served: ServedVersion, requests: list[Request]) -> None:
        copies = {"silent": 0, "twice": 2}.get(served.model, 1)
        if not copies:
            return
        by_address = defaultdict(list)
        for request in requests:
            by_address[request.reply_to].append(request)
        for members in by_address.values():
            if served.model == "failing":
                value = encode_refusals(1, [_failed(member) for member in members])
            else:
                value = _echoed(served, members)
            address = members[0].reply_to
            assert address is not None
            assert address.partition is not None
            for _ in range(copies):
                self._producer.produce(address.topic, address.partition, value)


def _failed(request: Request) -> Terminal:
    assert request.reply_to is not None
    return Terminal(
        request.id,
        request.tenant,
        request.model,
        request.version,
        request.reply_to,
        1,
        Reason.MODEL_ERROR,
        "the model failed on purpose",
        None,
        request.client_id,
        request.source,
    )


def _echoed(served: ServedVersion, members: Sequence[Request]) -> bytes:
    dispatch = Dispatch(
        uuid4().hex, 0, tuple(members), 1, 1, 1, None, ReleaseReason.IDLE
    )
    stamp = BatchStamp(0, 1, FORMER, 7, 1000, None)
    order = Record("", 0, 0, 0, None, encode_batch(dispatch, stamp, served), [])
    batch = decode_order(order)
    assert isinstance(batch, Batch)
    outputs = []
    for index, (spec, tensor) in enumerate(
        zip(served.signature.outputs, batch.tensors, strict=True)
    ):
        pieces = tuple(member.tensors[index] for member in members)
        if served.model == "log":
            with np.errstate(all="ignore"):
                pieces = tuple(
                    np.log(np.frombuffer(piece, np.float32)).tobytes()
                    for piece in pieces
                )
        shape = tensor.shape
        outputs.append(
            BatchedOutput.of(
                spec.name,
                spec.datatype,
                shape,
                pieces if ROWS in shape else pieces[:1],
            )
        )
    return encode_replies(batch, range(len(members)), outputs, TIMES)


class IngressProcess:
    """``python -m services.ingress`` with its log."""

    def __init__(
        self,
        bus: BusSettings,
        slot: int = 0,
        pass_fds: Sequence[int] = (),
        **settings: object,
    ) -> None:
        given = {
            "BUS__BOOTSTRAP_SERVERS": bus.bootstrap_servers,
            "BUS__PREFIX": bus.prefix,
            "HTTP__PORT": 0,
            "LOG__FORMAT": "json",
            **settings,
        }
        environment = {f"HEADRACE_{name}": str(value) for name, value in given.items()}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "services.ingress", "--slot", str(slot)],
            cwd=ROOT,
            env={**os.environ, **environment},
            stderr=subprocess.PIPE,
            pass_fds=pass_fds,
        )
        self.log: list[dict[str, Any]] = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        self._ready.wait(60)
        if not self.logged("process.ready"):
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"not ready: {self.log}")
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        self._reader.join()

    @property
    def url(self) -> str:
        (url,) = (line["url"] for line in self.log if line["event"] == "http.listening")
        return str(url)

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return host, int(port)

    def logged(self, event: str, **facts: object) -> list[dict[str, Any]]:
        return [
            line
            for line in self.log
            if line["event"] == event and facts.items() <= line.items()
        ]

    def line_of(self, fail: Callable[[], str]) -> dict[str, Any]:
        """The line of a failure, of which ``fail`` makes one more and gives its id: the
        journal has room for so many lines a second, and other tests fill it."""
        ids = set()
        for looks in range(40 * 50):
            if looks % 50 == 0:
                ids.add(fail())
            for line in self.logged("request.failed"):
                if line.get("request_id") in ids:
                    return line
            time.sleep(0.01)
        raise AssertionError(f"none of {len(ids)} failures has a line")

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stderr:
            for line in stderr:
                try:
                    entry = json.loads(line)
                except ValueError:
                    entry = {"event": "unstructured", "text": line.decode()}
                self.log.append(entry)
                if entry["event"] == "process.ready":
                    self._ready.set()
        self._ready.set()


def until(condition: Any, timeout_s: float = 40) -> None:
    """Wait for what another process does; fail after ``timeout_s``."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
