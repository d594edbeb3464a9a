"""The payload store as one ingress uses it, if there is one."""

from __future__ import annotations

from collections.abc import Callable

from headrace.lifecycle import BusSettings, Health
from headrace.payloads import PayloadStore, StoreThreads
from services.ingress.claims import Claims
from services.ingress.store_watch import StoreWatch

__all__ = ["Payloads"]


class Payloads:
    """``claims``, and the ``threads`` that belong to the process.

    Raises :class:`headrace.errors.SetupError` for an address that is none.
    """

    def __init__(
        self, bus: BusSettings, health: Health, log_now_us: Callable[[], int | None]
    ) -> None:
        store = None if bus.payload_store is None else PayloadStore(bus.payload_store)
        self.claims = Claims(
            store,
            StoreThreads(bus.payload_timeout_ms / 1000) if store else None,
            inline_bytes_max=bus.payload_bytes_max,
            stored_bytes_max=bus.stored_bytes_max,
            now_us=lambda: log_now_us() or 0,
        )
        self.threads = (
            ()
            if store is None
            else (
                StoreWatch(
                    store, health, keep_hours=bus.payload_keep_hours, now_us=log_now_us
                ),
            )
        )
