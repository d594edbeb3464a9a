"""A child process that ends when its parent does, however the parent ends."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import IO

__all__ = ["TiedProcess"]

# The kernel sends the signal of prctl(PR_SET_PDEATHSIG) when the parent is gone. It
# is set in a fresh interpreter that then becomes the program: a preexec_fn would run
# Python between fork and exec, which deadlocks in a process with threads.
_BECOME = """
import ctypes, os, signal, sys
if ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0) != 0:
    sys.exit("prctl failed")
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
try:
    os.execv(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"{sys.argv[2]}: {error.strerror}")
"""


class TiedProcess:
    """A running program, in a session of its own, so that Ctrl-C reaches its parent
    alone. SIGTERM is sent to it when this process is gone.

    "Parent" means the thread that forked, to the kernel: so a thread of ours starts
    the program and stays until it has ended.
    """

    def __init__(
        self,
        args: Sequence[str | Path],
        *,
        output: IO[bytes] | int,
        errors: IO[bytes] | int = subprocess.STDOUT,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._args = [
            *(sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid())),
            *map(str, args),
        ]
        self._output = output
        self._errors = errors
        self._pass_fds = tuple(pass_fds)
        self._environment = environment
        self._ended = threading.Event()
        born: SimpleQueue[subprocess.Popen[bytes] | OSError] = SimpleQueue()
        name = f"keeper of {Path(args[0]).name}"
        threading.Thread(
            target=self._keep, args=(born,), name=name, daemon=True
        ).start()
        process = born.get()
        if isinstance(process, OSError):
            raise process
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status (negative: the signal), or None while it runs."""
        return self._process.returncode if self._ended.is_set() else None

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The exit status, or None if it still runs after ``timeout_s``."""
        self._ended.wait(timeout_s)
        return self.returncode

    def stop(self, patience_s: float) -> int:
        """Ask it to end, and kill it if it has not after ``patience_s``."""
        self.send(signal.SIGTERM)
        if self.wait(patience_s) is None:
            self.send(signal.SIGKILL)
            self._ended.wait()
        return self._process.returncode

    def send(self, signal_number: signal.Signals) -> None:
        """Send a signal; nothing happens when it has ended."""
        if not self._ended.is_set():
            self._process.send_signal(signal_number)

    def _keep(self, born: "SimpleQueue[subprocess.Popen[bytes] | OSError]") -> None:
        try:
            process = subprocess.Popen(
                self._args,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._errors,
                pass_fds=self._pass_fds,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            born.put(error)
            return
        born.put(process)
        process.wait()
        self._ended.set()
