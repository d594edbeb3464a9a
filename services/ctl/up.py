"""``headrace up`` and ``headrace down``."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated

import msgspec
from cyclopts import Parameter

from headrace.broker import KafkaConnection, reach
from headrace.clock import SystemClock
from headrace.embedded import EmbeddedKafka, KafkaSettings
from headrace.errors import BusError, SetupError
from headrace.links import LinkFolder
from headrace.wire import Topics
from services.ctl.checking import check_settings
from services.ctl.console import Console
from services.ctl.errors import UsageError
from services.ctl.installation import (
    Counts,
    Installation,
    KafkaPlace,
    reserve_ports,
)
from services.ctl.models import VersionRow, announced_versions
from services.ctl.neighbours import refuse_beside_another
from services.ctl.options import PORT_MAX, Port, Processes, usable, writable_folder
from services.ctl.readiness import await_ready, ready_sentences
from services.ctl.running import (
    DATA_FOLDER,
    EPHEMERAL_PREFIX,
    StateFile,
    all_running,
    find_running,
)
from services.ctl.supervision import Service, Supervision
from services.ctl.supervisor import Restarted, Supervisor
from services.ctl.where import KAFKA_ANSWERS_WITHIN_S, kafka_elsewhere, topic_prefix

__all__ = ["down", "up"]

_LINKS_FOLDER = "HEADRACE_FUSED__FOLDER"
_OPEN_FILES = 65_536
_KAFKA_STOPS_WITHIN_S = 4.0
_ENDS_WITHIN_S = 25.0
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """What ``headrace up`` is asked for.

    Parameters
    ----------
    models
        Folder of models, MODEL/VERSION/model.onnx [default: DATA/models]
    http_port
        Port of the first ingress; the next ones follow. 0 takes free ports.
    kafka_port
        Port of the embedded Kafka. 0 takes a free one.
    ingress
        How many processes take requests in.
    formers
        How many processes form batches; at most one per lane.
    workers
        How many processes run models; at least one per lane.
    lanes
        Independent shards of the traffic.
    fused
        Hand batches to the workers past the log, with the same guarantees.
    data
        Folder that keeps the queue over restarts [default: .headrace].
    ephemeral
        Keep nothing: a temporary folder in place of DATA. Another cluster keeps what
        is written there.
    as_json
        Print one JSON line when ready and one per restart; the log is on stderr.
    """

    models: Path | None = None
    http_port: Port = 8000
    kafka_port: Port = 9092
    ingress: Processes = 1
    formers: Processes = 1
    workers: Processes = 1
    lanes: Processes = 1
    fused: Annotated[bool, Parameter(negative=())] = False
    data: Path | None = None
    ephemeral: Annotated[bool, Parameter(negative=())] = False
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False


def up(options: Options = Options()) -> int:
    """Start Apache Kafka and the services, and restart what dies, until Ctrl-C.

    With KAFKA_BOOTSTRAP_SERVERS set, that cluster is used and none is started.
    """
    counts = Counts(options.ingress, options.formers, options.workers, options.lanes)
    _check_together(options)
    check_settings(os.environ)
    _allow_many_connections()
    with ExitStack() as stack:
        return _run(options, counts, stack)


def down(*, data: Path | None = None) -> int:
    """Stop what `headrace up` started in this directory, from any shell.

    Parameters
    ----------
    data
        The folder given to `up`.
    """
    running = find_running(data)
    if running is None:
        print(f"Nothing runs from {data or DATA_FOLDER}.")
        for other in all_running() if data is None else ():
            where = f" (started in {other.started_in})" if other.started_in else ""
            print(
                f"What runs{where} is stopped by `headrace down --data {other.data}`."
            )
        return 0
    if not running.stop(_ENDS_WITHIN_S):
        raise SetupError(
            f"Process {running.pid} still drains after {_ENDS_WITHIN_S:g} s: "
            f"run `headrace down` again to kill what is left."
        )
    print(f"Stopped what ran from {running.data}.")
    return 0


def _check_together(options: Options) -> None:
    """Raises UsageError where options that are right alone do not fit."""
    lanes = options.lanes
    if options.workers < lanes:
        raise UsageError(
            f"--workers {options.workers} is too few for --lanes {lanes}, since each "
            f"lane needs a worker of its own: give --workers {lanes}."
        )
    if options.formers > lanes:
        raise UsageError(
            f"--formers {options.formers} is too many for --lanes {lanes}, since a "
            f"lane has one former: give --lanes {options.formers}."
        )
    if options.ephemeral and options.data is not None:
        raise UsageError(
            "--ephemeral keeps nothing and --data keeps the queue: give one of them."
        )
    if not options.http_port:
        return
    last = options.http_port + options.ingress - 1
    wanted = f"--http-port {options.http_port} with --ingress {options.ingress}"
    if last > PORT_MAX:
        raise UsageError(f"{wanted} would need port {last}; the last is {PORT_MAX}.")
    if options.http_port <= options.kafka_port <= last and not kafka_elsewhere():
        raise UsageError(
            f"{wanted} takes ports {options.http_port} to {last}, which "
            f"--kafka-port {options.kafka_port} is one of: choose another."
        )


def _allow_many_connections() -> None:
    """Children inherit the limit; the default of many systems ends at 1,000."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _run(options: Options, counts: Counts, stack: ExitStack) -> int:
    console = Console()
    # Until the supervisor takes over, a signal ends the start where it is.
    for number in _ENDING:
        signal.signal(number, _interrupt_once)
    try:
        data = _data_folder(options, stack)
        models = _models_folder(options.models, data)
        state = StateFile(data, models)
        stack.callback(state.close)
        ports = reserve_ports(counts, options.http_port)
        for port in ports.values():
            stack.callback(port.release)
        links = _links_folder(data, fused=options.fused)
        kafka, bootstrap_servers = _kafka(options, data, console, stack)
        installation = Installation(
            counts,
            ports,
            models=models,
            files=(data / "files").absolute(),
            links=links,
            kafka=kafka,
            bootstrap_servers=bootstrap_servers,
            console=console,
        )
    except KeyboardInterrupt:
        console.say("stopped before it was ready")
        return 0
    return _Platform(installation, models, state, console, options).run()


def _interrupt_once(_number: int, _frame: FrameType | None) -> None:
    """What is being cleaned up is not interrupted again; it takes seconds at most."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _data_folder(options: Options, stack: ExitStack) -> Path:
    if options.ephemeral:
        with usable("temporary folder", tempfile.gettempdir(), "set TMPDIR"):
            folder = Path(tempfile.mkdtemp(prefix=EPHEMERAL_PREFIX))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder
    data = options.data or DATA_FOLDER
    return writable_folder("data folder", data, "name another one with --data")


def _models_folder(models: Path | None, data: Path) -> Path:
    folder = data / "models" if models is None else models
    remedy = "create it, or name another one with --models"
    with usable("models folder", folder, remedy):
        if models is None:
            folder.mkdir(exist_ok=True)
        next(folder.iterdir(), None)
        return folder.absolute()


def _links_folder(data: Path, *, fused: bool) -> Path | None:
    """Tried before Kafka is started. Raises SetupError, as each service would."""
    given = os.environ.get(_LINKS_FOLDER)
    if given is None and not fused:
        return None
    folder = (data / "links").absolute() if given is None else Path(given)
    LinkFolder(folder).close()
    return folder


def _kafka(
    options: Options, data: Path, console: Console, stack: ExitStack
) -> tuple[KafkaPlace | None, str]:
    """The embedded broker, started, or the address of another cluster."""
    elsewhere = kafka_elsewhere()
    if elsewhere:
        connection = KafkaConnection(elsewhere, "headrace-ctl")
        reach(connection, KAFKA_ANSWERS_WITHIN_S)
        prefix = topic_prefix()
        kept = (
            f"; --ephemeral keeps no folder here, but what is written there stays, in "
            f"topics {prefix}.*"
        )
        console.say(
            f"using Apache Kafka at {elsewhere}{kept if options.ephemeral else ''}"
        )
        refuse_beside_another(connection, Topics(prefix), console.say)
        return None, elsewhere
    settings = KafkaSettings(
        folder=data / "kafka",
        port=options.kafka_port,
        # Of what nobody will read nothing is written out.
        stop_timeout_s=0.0 if options.ephemeral else _KAFKA_STOPS_WITHIN_S,
    )
    kafka = EmbeddedKafka(settings, say=console.say)
    running = kafka.start()
    stack.callback(kafka.stop)
    console.say(
        f"Apache Kafka answers at {running.bootstrap_servers} "
        f"after {running.ready_s:.1f} s (its log: {running.log})"
    )
    return KafkaPlace(kafka, running), running.bootstrap_servers


class _Platform:
    """The running children, and what is told about them."""

    def __init__(
        self,
        installation: Installation,
        models: Path,
        state: StateFile,
        console: Console,
        options: Options,
    ) -> None:
        self._installation = installation
        self._models = models
        self._state = state
        self._console = console
        self._as_json = options.as_json
        self._ended = threading.Event()
        self._printing = threading.Lock()
        self._is_ready = False
        self._supervisor = Supervisor(
            Supervision(installation.children, installation.restart_policy),
            installation.launch,
            clock=SystemClock(),
            say=console.say,
            on_change=self._write_state,
            on_restart=self._tell_restart,
            on_last=installation.retire,
        )

    def run(self) -> int:
        for number in _ENDING:
            signal.signal(number, self._asked_to_stop)
        watch = threading.Thread(target=self._await_ready, name="readiness")
        watch.start()
        went_well = self._supervisor.run()
        self._ended.set()
        watch.join()
        return 0 if went_well else 1

    def _asked_to_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._supervisor.stop()

    def _await_ready(self) -> None:
        urls = [url for service in Service for url in self._installation.urls(service)]
        ingresses = self._installation.urls(Service.INGRESS)
        connection = self._installation.connection
        if not await_ready(urls, ingresses, self._models, connection, self._ended):
            return
        rows = self._announced(connection)
        with self._printing:
            document = self._installation.document(self._supervisor.pids())
            for sentence in ready_sentences(document.http, self._models, rows):
                self._console.say(sentence)
            if self._as_json:
                _print(document)
            self._is_ready = True

    def _announced(self, connection: KafkaConnection) -> list[VersionRow]:
        try:
            return asyncio.run(announced_versions(connection, topic_prefix()))
        except BusError:
            return []  # it is ready all the same

    def _write_state(self) -> None:
        pids = self._supervisor.pids()
        self._state.write(self._installation.document(pids), list(pids.values()))

    def _tell_restart(self, restarted: Restarted) -> None:
        with self._printing:
            # The ready line is the first, and tells the processes of its time.
            if self._as_json and self._is_ready:
                child = restarted.child
                line = {
                    "service": child.service,
                    "slot": child.slot,
                    "pid": restarted.pid,
                    "previous_exit": restarted.previous_exit,
                }
                _print({"restarted": line})


def _print(value: object) -> None:
    # Whoever read the lines may be gone; the platform is not for him alone.
    with suppress(BrokenPipeError):
        sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
        sys.stdout.flush()
