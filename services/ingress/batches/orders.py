"""``/v1/batches``: asked for, told how far they are, cancelled.

What a batch is and how far it is stands in ``control.jobs``, which every ingress
follows, so that any of them can tell.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Final, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.clock import wall_us
from headrace.domain import Priority
from headrace.registry import Job, JobTable
from headrace.wire.jobs import BatchOrder, InputFile, JobCancel, JobSpec
from services.ingress.batches.asking import (
    answer,
    limit_of,
    reached,
    read_json,
    tenant_of,
)
from services.ingress.batches.expiry import ExpiresAfter, expires_s
from services.ingress.batches.files import no_file
from services.ingress.batches.objects import ApiError, batch_object, status_of
from services.ingress.batches.store import FileStore, is_file_id, of_batch
from services.ingress.fleet import Fleet
from services.ingress.head import read_target

__all__ = ["Orders"]

PAGE: Final = 20
PAGE_MAX: Final = 100
WINDOW_US_MAX: Final = 7 * 24 * 3600 * 1_000_000
"""Results are kept so long."""

KEYS_MAX: Final = 16
KEY_CHARACTERS_MAX: Final = 64
VALUE_CHARACTERS_MAX: Final = 512

KNOWN_WITHIN_S: Final = 2.0
LOOK_S: Final = 0.05
"""A batch that another ingress has taken a moment ago is waited for."""

_ID: Final = re.compile(r"batch_[0-9a-f]{32}")
_WINDOW: Final = re.compile(r"([1-9][0-9]{0,5})([mhd])")
_UNITS_US: Final = {"m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_MAY_BE_CANCELLED: Final = frozenset({"validating", "in_progress", "cancelling"})


class Records(Protocol):
    """Raises :class:`headrace.errors.BusError`."""

    async def submit(self, spec: JobSpec) -> None:
        """Make the batch's topic and write the record, for this process too."""
        ...

    async def cancel(self, cancel: JobCancel) -> None: ...


class _Asked(msgspec.Struct):
    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None
    output_expires_after: ExpiresAfter | None = None


class Orders:
    """Its pages. ``table`` follows ``control.jobs``."""

    def __init__(
        self,
        table: JobTable,
        records: Records,
        store: FileStore,
        fleet: Fleet,
        new_id: Callable[[], str],
    ) -> None:
        self._table = table
        self._records = records
        self._store = store
        self._fleet = fleet
        self._new_id = new_id

    async def create(self, request: Request) -> Response:
        tenant = tenant_of(request)
        asked = await read_json(request, _Asked)
        window_us = _window_us(asked.completion_window)
        _check_metadata(asked.metadata)
        kept_s = expires_s(asked.output_expires_after, None, "output_expires_after")
        served = self._fleet.resolve(*_target(asked.endpoint)).served
        with reached():
            file = (
                await asyncio.to_thread(self._store.find, tenant, asked.input_file_id)
                if is_file_id(asked.input_file_id)
                else None
            )
        if file is None:
            raise no_file(asked.input_file_id, "input_file_id")
        batch = f"batch_{self._new_id()}"
        order = BatchOrder(
            endpoint=asked.endpoint,
            input_file_id=file.id,
            output_file_id=of_batch(batch, "output"),
            error_file_id=of_batch(batch, "errors"),
            completion_window=asked.completion_window,
            metadata=asked.metadata,
            output_expires_s=kept_s,
        )
        now_us = wall_us()
        spec = JobSpec(
            job=batch,
            tenant=tenant,
            model=served.model,
            version=served.version,
            inputs=(InputFile(self._store.url_of(tenant, file.id), file.bytes),),
            output=self._store.url_of(tenant, order.output_file_id),
            submitted_us=now_us,
            rows_max=1,
            priority=Priority.BULK,
            deadline_us=now_us + window_us,
            batch=order,
        )
        with reached():
            await self._records.submit(spec)
        return self._answer(tenant, batch)

    async def list(self, request: Request) -> Response:
        tenant = tenant_of(request)
        limit = limit_of(request, PAGE, PAGE_MAX)
        after = request.query_params.get("after", "")
        found = [
            job
            for job in reversed(self._table.all())
            if job.spec is not None
            and job.spec.batch is not None
            and job.spec.tenant == tenant
        ]
        names = [job.spec.job for job in found if job.spec is not None]
        if after:
            if after not in names:
                raise _unknown(after)
            found = found[names.index(after) + 1 :]
        shown = [batch_object(job) for job in found[:limit]]
        return answer(
            {
                "object": "list",
                "data": shown,
                "first_id": shown[0]["id"] if shown else None,
                "last_id": shown[-1]["id"] if shown else None,
                "has_more": len(found) > limit,
            }
        )

    async def get(self, request: Request) -> Response:
        await self._batch(request)
        return self._answer(tenant_of(request), request.path_params["id"])

    async def cancel(self, request: Request) -> Response:
        tenant, batch = tenant_of(request), request.path_params["id"]
        job = await self._batch(request)
        status = status_of(job)
        if status not in _MAY_BE_CANCELLED:
            raise ApiError(f"the batch is {status}: it cannot be cancelled", status=409)
        if not job.cancelled:
            with reached():
                await self._records.cancel(JobCancel(batch, tenant))
        return self._answer(tenant, batch)

    def _answer(self, tenant: str, batch: str) -> Response:
        return answer(batch_object(self._table.of(tenant, batch)))

    async def _batch(self, request: Request) -> Job:
        tenant, batch = tenant_of(request), request.path_params["id"]
        until_s = time.monotonic() + KNOWN_WITHIN_S
        while True:
            job = self._table.of(tenant, batch)
            if job.spec is not None and job.spec.batch is not None:
                return job
            if not _is_new(batch) or time.monotonic() > until_s:
                raise _unknown(batch)
            await asyncio.sleep(LOOK_S)


def _target(endpoint: str) -> tuple[str, str]:
    """Raises :class:`ApiError`."""
    target = read_target(endpoint.encode())
    if target is None:
        raise ApiError(
            "endpoint must be /v2/models/MODEL/infer or "
            f"/v2/models/MODEL/versions/VERSION/infer, got {endpoint[:200]!r}",
            param="endpoint",
        )
    return target.model, target.version


def _window_us(given: str) -> int:
    """Raises :class:`ApiError`."""
    found = _WINDOW.fullmatch(given)
    us = int(found[1]) * _UNITS_US[found[2]] if found else 0
    if not 0 < us <= WINDOW_US_MAX:
        raise ApiError(
            "completion_window must be a number of m, h or d, such as 24h, and at most "
            f"7d, got {given[:40]!r}",
            param="completion_window",
        )
    return us


def _check_metadata(metadata: dict[str, str] | None) -> None:
    """Raises :class:`ApiError`."""
    pairs = metadata or {}
    if len(pairs) > KEYS_MAX or any(
        len(key) > KEY_CHARACTERS_MAX or len(value) > VALUE_CHARACTERS_MAX
        for key, value in pairs.items()
    ):
        raise ApiError(
            f"metadata may have {KEYS_MAX} pairs, with keys of {KEY_CHARACTERS_MAX} "
            f"characters and values of {VALUE_CHARACTERS_MAX}",
            param="metadata",
        )


def _is_new(batch: str) -> bool:
    """Whether the id was made a moment ago: it begins with milliseconds."""
    if _ID.fullmatch(batch) is None:
        return False
    made_ms = int(batch.removeprefix("batch_")[:12], 16)
    return abs(time.time_ns() // 1_000_000 - made_ms) < 10_000


def _unknown(batch: str) -> ApiError:
    return ApiError(
        f"no such batch of this tenant (headrace-tenant): {batch[:80]!r}",
        status=404,
        code="not_found",
    )
