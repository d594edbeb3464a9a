"""Freezing a process, so that it stands still once the call is back."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

STANDS_STILL_WITHIN_S = 20.0


def freeze(pid: int) -> None:
    """Stop every thread of a process.

    `SIGSTOP` is only sent by `kill`: until one of the threads has a core to receive it,
    all of them go on, and on a busy machine that lets a broker write one more record.

    Raises:
        AssertionError: a thread still runs after `STANDS_STILL_WITHIN_S`.
    """
    os.kill(pid, signal.SIGSTOP)
    give_up_at = time.monotonic() + STANDS_STILL_WITHIN_S
    while not all(state == "T" for state in _thread_states(pid)):
        assert time.monotonic() < give_up_at, f"process {pid} runs on"
        time.sleep(0.001)


def _thread_states(pid: int) -> Iterator[str]:
    """The one-letter states, from `proc_pid_stat(5)`: a name may hold blanks."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            yield (task / "stat").read_text().rpartition(")")[2].split()[0]
