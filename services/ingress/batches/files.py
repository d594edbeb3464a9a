"""``/v1/files``: uploaded as they come, kept until they expire or are deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from headrace.errors import StoreUnavailable
from services.ingress.batches.asking import (
    answer,
    chunks,
    drop,
    limit_of,
    reached,
    tenant_of,
)
from services.ingress.batches.expiry import expires_s, given_in
from services.ingress.batches.forms import Form
from services.ingress.batches.objects import ApiError, StoredFile, file_object
from services.ingress.batches.settings import FilesSettings
from services.ingress.batches.store import (
    FileStore,
    Writing,
    is_file_id,
    new_file_id,
)
from services.ingress.settings import IngressLimits

__all__ = ["Files", "checked_after", "no_file"]

PIECE_BYTES: Final = 1024 * 1024
FORM_BYTES: Final = 64 * 1024
"""Of a body, beside its file."""

PAGE: Final = 100
PAGE_MAX: Final = 10_000
PURPOSE: Final = "batch"


class Files:
    """Its pages. ``new_id`` makes ids of 32 hexadecimal digits that sort by time."""

    def __init__(
        self,
        store: FileStore,
        limits: IngressLimits,
        settings: FilesSettings,
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._file_bytes_max = limits.file_bytes_max
        self._uploads_max = settings.uploads_max
        self._keep_s = settings.keep_s
        self._idle_s = limits.http_body_timeout_ms / 1000
        self._linger_s = limits.http_linger_ms / 1000
        self._new_id = new_id
        self._uploads = 0

    async def create(self, request: Request) -> Response:
        try:
            return answer(file_object(await self._upload(request)))
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except ApiError:
            await drop(request, self._linger_s)
            raise

    async def list(self, request: Request) -> Response:
        tenant = tenant_of(request)
        asked = request.query_params
        order = asked.get("order", "desc")
        if order not in {"asc", "desc"}:
            raise ApiError(f"order must be asc or desc, got {order[:40]!r}")
        limit = limit_of(request, PAGE, PAGE_MAX)
        after = checked_after(asked.get("after", ""))
        with reached():
            found, has_more = await asyncio.to_thread(
                self._store.page,
                tenant,
                asked.get("purpose", ""),
                after,
                limit,
                newest_first=order == "desc",
            )
        return answer(
            {
                "object": "list",
                "data": [file_object(file) for file in found],
                "first_id": found[0].id if found else None,
                "last_id": found[-1].id if found else None,
                "has_more": has_more,
            }
        )

    async def get(self, request: Request) -> Response:
        return answer(file_object(await self._file(request)))

    async def content(self, request: Request) -> Response:
        tenant = tenant_of(request)
        file = await self._file(request)
        return StreamingResponse(
            self._pieces(tenant, file),
            media_type="application/octet-stream",
            headers={"content-length": str(file.bytes)},
        )

    async def delete(self, request: Request) -> Response:
        tenant = tenant_of(request)
        file = await self._file(request)
        with reached():
            await asyncio.to_thread(self._store.delete, tenant, file.id)
        return answer({"id": file.id, "object": "file", "deleted": True})

    async def _file(self, request: Request) -> StoredFile:
        tenant, file_id = tenant_of(request), request.path_params["id"]
        with reached():
            file = (
                await asyncio.to_thread(self._store.find, tenant, file_id)
                if is_file_id(file_id)
                else None
            )
        if file is None:
            raise no_file(file_id, "id")
        return file

    async def _pieces(self, tenant: str, file: StoredFile) -> AsyncIterator[bytes]:
        with await asyncio.to_thread(self._store.open, tenant, file.id) as opened:
            while piece := await asyncio.to_thread(opened.read, PIECE_BYTES):
                yield piece

    async def _upload(self, request: Request) -> StoredFile:
        tenant = tenant_of(request)
        size = int(request.headers.get("content-length", 0))
        self._check_size(size - FORM_BYTES)
        form = Form(request.headers.get("content-type", ""))
        if self._uploads >= self._uploads_max:
            raise ApiError(
                f"{self._uploads} files are being uploaded (uploads_max)",
                status=503,
                reason="overloaded",
            )
        self._uploads += 1
        writing: Writing | None = None
        try:
            with reached():
                file_id = new_file_id(self._new_id())
                writing = await asyncio.to_thread(self._store.begin, tenant, file_id)
                await self._receive(request, form, writing)
                _check_fields(form)
                kept_s = expires_s(given_in(form.fields), self._keep_s, "expires_after")
                name = form.filename or ""
                return await asyncio.to_thread(writing.keep, name, PURPOSE, kept_s)
        finally:
            self._uploads -= 1
            if writing is not None:
                with suppress(StoreUnavailable):
                    await asyncio.to_thread(writing.drop)

    async def _receive(self, request: Request, form: Form, writing: Writing) -> None:
        waiting: list[bytes] = []
        size = 0
        async for data in chunks(request, self._idle_s):
            pieces = form.feed(data)
            waiting += pieces
            size += sum(map(len, pieces))
            self._check_size(writing.bytes + size)
            if size >= PIECE_BYTES:
                await asyncio.to_thread(writing.write, b"".join(waiting))
                waiting, size = [], 0
        if waiting:
            await asyncio.to_thread(writing.write, b"".join(waiting))

    def _check_size(self, size: int) -> None:
        most = self._file_bytes_max
        if size > most:
            raise ApiError(
                f"a file may have {most} bytes (file_bytes_max)",
                status=413,
                param="file",
                code="file_too_large",
                reason="too_large",
            )


def no_file(file_id: str, param: str) -> ApiError:
    return ApiError(
        f"no such file of this tenant (headrace-tenant): {file_id[:80]!r}",
        status=404,
        param=param,
        code="not_found",
    )


def checked_after(given: str) -> str:
    """``?after=``, empty for none. Not whether there is such a file: who deletes as he
    lists goes on behind what he deleted. Raises :class:`ApiError`."""
    if given and not is_file_id(given):
        raise ApiError(
            f"after must be the id of a file, got {given[:40]!r}", param="after"
        )
    return given


def _check_fields(form: Form) -> None:
    if not form.is_whole:
        raise ApiError("the body ends before the form does")
    if form.filename is None:
        raise ApiError("the form lacks the part file", param="file")
    purpose = form.fields.get("purpose")
    if purpose != PURPOSE:
        raise ApiError(
            f"purpose must be {PURPOSE}, got {(purpose or '')[:40]!r}", param="purpose"
        )
