"""Builds an ingress and runs it to its end."""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
from collections.abc import Sequence
from functools import partial
from typing import NoReturn
from uuid import uuid4

import uvloop

from headrace.broker import (
    KafkaProducer,
    KafkaReader,
    LoopHandover,
    ProducerSettings,
    ProducerThread,
    TableReader,
    TopicPartition,
)
from headrace.clock import SystemClock
from headrace.delivery import LogClock
from headrace.domain import ReplyAddress
from headrace.errors import BusError, SetupError
from headrace.lifecycle import (
    BEATS,
    DrainFlag,
    ExitCode,
    Health,
    Heartbeat,
    Pulse,
    StatusReader,
    add_standby,
    answer_probe,
    configure_interpreter,
    drain_on_signals,
    end_with_any_thread,
    read_settings,
    run_to_exit,
    stand_by,
)
from headrace.telemetry import (
    IngressMetrics,
    LogSettings,
    MetricsRegistry,
    ProcessMetrics,
    configure_logs,
    get_log,
)
from headrace.wire import (
    Announcement,
    RequestEncoder,
    Role,
    ServiceState,
    encode_json,
)
from headrace.wire import Heartbeat as HeartbeatRecord
from services.ingress.admitting import Admission
from services.ingress.batches.parts import BatchParts
from services.ingress.cold import cold_app
from services.ingress.exchange import Exchange
from services.ingress.fleet import Fleet
from services.ingress.handler import TICK_US, Handler
from services.ingress.journal import Journal
from services.ingress.kept_parts import KeptParts
from services.ingress.leaving import Leaving, Succession
from services.ingress.listening import Decoder, Heard, ReplyListener, Withdrawn
from services.ingress.meter import Meter
from services.ingress.outcomes import Outcomes
from services.ingress.parsing import RequestParser
from services.ingress.payloads import Payloads
from services.ingress.producing import Outbox, Pace
from services.ingress.provisioning import provided
from services.ingress.server import HttpServer, allow_connections, bind, url_of
from services.ingress.settings import IngressSettings
from services.ingress.statistics import Statistics
from services.ingress.threads import (
    FedOnLoop,
    FlushedThread,
    ServedOnLoop,
    ServiceThread,
)

__all__ = ["main", "serve"]

SWEEP_US = 1_000_000
STATUS_SILENT_US = 3_000_000
"""Without a heartbeat of its own back from the log for so long a process is not ready,
until one comes."""

STATUS_SILENT = "no heartbeat of this process came back through the log for 3 s"
LINGER_MS = {Pace.QUIET: 0, Pace.BUSY: 2, Pace.PATIENT: 4}
ACCEPTS_WITHIN_US = 3_000_000
"""So long after its start an ingress takes connections of a socket that it shares,
though it may have to refuse what they ask."""


def main() -> NoReturn:
    parser = argparse.ArgumentParser(prog="services.ingress")
    parser.add_argument("--slot", type=int, default=0)
    add_standby(parser)
    stand_by(options := parser.parse_args())
    slot = options.slot
    # For what is wrong with the settings themselves.
    configure_logs(LogSettings(), service="ingress", slot=slot)
    run_to_exit(
        lambda: serve(
            read_settings(IngressSettings, os.environ), slot, drain_on_signals()
        )
    )


def serve(settings: IngressSettings, slot: int, asked: DrainFlag) -> ExitCode:
    """Serve until ``asked`` to drain."""
    configure_logs(settings.log, service="ingress", slot=slot)
    end_with_any_thread()
    bus = settings.bus
    if not 0 <= slot < bus.ingress_slots:
        raise SetupError(
            f"--slot {slot}: an ingress's slot is from 0 to {bus.ingress_slots - 1} "
            "(HEADRACE_BUS__INGRESS_SLOTS)"
        )
    allow_connections()
    listener = bind(settings.http)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_Ingress(settings, slot, listener, asked).run())
        except* SetupError as group:
            raise SetupError(str(group.exceptions[0])) from group
    return ExitCode.OK


class _Ingress:
    """Everything that one process is made of, and the order of start and end."""

    _loop: asyncio.AbstractEventLoop
    _models: TableReader

    def __init__(
        self,
        settings: IngressSettings,
        slot: int,
        listener: socket.socket,
        asked: DrainFlag,
    ) -> None:
        bus = settings.bus
        self._settings = settings
        self._slot = slot
        self._listener = listener
        self._url = url_of(listener)
        self._instance = uuid4().hex
        self._clock = SystemClock()
        self._log_clock = LogClock()
        self._log = get_log()
        self._connection = bus.connection(f"ingress-{slot}")
        self._registry = MetricsRegistry()
        self._pulse = Pulse(self._clock)
        self._health = Health(
            self._pulse,
            {
                "log": "the log has not answered yet",
                "replies": "the replies are not listened to yet",
                "models": "the models are not known yet",
                "status": "no heartbeat of this process came back through the log yet",
            },
        )
        self._status_heard_us: int | None = None
        self._fleet = Fleet(
            bus.lanes,
            partial(
                RequestParser,
                payload_bytes_max=bus.payload_bytes_max,
                element_text_bytes=settings.limits.json_element_bytes_max,
            ),
        )
        self._admission = Admission(settings.admission, self._fleet.router)
        self._statistics = Statistics()
        self._meter = Meter(IngressMetrics(self._registry))
        self._metrics = ProcessMetrics(self._registry)
        self._decoder = Decoder(self._metrics)
        # A request that lies there twice is one (of one id), so that nothing is lost
        # without an idempotent client, which takes a quarter of an ingress' time.
        self._producers = {
            pace: KafkaProducer(
                self._connection,
                ProducerSettings(
                    linger_ms=linger_ms, failures_only=True, idempotent=False
                ),
            )
            for pace, linger_ms in LINGER_MS.items()
        }
        self._payloads = Payloads(bus, self._health, self._log_now_us)
        self._kept = self._made_kept()
        self._batches = self._made_batches()
        self._handler = self._made_handler()
        self._kept.keeper.ends = self._handler.ends
        self._server = self._made_server()
        self._leaving = self._made_leaving(asked)

    def _made_leaving(self, asked: DrainFlag) -> Leaving:
        return Leaving(
            asked,
            self._slot,
            succession=Succession(self._settings.http.succession),
            handler=self._handler,
            server=self._server,
            kept=self._kept,
            health=self._health,
        )

    def _made_server(self) -> HttpServer:
        return HttpServer(
            cold_app(
                self._handler,
                self._fleet,
                self._statistics,
                self._probe,
                self._health,
                self._kept.later,
                v1=self._batches.routes,
            ),
            self._handler,
        )

    def _made_kept(self) -> KeptParts:
        return KeptParts(
            self._settings,
            self._slot,
            self._connection,
            clock=self._clock,
            to_log_us=self._log_clock.to_log,
            router=self._fleet.router,
            claims=self._payloads.claims,
            fail=self._decoder.failed,
        )

    def _made_batches(self) -> BatchParts:
        return BatchParts(
            self._settings,
            self._slot,
            self._connection,
            producer=self._kept.producer,
            fleet=self._fleet,
            fail=self._decoder.failed,
        )

    def _made_handler(self) -> Handler:
        bus, slot = self._settings.bus, self._slot
        outbox = Outbox(
            self._producers,
            topics=bus.topics,
            encoder=RequestEncoder(
                f"headrace/ingress/{slot}", ReplyAddress(bus.topics.replies, slot)
            ),
            payload_bytes_max=bus.payload_bytes_max,
            clock=self._clock,
            to_log_us=self._log_clock.to_log,
            refused=self._log_refused,
        )
        return Handler(
            self._settings.limits,
            fleet=self._fleet,
            admission=self._admission,
            outbox=outbox,
            outcomes=Outcomes(self._statistics, self._meter, Journal(self._clock)),
            clock=self._clock,
            claims=self._payloads.claims,
            keep=self._kept.keeper.send,
        )

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        threads = self._threads()
        self._log.info("http.listening", url=self._url)
        configure_interpreter()
        async with asyncio.TaskGroup() as tasks:
            turning = tasks.create_task(self._turn())
            connecting = tasks.create_task(self._connect(threads))
            if self._settings.http.socket is not None:
                await self._may_answer()
            await self._server.serve([self._listener])
            turning.cancel()
            connecting.cancel()
        self._log.info("drain.ended", unanswered=len(self._handler.ends.waiters))
        if not self._fleet.log_awaited:
            for thread in reversed(threads):
                await asyncio.to_thread(thread.stop)
        await asyncio.to_thread(self._kept.close)

    async def _connect(self, threads: Sequence[ServiceThread]) -> None:
        """Begin to read and write the log, as soon as it answers."""
        self._fleet.log_awaited = True
        await provided(self._settings.bus, self._connection, self._health)
        self._fleet.log_awaited = False
        self._handler.log_heard(self._clock.now_us())
        for thread in threads:
            thread.start()
        self._health.met("log")

    async def _may_answer(self) -> None:
        """Connections wait in the socket while nobody takes them, but not for ever:
        whoever asks in vain must be told."""
        accepts_at_us = self._clock.now_us() + ACCEPTS_WITHIN_US
        while not self._handler.drain.is_on and self._clock.now_us() < accepts_at_us:
            if not self._fleet.starting:
                return
            await asyncio.sleep(TICK_US / 1e6)

    def _threads(self) -> list[ServiceThread]:
        """In the order of their start; they end in reverse."""
        topics, loop, decoder = self._settings.bus.topics, self._loop, self._decoder
        give_replies = LoopHandover(loop, self._handler.ends.replies_arrived)
        give_heard = LoopHandover(loop, self._heard)
        give_changes = LoopHandover(loop, self._changed)
        self._models = TableReader(
            self._reader(),
            topics.control_models,
            lambda records: give_changes(decoder.announcements(records)),
            decoder.failed,
        )
        return [
            *map(ServedOnLoop, self._producers.values()),
            FlushedThread(ProducerThread("kept producer", self._kept.producer)),
            self._kept.follower(loop),
            *self._payloads.threads,
            *self._batches.threads(loop),
            ReplyListener(
                self._reader(),
                TopicPartition(topics.replies, self._slot),
                take=lambda records: give_replies(decoder.replies(records)),
                fail=decoder.failed,
                listening=lambda: self._health.met("replies"),
            ),
            self._models,
            StatusReader(
                self._reader(),
                topics.status,
                lambda records: give_heard(decoder.heartbeats(records)),
                decoder.failed,
            ),
            Heartbeat(
                KafkaProducer(self._connection, BEATS),
                topics.status,
                f"{Role.INGRESS}/{self._slot}".encode(),
                self._own_heartbeat,
                pulse=self._pulse,
                clock=self._clock,
                log_time=FedOnLoop(loop, self._acknowledged),
            ),
        ]

    def _reader(self) -> KafkaReader:
        return KafkaReader(self._connection)

    async def _turn(self) -> None:
        """What the loop does by the clock."""
        sweep_at_us = 0
        while True:
            self._pulse.beat()
            self._handler.tick()
            for producer in self._producers.values():
                producer.poll(0)
            now_us = self._clock.now_us()
            self._leaving.turn(now_us)
            if now_us >= sweep_at_us:
                sweep_at_us = now_us + SWEEP_US
                self._sweep(now_us)
            if self._fleet.starting:
                self._look_around()
            await asyncio.sleep(TICK_US / 1e6)

    def _look_around(self) -> None:
        """Whether what a request depends on is there."""
        if self._health.state is ServiceState.READY and self._log_clock.is_set:
            self._fleet.starting = False
            self._log.info("process.ready")
        elif self._models.caught_up:
            # Through the loop's queue, where the last changes may still lie.
            self._loop.call_soon(self._health.met, "models")

    def _sweep(self, now_us: int) -> None:
        heard_us = self._status_heard_us
        if heard_us is not None and now_us - heard_us > STATUS_SILENT_US:
            self._health.await_("status", STATUS_SILENT)
        self._server.look(now_us)
        self._kept.keeper.sweep()
        self._batches.sweep(now_us)
        self._meter.look(
            in_flight=len(self._handler.ends.waiters),
            lanes=len(self._fleet.router.lanes),
            connections=self._server.connections,
        )
        if self._log_clock.is_set:
            self._metrics.log_clock_error.set(self._log_clock.error_us / 1e6)

    def _heard(self, batch: list[Heard]) -> None:
        now_us = self._clock.now_us()
        for heartbeat, log_us in batch:
            self._fleet.heard(heartbeat, log_us)
            self._admission.heard(heartbeat, now_us)
            if heartbeat.instance == self._instance:
                self._status_heard_us = now_us
                self._health.met("status")
            else:
                self._leaving.heard(heartbeat)
        self._fleet.refresh()
        self._batches.heard(batch)

    def _acknowledged(self, sent_us: int, acked_us: int, log_us: int) -> None:
        self._log_clock.feed(sent_us, acked_us, log_us)
        self._handler.log_heard(acked_us)

    def _changed(self, batch: list[Announcement | Withdrawn]) -> None:
        for change in batch:
            if isinstance(change, Withdrawn):
                self._fleet.withdrawn(*change)
            else:
                self._fleet.announced(change)

    def _log_now_us(self) -> int | None:
        if not self._log_clock.is_set:
            return None
        return self._log_clock.to_log(self._clock.now_us())

    def _log_refused(self, exchange: Exchange, error: BusError) -> None:
        self._metrics.produce_errors.labels(error.code).inc()
        self._loop.call_soon_threadsafe(self._handler.ends.log_refused, exchange, error)

    def _own_heartbeat(self) -> bytes:
        return encode_json(
            HeartbeatRecord(
                Role.INGRESS,
                self._slot,
                self._instance,
                self._leaving.state,
                socket.gethostname(),
                os.getpid(),
                self._url,
            )
        )

    def _probe(self, path: str) -> tuple[int, str, bytes]:
        answer = answer_probe(path, self._health, self._registry)
        assert answer is not None  # routed by its paths
        return answer
