"""Makes a worker's parts, joins them, and ends with the reason's exit code."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import uuid
from collections.abc import Sequence
from typing import NoReturn

from headrace.broker import (
    FRAMING_BYTES,
    KafkaAdmin,
    KafkaProducer,
    KafkaReader,
    ProducerSettings,
    ProducerThread,
    ReaderSettings,
    TableReader,
    TopicPartition,
)
from headrace.clock import SystemClock
from headrace.delivery import Fitness, WorkerCore
from headrace.delivery.worker_decisions import WorkerExit
from headrace.delivery.worker_events import (
    HeartbeatAcked,
    ModelsReady,
    RepliesEnded,
    ReplyStoring,
    WorkerEvent,
)
from headrace.errors import BusError, BusTimeout, SetupError
from headrace.lifecycle import (
    BEATS,
    ExitCode,
    Health,
    Heartbeat,
    ProbeServer,
    Pulse,
    StatusReader,
    Watchdog,
    configure_interpreter,
    drain_on_signals,
    end_with_any_thread,
    read_settings,
    run_to_exit,
)
from headrace.repository import VersionKey
from headrace.runtime import open_device
from headrace.telemetry import (
    MetricsRegistry,
    ProcessMetrics,
    WorkerMetrics,
    configure_logs,
    get_log,
)
from headrace.wire import Heartbeat as HeartbeatRecord
from headrace.wire import Role, base_topics, encode_json, model_topics
from services.gpu_worker.announcing import Announcements, Announcer
from services.gpu_worker.claims import WorkerClaims
from services.gpu_worker.control import ControlWriter
from services.gpu_worker.fetching import Fetcher
from services.gpu_worker.fitness import FitnessWatch
from services.gpu_worker.jobs import ReadyModels, Runnable
from services.gpu_worker.linked import Linked
from services.gpu_worker.loop import JOINED, Inbox, Loop, Parts, Surroundings
from services.gpu_worker.models import MODELS, Models, Neighbourhood
from services.gpu_worker.orders import BatchFetched, OrderIntake
from services.gpu_worker.replying import Replier
from services.gpu_worker.running import Runner
from services.gpu_worker.settings import GpuWorkerSettings
from services.gpu_worker.status import SharedLogClock, SlotRoster

__all__ = ["main"]

PROVISION_TIMEOUT_S = 30
STATUS_WAIT_S = 2
FLUSH_S = 1

CONTROL = ProducerSettings(timeout_ms=120_000, spares=True)
REPLIES = ProducerSettings(timeout_ms=30_000, idempotent=False)
"""As long as a bulk result may wait. An online reply that comes later than its batch's
``done`` does no harm: at most two batches are unacked at a time, and the first reply
counts."""

QUIET_WAIT_S = 0.1
"""Of the threads that read what rarely comes, and are told nothing meanwhile."""

TABLE = ReaderSettings(fetch_wait_ms=400)
"""Versions change rarely; a fetch that waits is answered at once when one does."""

FETCH_SILENT_US_MAX = 2_000_000
"""W6: no heartbeat when the fetch thread has not turned for so long."""

_EXIT_CODES = {
    WorkerExit.DRAINED: ExitCode.OK,
    WorkerExit.REPLACED: ExitCode.REPLACED,
    WorkerExit.RUN_LIMIT: ExitCode.STALLED,
    WorkerExit.OUT_OF_MEMORY: ExitCode.DEVICE,
    WorkerExit.DEVICE_LOST: ExitCode.DEVICE,
    WorkerExit.DONE_UNACKED: ExitCode.LOG_UNAVAILABLE,
    WorkerExit.POSITION_LOST: ExitCode.LOG_LOST,
}


def main() -> NoReturn:
    parser = argparse.ArgumentParser(
        prog="python -m services.gpu_worker", description="Run the batches of a slot."
    )
    parser.add_argument(
        "--slot", type=int, required=True, help="numbered place of this worker, from 0"
    )
    slot = parser.parse_args().slot
    run_to_exit(lambda: run(slot, read_settings(GpuWorkerSettings, os.environ)))


def run(slot: int, settings: GpuWorkerSettings) -> ExitCode:
    """Until the worker is drained, replaced, or cannot go on. Returns when it could
    not start."""
    configure_logs(settings.log, service="gpu_worker", slot=slot)
    end_with_any_thread()
    drain = drain_on_signals()
    try:
        worker = _Worker(slot, settings)
        worker.start()
    except BusError as error:
        get_log().critical("process.failed", code=error.code, text=str(error))
        return ExitCode.LOG_UNAVAILABLE
    configure_interpreter()
    why = worker.loop.run(drain)
    worker.log.info("process.stopped", why=why)
    if why is not WorkerExit.RUN_LIMIT:
        worker.stop()
    # A thread may be inside ONNX Runtime, in a load or in a run that will not stop;
    # the interpreter's own end would unwind it there, which aborts the process.
    sys.stderr.flush()
    os._exit(_EXIT_CODES[why])


class _Worker:
    """The parts, in the order in which they need each other."""

    def __init__(self, slot: int, settings: GpuWorkerSettings) -> None:
        self.log = get_log()
        self._slot = slot
        self._bus = bus = settings.bus
        self._instance = uuid.uuid4().hex
        self._clock = clock = SystemClock()
        self._pulse = Pulse(clock)
        self._health = Health(
            self._pulse,
            {
                JOINED: "the slot has not joined its lane yet",
                MODELS: "the model folder is being read",
            },
        )
        registry = MetricsRegistry()
        self._metrics = WorkerMetrics(registry)
        self._process_metrics = ProcessMetrics(registry)
        self._probes = ProbeServer(settings.admin, self._health, registry)
        self._probes.start()
        self.log.info("admin.listening", url=self._probes.url)
        self._device = open_device(settings.device)
        self._connection = bus.connection(f"gpu-worker-{slot}")
        self._admin = KafkaAdmin(self._connection)
        self._topics = bus.topics
        self._admin.create_topics(base_topics(bus.topics, bus), PROVISION_TIMEOUT_S)
        self._lane = self._settled_lane()
        self._make_parts(settings)
        self.log.info(
            "process.started",
            instance=self._instance,
            lane=self._lane,
            provider=self._device.provider,
        )

    def _settled_lane(self) -> int:
        slots = self._admin.partitions(self._topics.batches, PROVISION_TIMEOUT_S)
        if not 0 <= self._slot < slots:
            raise SetupError(
                f"slot {self._slot} has no partition in {self._topics.batches}, which "
                f"has {slots}: raise HEADRACE_BUS__WORKER_SLOTS for all services"
            )
        lanes = self._admin.partitions(self._topics.completions, PROVISION_TIMEOUT_S)
        return self._slot % lanes

    def _make_parts(self, settings: GpuWorkerSettings) -> None:
        bus, clock = self._bus, self._clock
        inbox: Inbox = Inbox()
        self._inbox = inbox
        self._ready = ReadyModels()
        claims = WorkerClaims(
            bus.payload_store,
            inline_bytes_max=bus.payload_bytes_max,
            stored_bytes_max=bus.stored_bytes_max,
            timeout_ms=bus.payload_timeout_ms,
            came=self._payloads_came,
        )
        self._log_clock = SharedLogClock()
        self._control = control = KafkaProducer(self._connection, CONTROL)
        replies = KafkaProducer(self._connection, REPLIES)
        replier = Replier(
            replies,
            self._replies_told,
            claims,
            batch_bytes_max=bus.batch_bytes_max,
        )
        self._replies = ProducerThread("replies", replies, replier.tell_acked)
        self._make_fetchers(settings, claims)
        self._runner = Runner(clock, payload_bytes_max=claims.reply_bytes_max)
        parts = Parts(
            WorkerCore(lane=self._lane, limits=settings.runs),
            self._fetcher,
            self._linked,
            self._runner,
            replier,
            ControlWriter(
                control,
                self._topics.completions,
                self._lane,
                self._process_metrics,
            ),
            FitnessWatch(self._fitness_changed, clock, self.log),
        )
        surroundings = Surroundings(
            self._slot,
            settings.worker.previous_exit,
            self._health,
            self._pulse,
            clock,
            self.log,
            self._metrics,
        )
        self.loop = Loop(inbox, parts, surroundings)
        self._roster = SlotRoster(round(settings.models.dead_slot_s * 1e6))
        self._make_vital_signs()
        self._make_models(settings, control)

    def _make_fetchers(self, settings: GpuWorkerSettings, claims: WorkerClaims) -> None:
        orders = OrderIntake(
            find=self._ready.find,
            prefetch=claims.prefetch,
            store_wait_us=claims.wait_us,
            to_mono=self._log_clock.to_mono,
            clock=self._clock,
        )
        self._fetcher = Fetcher(
            KafkaReader(self._connection),
            TopicPartition(self._topics.batches, self._slot),
            put=self._take_order,
            orders=orders,
            clock=self._clock,
            log=self.log,
        )
        self._linked = Linked(
            settings.fused.folder,
            self._instance,
            put=self._take_order,
            orders=orders,
            order_bytes_max=self._bus.batch_bytes_max + FRAMING_BYTES,
            log=self.log,
        )

    def _take_order(self, order: WorkerEvent | BatchFetched) -> None:
        self.loop.take_order(order)

    def _replies_told(self, told: Sequence[RepliesEnded | ReplyStoring]) -> None:
        self.loop.replies_told(told)

    def _payloads_came(self, batch: str) -> None:
        self.loop.payloads_came(batch)

    def _make_vital_signs(self) -> None:
        self._heartbeat = Heartbeat(
            KafkaProducer(self._connection, BEATS),
            self._topics.status,
            f"{Role.GPU_WORKER}/{self._slot}".encode(),
            self._beat,
            pulse=self._pulse,
            clock=self._clock,
            log_time=self,
        )
        self._status = StatusReader(
            KafkaReader(self._connection),
            self._topics.status,
            self._roster.take,
            self._read_failed,
            wait_s=QUIET_WAIT_S,
        )
        self._watchdog = Watchdog(self._pulse, self._clock, self._stalled)

    def _make_models(self, settings: GpuWorkerSettings, control: KafkaProducer) -> None:
        announcer = Announcer(control, self._topics.control_models, self._slot)

        def buried(key: VersionKey, slot: int) -> None:
            if slot == self._slot:
                announcer.buried(key)

        announcements = Announcements(buried, self.log)
        self._table = TableReader(
            KafkaReader(self._connection, TABLE),
            self._topics.control_models,
            announcements.take,
            self._read_failed,
            wait_s=QUIET_WAIT_S,
        )
        around = Neighbourhood(
            slot=self._slot,
            announcements=announcements,
            announcer=announcer,
            settle=lambda: self._roster.wait_read(STATUS_WAIT_S),
            heard=self._roster.heard,
            is_dead=self._roster.is_dead,
            incarnation=lambda: self.loop.vitals.incarnation,
            held=self.loop.held,
            provision=self._provision,
            ready=lambda names: self._inbox.put(ModelsReady(names)),
        )
        self._models = Models(
            settings.models,
            settings.runs,
            self._device,
            self._ready,
            around,
            health=self._health,
            clock=self._clock,
            log=self.log,
            metrics=self._metrics,
        )

    def start(self) -> None:
        """Raises BusError, and SetupError without a model folder."""
        self._replies.start()
        self._table.start()
        if not self._table.wait_caught_up(PROVISION_TIMEOUT_S):
            raise BusTimeout(
                f"{self._topics.control_models} could not be read in "
                f"{PROVISION_TIMEOUT_S} s",
                code="_TIMED_OUT",
            )
        self._models.prepare()
        self._status.start()
        self._heartbeat.start()
        self._runner.start(self.loop.run_ended)
        self._fetcher.start()
        self._linked.start()
        self._models.start()
        self._watchdog.start()

    def stop(self) -> None:
        """After the loop has ended."""
        self._watchdog.stop()
        self._models.stop()
        self._heartbeat.stop()
        self._linked.stop()
        self._control.flush(FLUSH_S)
        self._replies.stop(FLUSH_S)
        self._probes.stop()

    def feed(self, sent_us: int, acked_us: int, log_us: int) -> None:
        """A heartbeat's delivery report (:class:`headrace.lifecycle.LogTime`)."""
        self._log_clock.feed(sent_us, acked_us, log_us)
        self._process_metrics.log_clock_error.set((self._log_clock.error_us or 0) / 1e6)
        self._inbox.put(HeartbeatAcked())

    def _beat(self) -> bytes | None:
        """W6: nothing while the fetch thread hangs or a run is beyond its limit."""
        now_us = self._clock.now_us()
        vitals = self.loop.vitals
        limit_us = vitals.run_limit_at_us
        if limit_us is not None and now_us > limit_us:
            return None
        if self._fetcher.silent_us(now_us) > FETCH_SILENT_US_MAX:
            return None
        return encode_json(
            HeartbeatRecord(
                role=Role.GPU_WORKER,
                slot=self._slot,
                instance=self._instance,
                state=self._health.state,
                host=socket.gethostname(),
                pid=os.getpid(),
                admin=self._probes.url,
                incarnation=vitals.incarnation,
                lane=self._lane,
                models=tuple(sorted(self._ready.names())),
            )
        )

    def _fitness_changed(self, runnable: Runnable, fitness: Fitness, why: str) -> None:
        self._models.fitness_changed(runnable, fitness, why)

    def _provision(self, models: set[str]) -> None:
        topics = [
            topic
            for model in sorted(models)
            for topic in model_topics(self._topics, model, self._bus)
        ]
        self._admin.create_topics(topics, PROVISION_TIMEOUT_S)

    def _read_failed(self, error: BusError) -> None:
        self.log.warning("read.failed", code=error.code, text=str(error))

    def _stalled(self) -> None:
        self.log.critical("loop.stalled")
        os._exit(ExitCode.STALLED)
