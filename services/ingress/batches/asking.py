"""What the pages of files and batches read from a request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from headrace.errors import BusError, RequestError, StoreUnavailable
from services.ingress.batches.objects import ApiError
from services.ingress.head import read_head

__all__ = ["answer", "chunks", "drop", "limit_of", "reached", "read_json", "tenant_of"]

JSON_BYTES_MAX: Final = 256 * 1024

T = TypeVar("T")


def answer(content: Any) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")


def tenant_of(request: Request) -> str:
    """Raises :class:`ApiError`."""
    head = read_head(request.scope["headers"])
    if head.fault is not None:
        raise ApiError(head.fault.text, status=head.fault.status)
    return head.tenant


def limit_of(request: Request, default: int, most: int) -> int:
    """``?limit=``. Raises :class:`ApiError`."""
    given = request.query_params.get("limit", str(default))
    if not (given.isdecimal() and len(given) < 9 and 1 <= int(given) <= most):
        raise ApiError(
            f"limit must be from 1 to {most}, got {given[:40]!r}", param="limit"
        )
    return int(given)


async def read_json(request: Request, kind: type[T]) -> T:
    """The body. Raises :class:`ApiError`."""
    body = bytearray()
    async for data in chunks(request, 10):
        body += data
        if len(body) > JSON_BYTES_MAX:
            raise ApiError(f"the body is limited to {JSON_BYTES_MAX} bytes", status=413)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ApiError(f"the body: {error}") from error


async def chunks(request: Request, within_s: float) -> AsyncIterator[bytes]:
    """The body as it comes. Raises :class:`ApiError` when nothing comes any more."""
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(within_s):
                data = await anext(stream, None)
        except TimeoutError as error:
            raise ApiError(
                f"nothing of the body came for {within_s:g} s", status=408
            ) from error
        if data is None:
            return
        yield data


async def drop(request: Request, within_s: float) -> None:
    """Read what is left of a body that is refused, for a while: closing at once would
    reset the connection under the answer."""
    # RuntimeError: all of it was read before.
    with suppress(TimeoutError, ClientDisconnect, RuntimeError):
        async with asyncio.timeout(within_s):
            async for _ in request.stream():
                pass


@contextmanager
def reached() -> Iterator[None]:
    """What a log or a store says as a refusal: RequestError."""
    try:
        yield
    except BusError as error:
        text = f"the log does not answer: {error}"
        raise RequestError(text, reason="log_unavailable") from error
    except StoreUnavailable as error:
        raise RequestError(str(error), reason="store_unavailable") from error
