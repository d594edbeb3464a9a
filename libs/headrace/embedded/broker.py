"""Start, watch and stop one Apache Kafka."""

import base64
import errno
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from uuid import uuid4

from headrace.embedded.ending import ended, full_disk
from headrace.embedded.jars import cache_folder, fetch_jars
from headrace.embedded.java import find_java
from headrace.embedded.ports import check_free, free_port
from headrace.embedded.probe import answers_metadata
from headrace.embedded.process import TiedProcess
from headrace.embedded.properties import (
    FORMAT_OPTIONS,
    HOST,
    JVM_OPTIONS,
    server_properties,
)
from headrace.embedded.storage import (
    EPHEMERAL_PREFIX,
    FolderLock,
    prepare_storage,
    sweep_ephemeral,
)
from headrace.errors import SetupError

__all__ = ["EmbeddedKafka", "KafkaSettings", "RunningKafka"]

_POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """How to run the broker.

    ``folder`` None is a temporary folder, removed by stop(); ``port`` 0 takes a free
    one. ``advertised_port`` is where clients are told to come back to: what passes
    their bytes on to ``port``; None: ``port`` itself. The largest record set that the
    broker accepts is ``batch_bytes_max`` plus 1 MiB. ``cache`` None is the user's cache
    folder.
    """

    folder: Path | None = None
    port: int = 0
    advertised_port: int | None = None
    batch_bytes_max: int = 16 * 1024 * 1024
    start_timeout_s: float = 60.0
    stop_timeout_s: float = 15.0
    cache: Path | None = None


@dataclass(frozen=True, slots=True)
class RunningKafka:
    """A broker that has answered; ``ready_s`` is from the JVM's start to then."""

    bootstrap_servers: str
    pid: int
    ready_s: float
    log: Path


class EmbeddedKafka:
    """One broker. Used as a context manager it runs inside the block.

    It ends with this process, also when this one is killed. A start() after an end
    keeps ports and data, so that clients find it again.
    """

    def __init__(
        self, settings: KafkaSettings, *, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self._settings = settings
        self._say = say
        self._ports: tuple[int, int] | None = None
        self._temporary: Path | None = None
        self._process: TiedProcess | None = None

    def start(self) -> RunningKafka:
        """Run it and wait until it answers.

        Raises SetupError, whose text says what to do, if it cannot run here.
        """
        folder = self._make_folder()
        try:
            lock = FolderLock(folder)
        except OSError as error:
            raise _unusable(folder, error) from error
        try:
            return self._run(folder, lock)
        except BaseException:
            self.stop()
            raise
        finally:
            lock.release()

    def stop(self) -> None:
        """End the broker cleanly, by force after ``stop_timeout_s``, and at once where
        its folder goes with it; idempotent."""
        if self._process is not None:
            is_kept = self._temporary is None
            self._process.stop(self._settings.stop_timeout_s if is_kept else 0.0)
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The broker's exit status, or None if it still runs after ``timeout_s``."""
        return None if self._process is None else self._process.wait(timeout_s)

    def full_disk(self) -> str:
        """What to say of a disk without room for the broker; empty: it has room."""
        return full_disk(self._settings.folder) if self._settings.folder else ""

    def __enter__(self) -> RunningKafka:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _make_folder(self) -> Path:
        if self._settings.folder is None:
            if self._temporary is None:
                sweep_ephemeral()
                self._temporary = Path(tempfile.mkdtemp(prefix=EPHEMERAL_PREFIX))
            return self._temporary
        folder = self._settings.folder.absolute()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unusable(folder, error) from error
        return folder

    def _run(self, folder: Path, lock: FolderLock) -> RunningKafka:
        if self._ports is None:
            self._ports = (self._settings.port or free_port(HOST), free_port(HOST))
        port, controller_port = self._ports
        check_free(HOST, port)
        java = find_java()
        jars = fetch_jars(self._settings.cache or cache_folder(), say=self._say)
        class_path = ("-cp", ":".join(map(str, jars)))
        log = folder / "kafka.log"
        if log.exists():
            log.replace(folder / "kafka.log.1")
        properties = folder / "server.properties"

        def configure(log_folder: Path) -> None:
            text = server_properties(
                port=port,
                advertised_port=self._settings.advertised_port or port,
                controller_port=controller_port,
                log_folder=log_folder,
                batch_bytes_max=self._settings.batch_bytes_max,
            )
            properties.write_text(text, "utf-8")

        def format_into(log_folder: Path) -> None:
            configure(log_folder)
            _format((str(java), *FORMAT_OPTIONS, *class_path), properties, log)

        try:
            configure(prepare_storage(folder, format_into))
        except OSError as error:
            raise _unusable(folder, error) from error
        started = time.monotonic()
        with log.open("ab") as output:
            self._process = TiedProcess(
                (java, *JVM_OPTIONS, *class_path, "kafka.Kafka", properties),
                output=output,
                pass_fds=(lock.fd,),
            )
        lock.note_broker(self._process.pid)
        self._await_ready(self._process, port, log)
        ready_s = time.monotonic() - started
        return RunningKafka(f"{HOST}:{port}", self._process.pid, ready_s, log)

    def _await_ready(self, process: TiedProcess, port: int, log: Path) -> None:
        patience_s = self._settings.start_timeout_s
        deadline = time.monotonic() + patience_s
        while not answers_metadata(HOST, port):
            status = process.wait(_POLL_S)
            if status is not None:
                raise ended(status, log)
            if time.monotonic() > deadline:
                raise SetupError(
                    f"Apache Kafka did not answer within {patience_s:g} s: start "
                    f"again if the machine is busy, and look into {log} if not."
                )


def _format(tool: tuple[str, ...], properties: Path, log: Path) -> None:
    with log.open("ab") as output:
        done = subprocess.run(
            (
                *(*tool, "kafka.tools.StorageTool", "format", "--standalone"),
                *("-t", _new_cluster_id(), "-c", properties),
            ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        raise ended(done.returncode, log)


def _new_cluster_id() -> str:
    """22 characters of URL-safe base64.

    One that begins with "-" is drawn again: the tool would take it for an option.
    """
    while True:
        identity = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        if not identity.startswith("-"):
            return identity


def _unusable(folder: Path, error: OSError) -> SetupError:
    if error.errno == errno.ENOSPC:
        full = full_disk(folder) or f"the disk of {folder} is full: free some"
        return SetupError(f"Apache Kafka cannot start: {full}.")
    return SetupError(
        f"The data folder {folder} cannot be used ({error.strerror}): choose another "
        f"one, or change its owner."
    )
