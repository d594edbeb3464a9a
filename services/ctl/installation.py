"""One platform on this machine: its places, ports and settings."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.broker import KafkaConnection
from headrace.embedded import EmbeddedKafka, RunningKafka, TiedProcess
from headrace.errors import SetupError
from services.ctl.console import Console, fatal_text
from services.ctl.ports import ReservedPort
from services.ctl.running import Document
from services.ctl.spares import Spares
from services.ctl.supervision import Child, RestartPolicy, Service
from services.ctl.supervisor import ChildProcess

__all__ = ["Counts", "Installation", "KafkaPlace", "reserve_ports"]

_INGRESS_SLOTS = 16
_WORKER_SLOTS = 16
# Our broker allows short sessions; another cluster may not.
_SESSION_MS = 3_000
_SESSION_ELSEWHERE_MS = 6_000
_FILES_URL = "HEADRACE_FILES__URL"
_SUCCESSION = "HEADRACE_HTTP__SUCCESSION"
_LAST_LINES_WITHIN_S = 1.0
_HISTORY_BYTES = 1 << 30
# Within the supervisor's patience with an ingress; the default limit of a request is
# below it.
_INGRESS_DRAIN_MS = 6_000
# Clients wait meanwhile, and a start is mostly interpreter and imports.
_WITH_SPARES = frozenset({Service.BATCH_FORMER, Service.INGRESS})


@dataclass(frozen=True, slots=True)
class Counts:
    """How many of each."""

    ingress: int
    formers: int
    workers: int
    lanes: int

    def children(self) -> list[Child]:
        """In the order of their start."""
        return [
            *(Child(Service.BATCH_FORMER, slot) for slot in range(self.formers)),
            *(Child(Service.GPU_WORKER, slot) for slot in range(self.workers)),
            *(Child(Service.INGRESS, slot) for slot in range(self.ingress)),
        ]


class KafkaPlace:
    """The embedded broker as a child: the one that ``up`` started first, and the
    ones after it."""

    def __init__(self, kafka: EmbeddedKafka, running: RunningKafka) -> None:
        self._kafka = kafka
        self._first: RunningKafka | None = running
        self.bootstrap_servers = running.bootstrap_servers

    def launch(self) -> ChildProcess:
        running, self._first = self._first or self._kafka.start(), None
        return _KafkaProcess(self._kafka, running.pid)


class _KafkaProcess:
    def __init__(self, kafka: EmbeddedKafka, pid: int) -> None:
        self._kafka = kafka
        self.pid = pid
        self.last_words = ""

    def wait(self) -> int:
        status = self._kafka.wait()
        assert status is not None
        if status > 0:
            self.last_words = self._kafka.full_disk()
        return status

    def asks_for_successor(self) -> bool:
        return False

    def terminate(self) -> None:
        threading.Thread(target=self._kafka.stop, name="stop kafka").start()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class _ServiceProcess:
    """A service whose lines go to the merged log until it has ended."""

    def __init__(
        self,
        child: Child,
        process: TiedProcess,
        lines: int,
        console: Console,
        succession: socket.socket | None,
    ) -> None:
        """``succession``: where it asks for its successor."""
        self._process = process
        self._succession = succession
        self.pid = process.pid
        self.last_words = ""
        self._copier = threading.Thread(
            target=self._copy_lines,
            args=(child, lines, console),
            name=f"lines of {child}",
            daemon=True,
        )
        self._copier.start()

    def _copy_lines(self, child: Child, reader: int, console: Console) -> None:
        with os.fdopen(reader, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self.last_words = fatal_text(line) or self.last_words
                console.line(str(child), line.rstrip("\n"))

    def asks_for_successor(self) -> bool:
        succession = self._succession
        return succession is not None and bool(succession.recv(1))

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    def wait(self) -> int:
        status = self._process.wait()
        assert status is not None
        # A grandchild may hold the pipe open.
        self._copier.join(_LAST_LINES_WITHIN_S)
        return status

    def terminate(self) -> None:
        if self._succession is not None:
            with suppress(OSError):  # it has ended
                self._succession.shutdown(socket.SHUT_RDWR)
        self._process.send(signal.SIGTERM)

    def kill(self) -> None:
        self._process.send(signal.SIGKILL)


def reserve_ports(counts: Counts, http_port: int) -> dict[Child, ReservedPort]:
    """A port for each child, the ingresses' from ``http_port`` on, where connections
    are let in already.

    Raises SetupError if one of those is taken.
    """
    ports: dict[Child, ReservedPort] = {}
    for child in counts.children():
        number = 0
        if child.service is Service.INGRESS and http_port:
            number = http_port + child.slot
        port = ports[child] = ReservedPort(number, option="--http-port")
        if child.service is Service.INGRESS:
            port.listen()
    return ports


class Installation:
    """Everything that ``up`` fixes before the first child starts."""

    def __init__(  # noqa: PLR0913 - what the children are told
        self,
        counts: Counts,
        ports: dict[Child, ReservedPort],
        *,
        models: Path,
        files: Path,
        links: Path | None,
        kafka: KafkaPlace | None,
        bootstrap_servers: str,
        console: Console,
    ) -> None:
        self._counts = counts
        self._ports = ports
        self._models = models
        self._files = files
        self._links = links
        self._kafka = kafka
        self._bootstrap_servers = bootstrap_servers
        self._console = console
        self._session_ms = _SESSION_ELSEWHERE_MS if kafka is None else _SESSION_MS
        self._spares = Spares(self._start_spare, console.say)

    @property
    def children(self) -> list[Child]:
        kafka = [Child(Service.KAFKA, 0)] if self._kafka else []
        return [*kafka, *self._counts.children()]

    @property
    def connection(self) -> KafkaConnection:
        return KafkaConnection(self._bootstrap_servers, "headrace-ctl")

    @property
    def restart_policy(self) -> RestartPolicy:
        return RestartPolicy(fenced_us=2 * self._session_ms * 1000)

    def urls(self, service: Service) -> list[str]:
        """Where the processes of a service answer /livez, /readyz and /metrics."""
        return [
            port.url for child, port in self._ports.items() if child.service is service
        ]

    def document(self, pids: Mapping[Child, int]) -> Document:
        by_service: dict[str, list[int]] = {service: [] for service in Service}
        for child in sorted(pids):
            by_service[child.service].append(pids[child])
        admin = (Service.BATCH_FORMER, Service.GPU_WORKER)
        return Document(
            http=self.urls(Service.INGRESS),
            bootstrap_servers=self._bootstrap_servers,
            pids=by_service,
            admin={str(service): self.urls(service) for service in admin},
        )

    def launch(self, child: Child, previous_exit: str) -> ChildProcess:
        """Start a process for ``child``. Raises SetupError if it cannot be started."""
        if child.service is Service.KAFKA:
            assert self._kafka is not None
            return self._kafka.launch()
        process: ChildProcess | None = None
        if child.service in _WITH_SPARES:
            process = self._spares.take(child)
            self._spares.prepare(child)
        return process or self._start(
            child, self._environment(child, previous_exit), self._inherited(child)
        )

    def _start_spare(self, child: Child, line: int) -> _ServiceProcess:
        environment = self._environment(child, "")
        inherited = (line, *self._inherited(child))
        return self._start(child, environment, inherited, "--standby", str(line))

    def _start(
        self,
        child: Child,
        environment: Mapping[str, str],
        inherited: tuple[int, ...],
        *options: str,
    ) -> _ServiceProcess:
        succession, theirs = None, None
        try:
            reader, writer = os.pipe()
            try:
                if child.service is Service.INGRESS:
                    succession, theirs = socket.socketpair()
                    number = theirs.fileno()
                    inherited = (*inherited, number)
                    environment = {**environment, _SUCCESSION: str(number)}
                process = TiedProcess(
                    (
                        *(sys.executable, "-m", f"services.{child.service}"),
                        *(*options, "--slot", str(child.slot)),
                    ),
                    output=writer,
                    pass_fds=inherited,
                    environment=environment,
                )
            finally:
                os.close(writer)
                if theirs is not None:
                    theirs.close()
        except OSError as error:
            raise SetupError(
                f"the system starts no process ({error.strerror}): end other programs, "
                f"or raise the limits that `ulimit -a` shows"
            ) from error
        return _ServiceProcess(child, process, reader, self._console, succession)

    def retire(self, child: Child) -> None:
        """Nobody will run for ``child`` any more: who connects is refused, and does not
        wait for nothing."""
        self._spares.retire(child)
        if child in self._ports:
            self._ports[child].release()

    def _inherited(self, child: Child) -> tuple[int, ...]:
        """The child's listening socket."""
        is_ingress = child.service is Service.INGRESS
        return (self._ports[child].fileno(),) if is_ingress else ()

    def _environment(self, child: Child, previous_exit: str) -> dict[str, str]:
        settings = {
            "BUS__BOOTSTRAP_SERVERS": self._bootstrap_servers,
            "BUS__LANES": str(self._counts.lanes),
            "BUS__WORKER_SLOTS": str(max(_WORKER_SLOTS, self._counts.workers)),
            "BUS__INGRESS_SLOTS": str(max(_INGRESS_SLOTS, 2 * self._counts.ingress)),
            "BUS__SESSION_MS": str(self._session_ms),
        }
        if self._kafka is not None:
            settings["BUS__HISTORY_BYTES"] = str(_HISTORY_BYTES)
        if self._links is not None:
            settings["FUSED__FOLDER"] = str(self._links)
        port = str(self._ports[child].number)
        match child.service:
            case Service.INGRESS:
                (listening,) = self._inherited(child)
                settings |= {
                    "HTTP__SOCKET": str(listening),
                    "LIMITS__DRAIN_MS": str(_INGRESS_DRAIN_MS),
                    "FILES__URL": os.environ.get(_FILES_URL, str(self._files)),
                }
            case Service.GPU_WORKER:
                settings |= {
                    "ADMIN__PORT": port,
                    "MODELS__FOLDER": str(self._models),
                    "WORKER__PREVIOUS_EXIT": previous_exit,
                }
            case _:
                settings["ADMIN__PORT"] = port
        ours = {f"HEADRACE_{name}": value for name, value in settings.items()}
        # Set by the operator, whatever it is, except what only we can know.
        return {**os.environ, "PYTHONUNBUFFERED": "1", **ours}
