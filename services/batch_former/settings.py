"""What may be set about a batch former."""

from __future__ import annotations

from pydantic import BaseModel, PositiveInt, model_validator

from headrace.delivery import LaneLimits
from headrace.lifecycle import AdminSettings, BusSettings, FusedSettings
from headrace.scheduling import SchedulingSettings
from headrace.telemetry import LogSettings

__all__ = ["OF_THE_BUS", "FormerSettings", "ReadingSettings"]

OF_THE_BUS = {
    ("delivery", "key_memory_us"): "HEADRACE_BUS__KEY_MEMORY_S",
    ("delivery", "store_wait_us"): "HEADRACE_BUS__PAYLOAD_TIMEOUT_MS",
    ("scheduling", "batch_bytes_max"): "HEADRACE_BUS__BATCH_BYTES_MAX",
}
"""Limits of a group that follow from a setting which all services share."""


class ReadingSettings(BaseModel, frozen=True, extra="forbid"):
    """How requests are read."""

    records_max: PositiveInt = 500
    """Records taken from one reader in a turn of the loop: a backlog of one priority
    delays the others by so many."""

    ahead_bytes_max: PositiveInt = 16 * 1024 * 1024
    """Bytes that each priority's reader fetches ahead; the rest stays in the log."""

    hot_partitions_max: PositiveInt = 32
    """Partitions of a priority, one for each model and lane, up to which they share
    one reader. Beyond, the idle ones have a second one, so that the busy ones need not
    wait for a fetch of them all; a record makes a partition busy."""

    idle_ms: PositiveInt = 10_000
    """After so long without a record a partition is idle."""


class FormerSettings(BaseModel, frozen=True, extra="forbid"):
    """The groups that a batch former reads."""

    bus: BusSettings = BusSettings()
    admin: AdminSettings = AdminSettings()
    log: LogSettings = LogSettings()
    former: ReadingSettings = ReadingSettings()
    fused: FusedSettings = FusedSettings()
    delivery: LaneLimits = LaneLimits()
    scheduling: SchedulingSettings = SchedulingSettings()

    @model_validator(mode="after")
    def _have_one_name_each(self) -> FormerSettings:
        for (group, name), variable in OF_THE_BUS.items():
            if name in getattr(self, group).model_fields_set:
                raise ValueError(f"set {variable}, from which {group}.{name} follows")
        return self

    @property
    def lane_limits(self) -> LaneLimits:
        shared = {
            "key_memory_us": self.bus.key_memory_s * 1_000_000,
            "store_wait_us": self.bus.payload_timeout_ms * 1000,
        }
        return self.delivery.model_copy(update=shared)

    @property
    def scheduler(self) -> SchedulingSettings:
        bytes_max = self.bus.batch_bytes_max
        return self.scheduling.model_copy(update={"batch_bytes_max": bytes_max})
