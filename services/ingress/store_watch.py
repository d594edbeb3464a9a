"""Whether the payload store answers, and the end of what lies in it for too long."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headrace.errors import StoreUnavailable
from headrace.lifecycle import Health
from headrace.payloads import PayloadStore
from headrace.telemetry import get_log

__all__ = ["AWAITED", "StoreWatch"]

AWAITED = "payload store"
"""What ``/readyz`` waits for while it does not answer."""

LOOK_S = 5.0
SWEEP_EVERY = 720
"""Looks between two deletions: an hour. Every ingress deletes; what another has
deleted is no error."""

STOP_S = 1.0


class StoreWatch:
    """A thread of its own, since a store may hang. ``now_us`` is the log's time, None
    while it is not known."""

    def __init__(
        self,
        store: PayloadStore,
        health: Health,
        *,
        keep_hours: int,
        now_us: Callable[[], int | None],
        look_s: float = LOOK_S,
    ) -> None:
        self._store = store
        self._health = health
        self._keep_hours = keep_hours
        self._now_us = now_us
        self._look_s = look_s
        self._stopped = threading.Event()
        self._log = get_log()
        self._answers = True
        self._sweep_in = 0
        # A daemon: what hangs in the store keeps no process from ending.
        self._thread = threading.Thread(
            target=self._run, name="payload store", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(STOP_S)

    def _run(self) -> None:
        while True:
            self._look()
            if self._stopped.wait(self._look_s):
                return

    def _look(self) -> None:
        try:
            self._store.probe()
            self._sweep()
        except StoreUnavailable as error:
            self._health.await_(AWAITED, str(error))
            if self._answers:
                self._answers = False
                self._log.error("payloads.unavailable", text=str(error))
        else:
            self._health.met(AWAITED)
            if not self._answers:
                self._answers = True
                self._log.info("payloads.available")

    def _sweep(self) -> None:
        now_us = self._now_us()
        if self._sweep_in > 0 or now_us is None:
            self._sweep_in -= 1
            return
        hours = self._store.sweep(now_us, self._keep_hours)
        self._sweep_in = SWEEP_EVERY
        if hours:
            self._log.info("payloads.deleted", hours=hours)
