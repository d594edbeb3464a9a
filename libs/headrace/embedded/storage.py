"""The broker's folder: who holds it, and whether it can be used.

``lock``     held with flock by the broker itself, so it is free when that is dead
``storage``  the formatted log folder and a note of the version that formatted it;
             appears by a rename, so it is whole or absent
``kafka.log``, ``server.properties``  written anew at each start
"""

import fcntl
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from headrace.embedded.jars import KAFKA_VERSION
from headrace.errors import SetupError

__all__ = ["EPHEMERAL_PREFIX", "FolderLock", "prepare_storage", "sweep_ephemeral"]

EPHEMERAL_PREFIX = "headrace-kafka-"
_LEFTOVER_ENDS_WITHIN_S = 10.0
"""A broker that its parent left behind is asked to end, and killed after so long: it
may be frozen, and what it has acknowledged is in its files."""
_LEFTOVER_GONE_WITHIN_S = 15.0
_POLL_S = 0.05
_SETTLED_AFTER_S = 60.0


class FolderLock:
    """The right to run a broker in ``folder``.

    The file descriptor is handed to the broker; when the holder here closes its own,
    the lock lives exactly as long as the broker.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "lock"
        self.fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._acquire()
        except BaseException:
            os.close(self.fd)
            raise
        self._write({"supervisor": _identity(os.getpid())})

    def note_broker(self, pid: int) -> None:
        """Write down who runs, for whoever finds the lock taken."""
        self._write(
            {"supervisor": _identity(os.getpid()), "broker": _identity(pid)},
        )

    def release(self) -> None:
        """Give up this process's share of the lock."""
        os.close(self.fd)

    def _acquire(self) -> None:
        began = time.monotonic()
        told: signal.Signals | None = None
        while not _try_lock(self.fd):
            holder = self._read()
            broker, supervisor = holder.get("broker"), holder.get("supervisor")
            if supervisor is not None and _runs(supervisor):
                pid = (broker or supervisor)[0]
                raise SetupError(
                    f"The data folder {self._folder} is in use by process {pid}: "
                    f"stop that one with `headrace down`, or choose another folder."
                )
            waited_s = time.monotonic() - began
            is_patient = waited_s < _LEFTOVER_ENDS_WITHIN_S
            wanted = signal.SIGTERM if is_patient else signal.SIGKILL
            if broker is not None and told is not wanted and _is_broker(broker):
                os.kill(broker[0], wanted)
                told = wanted
            if waited_s > _LEFTOVER_GONE_WITHIN_S:
                orphan = f"process {broker[0]}" if broker else "an unknown process"
                raise SetupError(
                    f"A broker whose supervisor is gone ({orphan}) still holds "
                    f"{self._folder}: kill it and start again."
                )
            time.sleep(_POLL_S)

    def _read(self) -> dict[str, list[int]]:
        try:
            holder: dict[str, list[int]] = json.loads(self._path.read_bytes())
        except ValueError:
            return {}
        return holder

    def _write(self, holder: dict[str, list[int]]) -> None:
        text = json.dumps(holder).encode()
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, text, 0)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _identity(pid: int) -> list[int]:
    """A process id alone is used again; with its start (ms) it is not."""
    try:
        return [pid, int(psutil.Process(pid).create_time() * 1000)]
    except psutil.NoSuchProcess:
        return [pid, 0]


def _runs(identity: list[int]) -> bool:
    return _identity(identity[0]) == identity


def _is_broker(identity: list[int]) -> bool:
    """Others may have written the file; what it names is signalled only if it is a
    broker of this user's."""
    try:
        process = psutil.Process(identity[0])
        is_ours = process.uids().real == os.geteuid()
        return is_ours and "kafka.Kafka" in process.cmdline() and _runs(identity)
    except psutil.Error:
        return False


def prepare_storage(folder: Path, format_into: Callable[[Path], None]) -> Path:
    """The formatted log folder inside ``folder``; formats one if there is none.

    Raises SetupError if there is one that this version of Kafka must not open.
    """
    storage = folder / "storage"
    if not storage.exists():
        fresh = folder / "storage.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        format_into(fresh / "log")
        (fresh / "version.json").write_text(json.dumps({"kafka": KAFKA_VERSION}))
        fresh.rename(storage)
    way_out = (
        f"choose another folder, or delete {storage} to start with an empty queue "
        f"(what waits in it is lost)."
    )
    try:
        version = json.loads((storage / "version.json").read_bytes())["kafka"]
        properties = (storage / "log" / "meta.properties").read_text("utf-8")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SetupError(
            f"The data folder {storage} is damaged ({error}): {way_out}"
        ) from error
    if version != KAFKA_VERSION:
        raise SetupError(
            f"The data folder {storage} was written by Apache Kafka {version}, and "
            f"this is {KAFKA_VERSION}: {way_out}"
        )
    if "cluster.id=" not in properties:
        raise SetupError(
            f"The data folder {storage} is damaged (meta.properties names no "
            f"cluster): {way_out}"
        )
    return storage / "log"


def sweep_ephemeral() -> None:
    """Remove the temporary folders of brokers that were killed with their parents."""
    newest = time.time() - _SETTLED_AFTER_S
    for folder in Path(tempfile.gettempdir()).glob(f"{EPHEMERAL_PREFIX}*"):
        with suppress(OSError):
            # One that has just been made is about to be locked.
            if folder.stat().st_mtime > newest:
                continue
            fd = os.open(folder / "lock", os.O_RDWR)
            try:
                if _try_lock(fd):
                    shutil.rmtree(folder)
            finally:
                os.close(fd)
