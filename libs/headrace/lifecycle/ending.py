"""How a process ends, for its supervisor and for the one who reads its log."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import NoReturn

from headrace.errors import BusError, SetupError
from headrace.telemetry import LogSettings, are_logs_configured, configure_logs, get_log

__all__ = ["ExitCode", "end_with_any_thread", "run_to_exit"]


class ExitCode(IntEnum):
    """A supervisor restarts after every code but ``OK`` and ``SETUP``."""

    OK = 0
    """Drained after SIGTERM or SIGINT."""

    FAILED = 70
    """A thread ended with an error that nobody foresaw; the log has it."""

    LOG_LOST = 72
    """A position of this process is no longer in the log: its topic was cut or made
    anew, and only a fresh start knows where to go on."""

    LOG_UNAVAILABLE = 73
    """The log did not take over or answer for so long that a fresh start is safer."""

    STALLED = 74
    """The main loop did not turn, or a run passed its limit."""

    DEVICE = 75
    """The device answers with errors, or has no memory, and only a new process can
    have it anew; what this one held was handed back."""

    FENCED = 76
    """Another process has this instance id. To be restarted after two session
    time-outs, so that the two do not take it from each other by turns."""

    REPLACED = 77
    """Another process has this worker slot."""

    SETUP = 78
    """The configuration or the machine is not fit; a restart changes nothing."""


def run_to_exit(run: Callable[[], ExitCode]) -> NoReturn:
    """Run a service's main loop and end the process with what it returns, or with
    the code of the error that ended it; whatever its threads still do."""
    # What is wrong with the settings is logged before they can say how.
    if not are_logs_configured():
        configure_logs(LogSettings(), service=Path(sys.argv[0]).parent.name)
    try:
        code = run()
    except SetupError as error:
        get_log().critical("setup.refused", text=str(error))
        code = ExitCode.SETUP
    except BusError as error:
        get_log().critical("log.unavailable", code=error.code, text=str(error))
        code = ExitCode.LOG_UNAVAILABLE
    except Exception as error:  # noqa: BLE001 - the supervisor of the main loop
        get_log().critical("process.failed", exc_info=error)
        code = ExitCode.FAILED
    sys.stdout.flush()
    sys.stderr.flush()
    # The interpreter's own end waits for threads, and Kafka's client, which it closes
    # there, for a log that may be gone: for ever, and deaf to signals.
    os._exit(code)


def end_with_any_thread() -> None:
    """End the process when one of its threads ends with an error: a reader that died
    would leave a process that looks alive and does nothing."""

    def end(error: threading.ExceptHookArgs) -> None:
        get_log().critical(
            "process.failed",
            thread=None if error.thread is None else error.thread.name,
            exc_info=error.exc_value,
        )
        os._exit(ExitCode.FAILED)

    threading.excepthook = end
