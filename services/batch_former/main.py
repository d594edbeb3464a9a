"""Builds a batch former and runs it until it is asked to drain."""

from __future__ import annotations

import argparse
import itertools
import os
import socket
import uuid
from functools import partial
from typing import NoReturn

from headrace.broker import (
    KafkaAdmin,
    KafkaConnection,
    KafkaLeader,
    KafkaProducer,
    KafkaReader,
    ProducerSettings,
    ReaderSettings,
    TableReader,
    TopicPartition,
)
from headrace.clock import SystemClock
from headrace.delivery import Lane, LogClock, Turn
from headrace.domain import HopsMeasured, Priority
from headrace.errors import BusError, OffsetOutOfRange, SetupError
from headrace.lifecycle import (
    BEATS,
    STATUS_PARTITION,
    DrainFlag,
    ExitCode,
    Health,
    Heartbeat,
    ProbeServer,
    Pulse,
    StatusReader,
    Watchdog,
    add_standby,
    configure_interpreter,
    drain_on_signals,
    end_with_any_thread,
    read_settings,
    run_to_exit,
    stand_by,
)
from headrace.registry import Catalog
from headrace.scheduling import BatchFormer
from headrace.telemetry import (
    FormerMetrics,
    MetricsRegistry,
    ProcessMetrics,
    configure_logs,
    get_log,
)
from headrace.wire import Claim, RequestDecoder, base_topics
from services.batch_former.acting import Acting
from services.batch_former.addresses import ReplyAddresses
from services.batch_former.answered import AnsweredKeys
from services.batch_former.consuming import Consuming
from services.batch_former.deadletters import DeadLetters
from services.batch_former.early import EarlyRequests
from services.batch_former.ids import batch_ids
from services.batch_former.inbox import Channel, Inbox
from services.batch_former.intake import Intake
from services.batch_former.lanes import Lanes, OwnedLane
from services.batch_former.linking import Linking
from services.batch_former.loop import Fenced, Loop
from services.batch_former.measuring import Measuring
from services.batch_former.messages import (
    LogTimeSampled,
    Message,
    ModelsRead,
    StatusRead,
    ThreadFailed,
)
from services.batch_former.ownership import Ownership
from services.batch_former.producing import Producing
from services.batch_former.published import Published
from services.batch_former.settings import FormerSettings
from services.batch_former.tiers import READING, Tier, Tiers
from services.batch_former.writing import Writing

__all__ = ["main", "serve"]

PROVISION_TIMEOUT_S = 30.0
FLUSH_S = 0.3

ORDERS = ProducerSettings(timeout_ms=1000, spares=True)
"""A batch or a sync that is not acked in time is asked about; of what is acked, its
worker tells."""
ANSWERS = ProducerSettings(timeout_ms=2000)
"""A reply, dead letter or claim that is not acked in time is written again."""
REQUEST_HEAD_BYTES = 65_536
"""What a request record may have beside its payload (``schemas/asyncapi.yaml``); the
topic of dead letters has room for twice as much."""

SELDOM = ReaderSettings(fetch_wait_ms=250)
DEFAULT = ReaderSettings()


def main() -> NoReturn:
    parser = argparse.ArgumentParser(prog="services.batch_former")
    parser.add_argument("--slot", type=int, default=0)
    add_standby(parser)
    options = parser.parse_args()
    stand_by(options)
    run_to_exit(
        lambda: serve(
            read_settings(FormerSettings, os.environ), options.slot, drain_on_signals()
        )
    )


def serve(settings: FormerSettings, slot: int, asked: DrainFlag) -> ExitCode:
    """Form batches until ``asked`` to drain."""
    configure_logs(settings.log, service="batch_former", slot=slot)
    end_with_any_thread()
    if slot < 0:
        raise SetupError(f"--slot {slot}: a batch former's slot is 0 or more")
    bus = settings.bus
    admin = KafkaAdmin(bus.connection(f"batch-former-{slot}"))
    # Its clients connect meanwhile.
    former = _Former(settings, slot, admin)
    try:
        admin.create_topics(base_topics(bus.topics, bus), PROVISION_TIMEOUT_S)
    except BusError as error:
        get_log().critical("topic.missing", code=error.code, text=str(error))
        return ExitCode.LOG_UNAVAILABLE
    get_log().info("process.started", pid=os.getpid())
    try:
        former.run(asked)
    except Fenced:
        get_log().critical("process.fenced")
        return ExitCode.FENCED
    except BusError as error:
        get_log().critical("process.failed", code=error.code, text=str(error))
        return ExitCode.LOG_UNAVAILABLE
    get_log().info("process.stopped")
    return ExitCode.OK


class _Former:
    """Everything that one process is made of, and the order of its start and end."""

    def __init__(self, settings: FormerSettings, slot: int, admin: KafkaAdmin) -> None:
        self._settings = settings
        self._slot = slot
        self._uuid = uuid.uuid4().hex
        self._topics = settings.bus.topics
        self._clock = SystemClock()
        self._log_clock = LogClock()
        self._catalog = Catalog()
        self._leads = False
        self._pulse = Pulse(self._clock)
        self._health = Health(
            self._pulse,
            {
                "models": "the table of models is not read yet",
                "log_clock": "the log's time is not known yet",
                "lane": "no lane is served yet",
            },
        )
        self._inbox: Inbox[Message] = Inbox()
        self._lanes = Lanes()
        self._turn = Turn()
        self._ownership = Ownership(
            self._inbox,
            self._reader("ranges"),
            TopicPartition(self._topics.status, STATUS_PARTITION),
            self._clock,
        )
        self._make_telemetry()
        self._make_readers()
        self._make_producers()
        self._keys = AnsweredKeys(
            self._topics,
            admin,
            partial(self._reader, "keys"),
            self._inbox,
            memory_us=settings.bus.key_memory_s * 1_000_000,
            clock=self._clock,
            log_clock=self._log_clock,
        )
        self._acting = self._make_acting(admin)
        self._intake = self._make_intake(admin)

    def run(self, asked: DrainFlag) -> None:
        loop = Loop(
            self._inbox,
            self._lanes,
            self._intake,
            self._acting,
            self._ownership,
            self._published,
            new_lane=self._new_lane,
            lead=self._lead,
            heartbeat=self._heartbeat,
            log_clock=self._log_clock,
            pulse=self._pulse,
            clock=self._clock,
        )
        watchdog = Watchdog(self._pulse, self._clock, self._stall)
        self._start()
        watchdog.start()
        configure_interpreter()
        try:
            loop.run(asked)
        finally:
            watchdog.stop()
        self._stop()

    def feed(self, sent_us: int, acked_us: int, log_us: int) -> None:
        """Hand a sample of the log's time from the heartbeat's thread to the loop."""
        self._inbox.put(Channel.STATUS, LogTimeSampled(sent_us, acked_us, log_us))

    def _make_telemetry(self) -> None:
        registry = MetricsRegistry()
        process, metrics = ProcessMetrics(registry), FormerMetrics(registry)
        folder = self._settings.fused.folder
        self._linking = Linking(folder, self._uuid, self._inbox, self._clock, metrics)
        scheduling = self._settings.scheduling
        hops = HopsMeasured(scheduling.control_hop_us, scheduling.response_hop_us)
        self._probes = ProbeServer(self._settings.admin, self._health, registry)
        rows_max = self._catalog.rows_max
        self._measuring = Measuring(self._topics, metrics, process, hops, rows_max)
        self._published = Published(
            self._topics,
            self._measuring,
            metrics,
            process,
            self._health,
            slot=self._slot,
            former=self._uuid,
            admin=self._probes.url,
        )

    def _make_readers(self) -> None:
        self._consuming = partial(
            Consuming,
            inbox=self._inbox,
            changes=itertools.count(1),
            records_max=self._settings.former.records_max,
        )
        self._requests = [self._requests_of(priority) for priority in Priority]
        self._completions = self._consuming(
            self._reader("completions"), Channel.COMPLETIONS
        )
        self._models = TableReader(
            self._reader("models", SELDOM),
            self._topics.control_models,
            lambda records: self._inbox.put(Channel.MODELS, ModelsRead(records)),
            partial(self._fail, "models"),
        )
        self._status = StatusReader(
            self._reader("status", SELDOM),
            self._topics.status,
            lambda records: self._inbox.put(Channel.STATUS, StatusRead(records)),
            partial(self._fail, "status"),
        )

    def _requests_of(self, priority: Priority, tier: Tier = Tier.HOT) -> Consuming:
        settings, look_s = READING[tier]
        name = priority.name.lower() + (".idle" if tier is Tier.COLD else "")
        ahead_bytes = self._settings.former.ahead_bytes_max
        reader = self._reader(name, settings._replace(queue_bytes_max=ahead_bytes))
        return self._consuming(reader, Channel.of(priority), look_s=look_s)

    def _tiers(self, priority: Priority) -> Tiers:
        def make_cold() -> Consuming:
            cold = self._requests_of(priority, Tier.COLD)
            self._requests.append(cold)
            cold.start()
            return cold

        reading = self._settings.former
        return Tiers(
            self._requests[priority],
            make_cold,
            hot_max=reading.hot_partitions_max,
            idle_us=reading.idle_ms * 1000,
        )

    def _make_producers(self) -> None:
        orders = self._producer("orders", ORDERS)
        answers = self._producer("answers", ANSWERS)
        self._orders = Producing(orders, "orders", self._inbox, failures_only=True)
        self._answers = Producing(answers, "answers", self._inbox)
        self._dead_letters = DeadLetters(
            self._topics,
            self._reader("deadletters"),
            self._answers,
            self._clock,
            original_bytes_max=self._settings.bus.payload_bytes_max
            + REQUEST_HEAD_BYTES,
        )
        self._heartbeat = Heartbeat(
            self._producer("heartbeat", BEATS),
            self._topics.status,
            self._published.key,
            self._published.heartbeat,
            pulse=self._pulse,
            clock=self._clock,
            log_time=self,
        )

    def _make_acting(self, admin: KafkaAdmin) -> Acting:
        claim = Claim(
            instance=self._instance_id,
            former=self._uuid,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_us=0,
        )
        writing = Writing(
            self._topics,
            claim,
            self._log_clock,
            started_us=self._clock.now_us(),
            version_of=self._catalog.lookup,
            measuring=self._measuring,
            orders=self._orders,
            answers=self._answers,
            linking=self._linking,
            dead_letters=self._dead_letters,
        )
        return Acting(
            self._topics,
            self._lanes,
            requests=[self._tiers(priority) for priority in Priority],
            completions=self._completions,
            ownership=self._ownership,
            writing=writing,
            measuring=self._measuring,
            admin=admin,
            keys=self._keys,
            linking=self._linking,
        )

    def _make_intake(self, admin: KafkaAdmin) -> Intake:
        decoder = RequestDecoder(
            self._topics,
            version_of=self._catalog.lookup,
            partitions_of=ReplyAddresses(admin, self._clock).partitions,
            to_mono=self._log_clock.to_mono,
            payload_bytes_max=self._settings.bus.stored_bytes_max,
        )
        return Intake(
            self._topics,
            self._lanes,
            self._acting,
            self._catalog,
            decoder=decoder,
            early=EarlyRequests(self._log_clock.to_mono),
            measuring=self._measuring,
            slot=self._slot,
            former=self._uuid,
        )

    def _new_lane(self, lane: int, term: int) -> OwnedLane:
        bus = self._settings.bus
        scheduler = BatchFormer(self._settings.scheduler, batch_ids=batch_ids())
        core = Lane(
            lane,
            former=self._uuid,
            worker_slots=range(lane, bus.worker_slots, bus.lanes),
            topics=self._topics,
            scheduler=scheduler,
            limits=self._settings.lane_limits,
            turn=self._turn,
        )
        now_us = self._clock.now_us()
        return OwnedLane(lane, term, core, scheduler, taken_us=now_us)

    def _lead(self) -> bool:
        """Join the group once lanes can be served: their models are known, time can
        be told, for which heartbeats have to be acked, and heartbeats are read."""
        if self._models.caught_up:
            self._health.met("models")
        has_time = self._log_clock.is_set and self._intake.status_at > 0
        if has_time:
            self._health.met("log_clock")
        if not (self._models.caught_up and has_time):
            return False
        leader = KafkaLeader(
            self._connection("leader"),
            group=self._topics.lane_group,
            instance_id=self._instance_id,
            topic=self._topics.lanes,
            listener=self._ownership,
            settings=self._settings.bus.leader,
        )
        self._ownership.start(leader)
        self._leads = True
        return True

    @property
    def _instance_id(self) -> str:
        topics = self._topics
        return f"{topics.prefix}.{topics.pool}.batch_former.{self._slot}"

    def _start(self) -> None:
        self._probes.start()
        get_log().info("admin.listening", url=self._probes.url)
        for reader in (*self._requests, self._completions):
            reader.start()
        for writer in (self._orders, self._linking, self._answers, self._dead_letters):
            writer.start()
        for follower in (self._keys, self._models, self._status, self._heartbeat):
            follower.start()

    def _stop(self) -> None:
        """The lanes are left: nothing that is read or acked now matters."""
        self._inbox.close()
        self._ownership.stop(leave=self._intake.has_heir)
        for reader in (*self._requests, self._completions):
            reader.stop()
        for part in (self._models, self._status, self._dead_letters, self._keys):
            part.stop()
        self._orders.stop(FLUSH_S)
        self._linking.stop()
        self._answers.stop(FLUSH_S)
        self._heartbeat.stop()
        self._probes.stop()

    def _stall(self) -> None:
        get_log().critical("loop.stalled")
        os._exit(ExitCode.STALLED)

    def _fail(self, thread: str, error: BusError) -> None:
        get_log().warning("read.failed", thread=thread, text=str(error))
        # While it starts, a reader tries again by itself: a topic that was just made
        # may have no leader yet.
        if self._leads and not isinstance(error, OffsetOutOfRange):
            self._inbox.put(Channel.OWNERSHIP, ThreadFailed(thread, error))

    def _connection(self, client: str) -> KafkaConnection:
        return self._settings.bus.connection(f"batch-former-{self._slot}.{client}")

    def _reader(self, client: str, settings: ReaderSettings = DEFAULT) -> KafkaReader:
        return KafkaReader(self._connection(client), settings)

    def _producer(self, client: str, settings: ProducerSettings) -> KafkaProducer:
        return KafkaProducer(self._connection(client), settings)
