"""The processes in which batches run. They end with the ingress that started them: each
has a pipe from it that closes then."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Final

from headrace.telemetry import get_log
from services.ingress.batches.leading import BatchKey

__all__ = ["Runners"]

STOP_S: Final = 3.0


class Runners:
    """``ended`` is told on a thread of this object's: which, and whether it went well.
    Called by one thread."""

    def __init__(self, slot: int, ended: Callable[[BatchKey, bool], None]) -> None:
        self._slot = slot
        self._ended = ended
        self._processes: dict[BatchKey, subprocess.Popen[bytes] | None] = {}
        self._threads: list[threading.Thread] = []
        self._is_over = False
        self._log = get_log()

    @property
    def running(self) -> set[BatchKey]:
        return set(self._processes)

    def begin(self, key: BatchKey) -> None:
        """Start a process for the batch; its end is told."""
        self._processes[key] = None
        name = f"keeper of {key.batch}"
        thread = threading.Thread(target=self._keep, args=(key,), name=name)
        thread.daemon = True
        self._threads = [each for each in self._threads if each.is_alive()]
        self._threads.append(thread)
        thread.start()

    def forget(self, key: BatchKey) -> None:
        """Its end was told, and heard."""
        self._processes.pop(key, None)

    def start(self) -> None:
        """As the other parts of an ingress."""

    def stop(self) -> None:
        """End what runs; another ingress goes on with it."""
        self._is_over = True
        for process in list(self._processes.values()):
            if process is not None:
                process.terminate()
        for thread in self._threads:
            thread.join(STOP_S)
        for process in list(self._processes.values()):
            if process is not None:
                process.kill()

    def _keep(self, key: BatchKey) -> None:
        command = (sys.executable, "-m", "services.ingress.batches")
        options = ("--tenant", key.tenant, "--batch", key.batch)
        try:
            process = subprocess.Popen(
                (*command, *options, "--slot", str(self._slot)), stdin=subprocess.PIPE
            )
        except OSError as error:
            self._log.warning("job.runner_failed", job=key.batch, text=str(error))
            self._ended(key, False)  # noqa: FBT003 - as told
            return
        self._processes[key] = process
        if self._is_over:
            process.terminate()
        status = process.wait()
        assert process.stdin is not None
        process.stdin.close()
        self._log.info("job.runner_ended", job=key.batch, status=status)
        self._ended(key, status == 0)
