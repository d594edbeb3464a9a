"""How a process starts, says how it is, and ends."""

from headrace.lifecycle.ending import ExitCode, end_with_any_thread, run_to_exit
from headrace.lifecycle.health import Health, Pulse
from headrace.lifecycle.heartbeat import (
    BEATS,
    STATUS_PARTITION,
    Heartbeat,
    LogTime,
    StatusReader,
)
from headrace.lifecycle.interpreter import configure_interpreter
from headrace.lifecycle.probes import ProbeServer, answer_probe
from headrace.lifecycle.settings import (
    AdminSettings,
    BusSettings,
    FusedSettings,
    read_settings,
)
from headrace.lifecycle.signals import DrainFlag, drain_on_signals
from headrace.lifecycle.standby import add_standby, stand_by
from headrace.lifecycle.watchdog import Watchdog

__all__ = [
    "BEATS",
    "STATUS_PARTITION",
    "AdminSettings",
    "BusSettings",
    "DrainFlag",
    "ExitCode",
    "FusedSettings",
    "Health",
    "Heartbeat",
    "LogTime",
    "ProbeServer",
    "Pulse",
    "StatusReader",
    "Watchdog",
    "add_standby",
    "answer_probe",
    "configure_interpreter",
    "drain_on_signals",
    "end_with_any_thread",
    "read_settings",
    "run_to_exit",
    "stand_by",
]
