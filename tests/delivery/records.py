"""What lies in ``batches``, for the simulation."""

import msgspec

from headrace.domain import Request

__all__ = ["BatchRecord", "SyncRecord"]


class SyncRecord(msgspec.Struct, frozen=True):
    epoch: int
    former: str
    k: int


class BatchRecord(msgspec.Struct, frozen=True):
    batch: str
    epoch: int
    former: str
    incarnation: int
    latest_start_log_us: int | None
    members: tuple[Request, ...]
