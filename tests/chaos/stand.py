"""A platform with two of everything behind a network of its own, and its breaking."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import httpx
import numpy as np
import psutil

from headrace.broker import KafkaConnection, KafkaProducer
from headrace.embedded import EmbeddedKafka, KafkaSettings, RunningKafka
from headrace.errors import BusError
from headrace.payloads import PayloadStore
from services.ctl.client import infer_request
from tests.chaos.clients import INLINE_BYTES_MAX, INTEGERS, LIMIT_MS, MODELS, now_us
from tests.chaos.faults import Fault, Kind
from tests.chaos.history import Window
from tests.chaos.proxy import Direction, Proxy
from tests.end_to_end.platforms import Platform, running
from tests.freezing import freeze
from tests.models import graphs
from tests.models.folders import put_simulated, put_version

__all__ = ["LANES", "Payloads", "Stand", "standing"]

LANES = 2
COUNTS = ("--ingress", "2", "--formers", "2", "--lanes", "2")
STARTS_WITHIN_S = 240.0
"""A broker that was killed, on a machine with many others' processes; alone, 3 s."""
STOPS_WITHIN_S = 4.0
"""As `headrace up` has it."""

DELAY_S = 0.05
_ROWS = {Kind.FAILING_ROW: -9, Kind.HANGING_ROW: 1 << 50}
POISON = b"\xff\x00 no request"
COMES_BACK_S = 30.0
LOOK_S = 0.02
_VICTIMS = {
    Kind.KILL_WORKER: "gpu_worker",
    Kind.RESTART_WORKER: "gpu_worker",
    Kind.FREEZE_WORKER: "gpu_worker",
    Kind.KILL_FORMER: "batch_former",
    Kind.RESTART_FORMER: "batch_former",
    Kind.FREEZE_FORMER: "batch_former",
    Kind.REBALANCE: "batch_former",
    Kind.KILL_INGRESS: "ingress",
    Kind.RESTART_INGRESS: "ingress",
    Kind.FREEZE_INGRESS: "ingress",
}
_KILLS = {Kind.KILL_WORKER, Kind.KILL_FORMER, Kind.KILL_INGRESS}
SKEW = Path(__file__).parent / "skew"


class Stand:
    """The platform, the broker that it reaches through the proxy, and what was done
    to its ingresses."""

    def __init__(
        self,
        kafka: EmbeddedKafka,
        broker: RunningKafka,
        proxy: Proxy,
        platform: Platform,
        payloads: Payloads,
    ) -> None:
        self.platform = platform
        self.payloads = payloads
        self.proxy = proxy
        self.windows: list[Window] = []
        self._kafka = kafka
        self._broker = broker
        self._http = httpx.Client(timeout=0.5, trust_env=False)

    def close(self) -> None:
        self._http.close()

    @property
    def urls(self) -> list[str]:
        return self.platform.document.http

    def pids(self, service: str) -> list[int]:
        """The processes of a service by slot; those between two lives are left out."""
        return self.platform.pids(service)

    def all_pids(self) -> list[int]:
        services = ("batch_former", "gpu_worker", "ingress")
        return [pid for service in services for pid in self.pids(service)]

    def commit(self, fault: Fault) -> None:
        """Do it, and return when it is over; whoever was hit may still be starting."""
        match fault.kind:
            case Kind.KILL_BROKER:
                os.kill(self._broker.pid, signal.SIGKILL)
                self._kafka.wait()
                self.start_broker()
            case Kind.RESTART_BROKER:
                self._kafka.stop()
                self.start_broker()
            case Kind.FREEZE_BROKER:
                with _frozen(self._broker.pid):
                    time.sleep(fault.for_s)
            case Kind.SLOW_NETWORK:
                self.proxy.slow(DELAY_S)
                time.sleep(fault.for_s)
                self.proxy.flow()
            case Kind.STALL_NETWORK:
                directions = tuple(Direction)[: 1 + fault.slot % 2]
                self.proxy.stall(*directions)
                time.sleep(fault.for_s)
                self.proxy.flow()
            case Kind.CUT_NETWORK:
                self.proxy.cut()
            case Kind.STORE_AWAY:
                with self.payloads.away():
                    time.sleep(fault.for_s)
            case Kind.POISON:
                self._poison(fault.slot)
            case Kind.FAILING_ROW | Kind.HANGING_ROW as kind:
                self._ask_for(_ROWS[kind], fault.slot)
            case kind:
                self._hit(_VICTIMS[kind], fault)

    @contextmanager
    def unsupervised(self, for_s: float) -> Iterator[None]:
        """Nobody restarts what ends here, until ``for_s`` later."""
        if not for_s:
            yield
            return
        with _frozen(self.platform.process.pid):
            yield
            time.sleep(for_s)

    def start_broker(self) -> None:
        self._broker = self._kafka.start()

    def await_ready(self) -> None:
        """Until every process says so."""
        admin = self.platform.document.admin
        urls = [*self.urls, *admin["batch_former"], *admin["gpu_worker"]]
        deadline = time.monotonic() + 2 * COMES_BACK_S
        while not all(self._is_ready(url) for url in urls):
            assert time.monotonic() < deadline, "the platform does not come back"
            time.sleep(LOOK_S)

    def audit(self, since: float) -> subprocess.CompletedProcess[str]:
        """Of all since an instant of the wall clock, in JSON."""
        return subprocess.run(
            [
                *(sys.executable, "-m", "services.ctl", "audit", "--json"),
                *("--from", datetime.fromtimestamp(since - 1, UTC).isoformat()),
                *("--bootstrap", self.platform.document.bootstrap_servers),
            ],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **self.payloads.environment},
        )

    def _hit(self, service: str, fault: Fault) -> None:
        pids = self.pids(service)
        if not pids:
            return
        slot = fault.slot % len(pids)
        pid = pids[slot]
        from_us = now_us()
        is_kill = fault.kind in _KILLS
        if fault.for_s:
            with _frozen(pid):
                time.sleep(fault.for_s)
        else:
            os.kill(pid, signal.SIGKILL if is_kill else signal.SIGTERM)
        if service == "ingress":
            if not fault.for_s:
                self._await_successor(slot, pid)
            self.windows.append(Window(slot, from_us, now_us(), is_kill))

    def _await_successor(self, slot: int, pid: int) -> None:
        deadline = time.monotonic() + COMES_BACK_S
        while psutil.pid_exists(pid) or not self._is_ready(self.urls[slot]):
            assert time.monotonic() < deadline, f"ingress {slot} does not come back"
            time.sleep(LOOK_S)

    def _is_ready(self, url: str) -> bool:
        try:
            return self._http.get(f"{url}/readyz").is_success
        except httpx.TransportError:
            return False

    def _poison(self, slot: int) -> None:
        connection = KafkaConnection(
            self.platform.document.bootstrap_servers, "chaos-poison"
        )
        producer = KafkaProducer(connection)
        topic = f"headrace.requests.{MODELS[slot % len(MODELS)]}"
        with suppress(BusError):
            producer.produce(topic, slot % (4 * LANES), POISON)
        producer.flush(2)

    def _ask_for(self, row: int, slot: int) -> None:
        """Whether it is refused, or its ingress ends before it is answered."""
        request = infer_request({"X": np.array([[row]], np.int64)})
        url = f"{self.urls[slot % len(self.urls)]}/v2/models/{INTEGERS}/infer"
        headers = {**request.headers, "headrace-timeout-ms": str(LIMIT_MS)}
        with suppress(httpx.TransportError):
            answer = self._http.post(
                url, content=request.body, headers=headers, timeout=2 * COMES_BACK_S
            )
            assert answer.is_error, "such a row has no answer"


class Payloads:
    """The payload store, in a folder that can be taken away."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        url = f"file://{folder}"
        self.store = PayloadStore(url)
        self.environment = {
            "HEADRACE_BUS__PAYLOAD_STORE": url,
            "HEADRACE_BUS__PAYLOAD_BYTES_MAX": str(INLINE_BYTES_MAX),
        }

    @contextmanager
    def away(self) -> Iterator[None]:
        """A file in its place lets nothing be found, read or made there."""
        kept = self._folder.with_name("payloads-away")
        self._folder.rename(kept)
        self._folder.touch()
        try:
            yield
        finally:
            self._folder.unlink()
            kept.rename(self._folder)


@contextmanager
def standing(
    folder: Path,
    seed: int,
    *,
    is_fused: bool = False,
    workers: int = 2 * LANES,
    idle_models: int = 0,
    alpha_ms: int = 5,
) -> Iterator[Stand]:
    """A broker, a proxy before it, and ``headrace up`` behind both; each process has a
    wall clock that is wrong in its own way. Nobody asks
    ``idle_models``; a run of the simulated accelerator takes ``alpha_ms``."""
    models = folder / "models"
    put_version(models, MODELS[0], "1", graphs.fragile(beyond=1 << 49))
    put_simulated(models, MODELS[1], "1", alpha_ms=alpha_ms)
    put_simulated(models, MODELS[2], "1", alpha_ms=2, memory_left_rows=4)
    for number in range(idle_models):
        put_simulated(models, f"idle{number}", "1", alpha_ms=1)
    payloads = Payloads(folder / "payloads")
    payloads.store.probe()
    proxy = Proxy()
    kafka = EmbeddedKafka(
        KafkaSettings(
            folder=folder / "kafka",
            advertised_port=proxy.port,
            start_timeout_s=STARTS_WITHIN_S,
            stop_timeout_s=STOPS_WITHIN_S,
        )
    )
    try:
        broker = kafka.start()
        proxy.lead_to(int(broker.bootstrap_servers.split(":")[1]))
        environment = {
            "KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{proxy.port}",
            "PYTHONPATH": str(SKEW),
            "CHAOS_SKEW_SEED": str(seed),
            **payloads.environment,
        }
        counts = [*COUNTS, "--workers", str(workers), *["--fused"] * is_fused]
        with running(models, folder, *counts, environment=environment) as platform:
            stand = Stand(kafka, broker, proxy, platform, payloads)
            yield stand
            stand.close()
    finally:
        kafka.stop()
        proxy.close()


@contextmanager
def _frozen(pid: int) -> Iterator[None]:
    freeze(pid)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
