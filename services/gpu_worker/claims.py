"""Tensors in the payload store: fetched ahead of a batch's run, written for replies
that are too large for a record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from headrace.clock import wall_us
from headrace.delivery.worker_events import Outcome
from headrace.domain import MemberStatus, PayloadRef, Reason, Setback
from headrace.errors import HeadraceError, PayloadLost, StoreUnavailable
from headrace.payloads import PayloadStore, StoreThreads
from headrace.wire import Batch
from headrace.wire.payloads import object_name

__all__ = ["Prefetch", "WorkerClaims"]

NO_STORE = "no payload store is set here (HEADRACE_BUS__PAYLOAD_STORE)"

_BESIDE = Outcome(
    MemberStatus.RETRY, Setback.NEIGHBOUR, "a neighbour's payload is not there"
)
"""Of whoever rode beside a member whose object cannot be had: nothing ran."""


class Prefetch:
    """The objects of a batch, on their way."""

    def __init__(self, batch: Batch, store: PayloadStore | None) -> None:
        self._batch = batch
        self._store = store
        self._began_at = time.monotonic()
        self._found: Batch | tuple[Outcome, ...] | None = None

    def fetch(self) -> None:
        """On a thread of the store's."""
        contents: dict[int, memoryview] = {}
        failed: dict[int, Outcome] = {}
        for member, ref in self._batch.payloads.items():
            try:
                if self._store is None:
                    raise PayloadLost(NO_STORE)
                contents[member] = self._store.read(ref)
            except HeadraceError as error:
                failed[member] = _outcome(error)
        if not failed:
            try:
                self._found = self._batch.with_payloads(contents)
            except ValueError as error:
                self._found = _beside(self._batch, _outcome(PayloadLost(str(error))))
        else:
            self._found = tuple(
                failed.get(member, _BESIDE) for member in range(len(self._batch.ids))
            )

    def refused(self, error: HeadraceError) -> None:
        """Nobody fetches them."""
        self._found = _beside(self._batch, _outcome(error))

    @property
    def is_over(self) -> bool:
        return self._found is not None

    def found(self) -> Batch | tuple[Outcome, ...]:
        """The whole batch, or what becomes of its members: those whose objects are not
        there fail, their neighbours are tried again. What is not here yet comes too
        late."""
        found = self._found
        if found is not None:
            return found
        waited_s = time.monotonic() - self._began_at
        text = f"its payload did not come from the store in {waited_s:.1f} s"
        return _beside(self._batch, _outcome(StoreUnavailable(text)))


class WorkerClaims:
    """What a worker does with the payload store, if there is one."""

    def __init__(
        self,
        url: str | None,
        *,
        inline_bytes_max: int,
        stored_bytes_max: int,
        timeout_ms: int,
        came: Callable[[str], None],
    ) -> None:
        """``came`` is told of a batch whose objects are here, or will not come, on a
        thread of the store's.

        Raises :class:`headrace.errors.SetupError` for an address that is none.
        """
        self._store = None if url is None else PayloadStore(url)
        self._threads = None if url is None else StoreThreads(timeout_ms / 1000)
        self.inline_bytes_max = inline_bytes_max
        self.reply_bytes_max = max(inline_bytes_max, stored_bytes_max)
        """Largest reply, wherever it travels."""
        self.wait_us = timeout_ms * 1000
        self._came = came

    def prefetch(self, batch: Batch) -> Prefetch | None:
        """Never blocks; None: the batch is whole."""
        if not batch.payloads:
            return None
        coming = Prefetch(batch, self._store)
        if self._threads is None:
            coming.fetch()
            return coming

        def came(_nothing: None, error: HeadraceError | None) -> None:
            if error is not None:
                coming.refused(error)
            self._came(batch.batch)

        try:
            self._threads.submit(coming.fetch, came)
        except StoreUnavailable as error:
            coming.refused(error)
        return coming

    def write(
        self,
        batch: Batch,
        member: int,
        pieces: Sequence[bytes | memoryview],
        then: Callable[[PayloadRef | None, HeadraceError | None], None],
    ) -> None:
        """Write a member's outputs; ``then`` runs on a thread of the store's.

        Raises :class:`StoreUnavailable` when too many wait.
        """
        assert self._store is not None
        assert self._threads is not None
        # By the wall clock: the object may go days after this hour.
        made_us = wall_us()
        name = object_name(made_us, batch.tenants[member], f"{batch.batch}-{member}")
        self._threads.submit(partial(self._store.write, name, pieces), then)


def _outcome(error: HeadraceError) -> Outcome:
    if isinstance(error, PayloadLost):
        return Outcome(MemberStatus.FINAL, Reason.PAYLOAD_LOST, str(error))
    return Outcome(MemberStatus.RETRY, Reason.STORE_UNAVAILABLE, str(error))


def _beside(batch: Batch, outcome: Outcome) -> tuple[Outcome, ...]:
    return tuple(
        outcome if member in batch.payloads else _BESIDE
        for member in range(len(batch.ids))
    )
