"""Threads for what blocks in the store, so that nothing else does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Full, Queue
from typing import Any, TypeVar

from headrace.errors import HeadraceError, StoreUnavailable

__all__ = ["StoreThreads"]

THREADS = 4
WAITING_MAX = 256
"""Calls that wait for a thread; a further one is refused."""

T = TypeVar("T")


class StoreThreads:
    """Calls, several at a time. They are daemons: a call that hangs in the store does
    not keep the process from ending."""

    def __init__(self, waiting_max: int = WAITING_MAX) -> None:
        self._calls: Queue[tuple[Callable[[], Any], Callable[..., None]]] = Queue(
            waiting_max
        )
        for number in range(THREADS):
            threading.Thread(
                target=self._work, name=f"payloads {number}", daemon=True
            ).start()

    def submit(
        self,
        call: Callable[[], T],
        then: Callable[[T | None, HeadraceError | None], None],
    ) -> None:
        """``call`` on a thread, and ``then`` there with what came of it.

        Raises :class:`StoreUnavailable` when too many wait.
        """
        try:
            self._calls.put_nowait((call, then))
        except Full:
            raise StoreUnavailable(
                f"{self._calls.maxsize} calls wait for the payload store, and no more "
                "may"
            ) from None

    def _work(self) -> None:
        while True:
            call, then = self._calls.get()
            try:
                result = call()
            except HeadraceError as error:
                then(None, error)
            else:
                then(result, None)
            # Not kept until the next one: it may be large.
            del call, then
            result = None
