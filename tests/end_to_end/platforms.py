"""A platform as an operator starts it, and the answers of ONNX Runtime to compare."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import httpx
import msgspec
import numpy as np
import numpy.typing as npt
import onnxruntime
import psutil
from prometheus_client.parser import text_string_to_metric_families

from services.ctl.client import infer_request
from services.ctl.running import Document, all_running
from tests.freezing import freeze

READY_WITHIN_S = 240.0
STOPS_WITHIN_S = 40.0
BATCHES_HELD = 2
"""By a worker, of online requests."""
LOOKS_OFTEN = {"HEADRACE_MODELS__SCAN_MS": "200"}
"""A version is loaded when it looks the same twice."""

Array = npt.NDArray[Any]


@dataclass
class Platform:
    """What ``headrace up --json`` started."""

    document: Document
    models: Path
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    log: Path
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=30))

    @property
    def url(self) -> str:
        return self.document.http[0]

    def post(
        self, path: str, body: Mapping[str, Any] | bytes, **headers: str
    ) -> httpx.Response:
        """POST below /v2/models; underscores of header names stand for dashes."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(
            f"{self.url}/v2/models/{path}", content=content, headers=named
        )

    def infer(self, path: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One request with binary tensors, answered 200."""
        request = infer_request(inputs)
        answer = self.client.post(
            f"{self.url}/v2/models/{path}/infer",
            content=request.body,
            headers=dict(request.headers),
        )
        assert answer.status_code == 200, answer.text
        return outputs_of(answer)

    def stats(self, model: str) -> tuple[int, int]:
        """Rows run and batches run so far, over all ingresses."""
        rows = batches = 0
        for url in self.document.http:
            body = self.client.get(f"{url}/v2/models/{model}/stats").json()
            for stats in body["model_stats"]:
                rows += stats["inference_count"]
                batches += stats["execution_count"]
        return rows, batches

    def worker_value(self, name: str, **labels: str) -> float:
        """The sum of a metric of worker 0 over the series with these labels."""
        return self._value("gpu_worker", name, labels)

    def former_value(self, name: str, **labels: str) -> float:
        """As :meth:`worker_value`, of former 0."""
        return self._value("batch_former", name, labels)

    def _value(self, service: str, name: str, labels: Mapping[str, str]) -> float:
        metrics = self.client.get(f"{self.document.admin[service][0]}/metrics")
        return sum(
            sample.value
            for family in text_string_to_metric_families(metrics.text)
            for sample in family.samples
            if sample.name == f"headrace_{name}"
            and labels.items() <= sample.labels.items()
        )

    def await_queued(self, model: str, count: int) -> None:
        """Wait until so many requests of the model wait in former 0."""
        eventually(lambda: self.former_value("queued_requests", model=model) == count)

    def runs_of(self, model: str) -> int:
        """Batches that worker 0 has run for the model, whatever became of them."""
        return round(self.worker_value("runs_total", model=model))

    def state_of(self, model: str, version: str, url: str | None = None) -> str:
        """``READY``, or the reason for which it is not; empty: unknown."""
        index = self.client.post(f"{url or self.url}/v2/repository/index").json()
        for entry in index:
            if (entry["name"], entry["version"]) == (model, version):
                return "READY" if entry["state"] == "READY" else str(entry["reason"])
        return ""

    def await_ready(self, model: str, version: str) -> None:
        """Wait until every ingress serves the version."""
        urls = self.document.http
        eventually(
            lambda: all(self.state_of(model, version, u) == "READY" for u in urls)
        )

    def restart_of(self, service: str) -> dict[str, Any]:
        """The next line that tells of a restart of this service."""
        for text in self.output:
            line: dict[str, Any] = json.loads(text)["restarted"]
            if line["service"] == service:
                return line
        raise AssertionError("the supervisor ended")

    def pids(self, service: str) -> list[int]:
        """The processes of a service by slot; those between two lives are left out."""
        while True:
            for running in all_running():
                if running.pid == self.process.pid:
                    known = running.document.pids[service]
                    return [pid for pid in known if psutil.pid_exists(pid)]
            assert self.process.poll() is None, "the supervisor has ended"
            time.sleep(0.01)  # it is writing what it runs

    def stop(self) -> int:
        """SIGTERM; its exit status."""
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOPS_WITHIN_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.output.close()


@contextmanager
def running(
    models: Path,
    folder: Path,
    *arguments: str,
    data: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Platform]:
    """``headrace up`` on free ports, its queue in a temporary folder or ``data``, with
    ``environment`` added to ours."""
    log = folder / "up.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "services.ctl", "up", "--json"),
                *(("--data", str(data)) if data else ("--ephemeral",)),
                *("--models", str(models), "--http-port", "0", "--kafka-port", "0"),
                *arguments,
            ],
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **LOOKS_OFTEN, **(environment or {})},
        )
    assert process.stdout is not None
    document = msgspec.json.decode(_first_line(process, log), type=Document)
    platform = Platform(document, models, process, process.stdout, log)
    try:
        yield platform
    finally:
        platform.stop()


def _first_line(process: subprocess.Popen[bytes], log: Path) -> bytes:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], READY_WITHIN_S)
    line: bytes = process.stdout.readline() if readable else b""
    if not line:
        process.kill()
        process.wait()
        process.stdout.close()
        raise AssertionError(f"not ready:\n{log.read_text()[-8000:]}")
    return line


@contextmanager
def occupied(platform: Platform) -> Iterator[None]:
    """Worker 0 stands still, with as many batches as it may hold: what is asked
    meanwhile waits in the former, and leaves together afterwards."""
    worker = platform.pids("gpu_worker")[0]
    row = infer_request({"X": np.ones((1, 4), np.float32)})
    limit = {**dict(row.headers), "headrace_timeout_ms": "60000"}
    freeze(worker)
    try:
        with ThreadPoolExecutor(BATCHES_HELD) as filling:
            sent = platform.former_value("batch_requests_count", model="quick")
            for number in range(1, BATCHES_HELD + 1):
                filling.submit(platform.post, "quick/infer", row.body, **limit)
                eventually(
                    lambda: (
                        platform.former_value("batch_requests_count", model="quick")
                        >= sent + number  # noqa: B023 - asked at once
                    )
                )
            try:
                yield
            finally:
                os.kill(worker, signal.SIGCONT)
    finally:
        os.kill(worker, signal.SIGCONT)


def eventually(
    condition: Callable[[], bool], within_s: float = 60.0, every_s: float = 0.05
) -> None:
    """Look until ``condition`` holds. For what another process does in its own time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(every_s)


def outputs_of(answer: httpx.Response) -> dict[str, Array]:
    """Binary outputs; BYTES as an array of bytes objects, BF16 as its bits."""
    length = int(answer.headers["inference-header-content-length"])
    header = json.loads(answer.content[:length])
    start = length
    outputs = {}
    for output in header["outputs"]:
        end = start + output["parameters"]["binary_data_size"]
        raw = answer.content[start:end]
        outputs[output["name"]] = from_raw(raw, output["datatype"], output["shape"])
        start = end
    assert start == len(answer.content)
    return outputs


DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "BF16": np.dtype(np.uint16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
}


def from_raw(raw: bytes, datatype: str, shape: Sequence[int]) -> Array:
    if datatype != "BYTES":
        return np.frombuffer(raw, DTYPES[datatype]).reshape(shape)
    elements = []
    at = 0
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 4], "little")
        elements.append(raw[at + 4 : at + 4 + size])
        at += 4 + size
    return np.array(elements, object).reshape(shape)


def to_raw(values: Array, datatype: str) -> bytes:
    if datatype != "BYTES":
        return values.astype(DTYPES[datatype]).tobytes()
    return b"".join(len(v).to_bytes(4, "little") + v for v in values.ravel())


class Wire:
    """A raw connection to an ingress, for requests to one model."""

    def __init__(self, url: str, model: str) -> None:
        self._model = model
        address = urlsplit(url)
        self._socket = socket.create_connection((address.hostname, address.port), 30)
        self._left = b""

    def send(self, body: bytes, *headers: str, length: int | None = None) -> None:
        head = [
            f"POST /v2/models/{self._model}/infer HTTP/1.1",
            "host: x",
            f"content-length: {len(body) if length is None else length}",
            *headers,
        ]
        self._socket.sendall("\r\n".join([*head, "", ""]).encode() + body)

    def half_close(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def answer(self) -> tuple[int, bytes] | None:
        """Status and body; None: the connection was closed without an answer."""
        while b"\r\n\r\n" not in self._left:
            more = self._receive()
            if not more:
                return None
            self._left += more
        head, _, self._left = self._left.partition(b"\r\n\r\n")
        lines = head.decode().lower().split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines[1:])
        length = int(fields["content-length"])
        while len(self._left) < length:
            self._left += self._receive()
        body, self._left = self._left[:length], self._left[length:]
        return int(lines[0].split(" ")[1]), body

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(65536)
        except ConnectionResetError:
            return b""


class Direct:
    """ONNX Runtime called directly, with the options of a worker."""

    def __init__(self, model: bytes | Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        source = model if isinstance(model, bytes) else str(model)
        self._session = onnxruntime.InferenceSession(
            source, options, providers=["CPUExecutionProvider"]
        )

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        names = [output.name for output in self._session.get_outputs()]
        values = self._session.run(names, dict(inputs))
        return dict(zip(names, values, strict=True))
