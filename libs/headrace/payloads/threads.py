"""Threads for what blocks in the store, so that nothing else does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Full, Queue
from typing import Any, TypeVar

from headrace.errors import HeadraceError, StoreUnavailable

__all__ = ["StoreThreads"]

THREADS = 4
THREADS_MAX = 16
"""With those that take the places of hung ones."""

TIMEOUT_S = 5.0
"""A call that takes longer hangs."""

WAITING_MAX = 256
"""Calls that wait for a thread; a further one is refused."""

T = TypeVar("T")


class StoreThreads:
    """Calls, several at a time. They are daemons: a call that hangs in the store does
    not keep the process from ending. Nor does one keep others from the store, and when
    very many hang, no more is asked of it until one returns."""

    def __init__(
        self, timeout_s: float = TIMEOUT_S, waiting_max: int = WAITING_MAX
    ) -> None:
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._threads = 0
        self._began: dict[int, float] = {}
        """When the call of a thread began that has one."""

        self._calls: Queue[tuple[Callable[[], Any], Callable[..., None]]] = Queue(
            waiting_max
        )
        for _ in range(THREADS):
            self._add_thread()

    def submit(
        self,
        call: Callable[[], T],
        then: Callable[[T | None, HeadraceError | None], None],
    ) -> None:
        """``call`` on a thread, and ``then`` there with what came of it.

        Raises :class:`StoreUnavailable` when too many wait, or hang.
        """
        with self._lock:
            self._replace_hung()
        try:
            self._calls.put_nowait((call, then))
        except Full:
            raise StoreUnavailable(
                f"{self._calls.maxsize} calls wait for the payload store, and no more "
                "may"
            ) from None

    def _replace_hung(self) -> None:
        latest = time.monotonic() - self._timeout_s
        hung = sum(began <= latest for began in list(self._began.values()))
        if hung < self._threads:
            return
        if self._threads >= THREADS_MAX:
            raise StoreUnavailable(
                f"{hung} calls hang in the payload store, each for "
                f"{self._timeout_s:g} s or longer (payload_timeout_ms)"
            )
        self._add_thread()

    def _add_thread(self) -> None:
        number = self._threads
        self._threads += 1
        threading.Thread(
            target=self._work, args=(number,), name=f"payloads {number}", daemon=True
        ).start()

    def _work(self, number: int) -> None:
        while True:
            call, then = self._calls.get()
            self._began[number] = time.monotonic()
            try:
                result = call()
            except HeadraceError as error:
                then(None, error)
            else:
                then(result, None)
            del self._began[number]
            # Not kept until the next one: it may be large.
            del call, then
            result = None
