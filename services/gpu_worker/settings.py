"""What an operator can set for a GPU worker; defaults stand here and nowhere else."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, PositiveFloat, PositiveInt

from headrace.delivery import WorkerLimits
from headrace.lifecycle import AdminSettings, BusSettings, FusedSettings
from headrace.runtime import DeviceSettings
from headrace.telemetry import LogSettings

__all__ = ["GpuWorkerSettings", "ModelsSettings", "WorkerSettings"]


class ModelsSettings(BaseModel, frozen=True, extra="forbid"):
    """The model repository, and how it is followed."""

    folder: Path = Path("models")
    """Holds ``<model>/<version>/model.onnx``."""

    scan_ms: PositiveInt = 1000
    """Between two looks at the folder; a version counts when two looks agree."""

    unload_idle_s: PositiveFloat = 10
    """A version whose folder is gone is unloaded when no batch came for so long."""

    dead_slot_s: PositiveFloat = 30
    """What a worker slot announced that was silent for so long is taken back by those
    that live, so that one that never returns does not keep its versions in everybody's
    catalog. One that does return says it again."""


class WorkerSettings(BaseModel, frozen=True, extra="forbid"):
    """What the supervisor tells the process that it starts."""

    previous_exit: str = ""
    """How the slot's process before ended, ``exit:<code>`` or ``signal:<name>``;
    empty for a first start."""


class GpuWorkerSettings(BaseModel, frozen=True, extra="forbid"):
    admin: AdminSettings = AdminSettings()
    bus: BusSettings = BusSettings()
    device: DeviceSettings = DeviceSettings()
    fused: FusedSettings = FusedSettings()
    log: LogSettings = LogSettings()
    models: ModelsSettings = ModelsSettings()
    runs: WorkerLimits = WorkerLimits()
    worker: WorkerSettings = WorkerSettings()
