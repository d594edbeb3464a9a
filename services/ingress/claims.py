"""Payloads that travel beside the log: written before their record, read before their
answer, both on threads, since a store may take its time.

All calls and callbacks are the event loop's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import msgspec

from headrace.domain import PayloadRef, Reason, Tensor
from headrace.errors import (
    HeadraceError,
    PayloadLost,
    RequestError,
    StoreUnavailable,
)
from headrace.payloads import PayloadStore, StoreThreads
from headrace.wire import Answer
from headrace.wire.payloads import object_name
from services.ingress.parsing import WantedOutput

__all__ = ["Claims"]

T = TypeVar("T")


class Claims:
    """What an ingress does with the payload store, if there is one."""

    def __init__(
        self,
        store: PayloadStore | None,
        threads: StoreThreads | None,
        *,
        inline_bytes_max: int,
        stored_bytes_max: int,
        now_us: Callable[[], int],
    ) -> None:
        """``now_us``: the log's time."""
        self._store = store
        self._threads = threads
        self._inline_bytes_max = inline_bytes_max
        self._stored_bytes_max = stored_bytes_max
        self._now_us = now_us

    @property
    def has_store(self) -> bool:
        return self._store is not None

    def takes(self, size: int) -> bool:
        """Whether tensors of this size go to the store.

        Raises :class:`RequestError` where they are too large for it.
        """
        if self._store is None or size <= self._inline_bytes_max:
            return False
        if size > self._stored_bytes_max:
            raise RequestError(
                f"the request's tensors take {size} bytes, at most "
                f"{self._stored_bytes_max} are allowed (payload_store_bytes_max)",
                reason=Reason.TOO_LARGE,
            )
        return True

    def write(
        self,
        tenant: str,
        own: str,
        tensors: Sequence[Tensor],
        then: Callable[[PayloadRef | None, HeadraceError | None], None],
    ) -> None:
        """Write the tensors under a name that ``own`` makes unique.

        Raises :class:`StoreUnavailable` when too many are being written.
        """
        assert self._store is not None
        name = object_name(self._now_us(), tenant, own)
        pieces = [tensor.data for tensor in tensors]
        self._submit(partial(self._store.write, name, pieces), then)

    def complete(
        self,
        answer: Answer,
        wanted: Sequence[WantedOutput],
        then: Callable[[Answer], None],
    ) -> None:
        """Give ``then`` the answer with its data, or with why they cannot be had:
        ``wanted`` in JSON, for instance, so many would hold up everybody else."""
        assert answer.payload is not None
        if self._store is None:
            error: HeadraceError = StoreUnavailable(
                "the answer is in a payload store, and none is set here "
                "(HEADRACE_BUS__PAYLOAD_STORE)"
            )
            then(_failed(answer, error))
            return
        in_json = [each.name for each in wanted if not each.binary]
        if in_json:
            error = RequestError(
                f"the answer has {answer.payload.length} bytes, which are too many for "
                f"JSON: ask for '{in_json[0]}' with binary_data",
                reason=Reason.TOO_LARGE,
            )
            then(_failed(answer, error))
            return

        def read(content: memoryview | None, error: HeadraceError | None) -> None:
            if content is None:
                assert error is not None
                then(_failed(answer, error))
                return
            try:
                then(answer.with_payload(content))
            except ValueError:
                then(_failed(answer, PayloadLost("the answer's object does not fit")))

        try:
            self._submit(partial(self._store.read, answer.payload), read)
        except StoreUnavailable as error:
            then(_failed(answer, error))

    async def completed(self, answer: Answer, wanted: Sequence[WantedOutput]) -> Answer:
        """As :meth:`complete`."""
        if answer.payload is None:
            return answer
        found: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.complete(answer, wanted, found.set_result)
        return await found

    def _submit(
        self,
        call: Callable[[], T],
        then: Callable[[T | None, HeadraceError | None], None],
    ) -> None:
        assert self._threads is not None
        loop = asyncio.get_running_loop()

        def ended(got: T | None, error: HeadraceError | None) -> None:
            # What ends after the loop has nobody to tell.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(then, got, error)

        self._threads.submit(call, ended)


def _failed(answer: Answer, error: HeadraceError) -> Answer:
    match error:
        case RequestError(reason=name):
            reason = Reason(name)
        case PayloadLost():
            reason = Reason.PAYLOAD_LOST
        case _:
            reason = Reason.STORE_UNAVAILABLE
    return msgspec.structs.replace(
        answer,
        outputs=(),
        reason=reason,
        text=str(error),
        payload=None,
    )
