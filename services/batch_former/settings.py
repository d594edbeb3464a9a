"""What may be set about a batch former."""

from __future__ import annotations

from pydantic import BaseModel, PositiveInt

from headrace.delivery import LaneLimits
from headrace.lifecycle import AdminSettings, BusSettings
from headrace.scheduling import SchedulingSettings
from headrace.telemetry import LogSettings

__all__ = ["FormerSettings", "ReadingSettings"]


class ReadingSettings(BaseModel, frozen=True, extra="forbid"):
    """How requests are read."""

    records_max: PositiveInt = 500
    """Records taken from one reader in a turn of the loop: a backlog of one priority
    delays the others by so many."""

    ahead_bytes_max: PositiveInt = 16 * 1024 * 1024
    """Bytes that each priority's reader fetches ahead; the rest stays in the log."""


class FormerSettings(BaseModel, frozen=True, extra="forbid"):
    """The groups that a batch former reads."""

    bus: BusSettings = BusSettings()
    admin: AdminSettings = AdminSettings()
    log: LogSettings = LogSettings()
    former: ReadingSettings = ReadingSettings()
    delivery: LaneLimits = LaneLimits()
    scheduling: SchedulingSettings = SchedulingSettings()
