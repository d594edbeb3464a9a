"""Orders of formers on this machine, which come beside the slot's partition."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.delivery.worker_events import LinkEnded, LinkOpened, WorkerEvent
from headrace.errors import UndecodableRecord
from headrace.links import LinkFolder, LinkListener
from headrace.telemetry import Log
from headrace.wire import Opening, outlined, parse_order
from services.gpu_worker.orders import BatchFetched, OrderIntake

__all__ = ["Linked"]

NOWHERE = -1
"""The offset of what lies in no partition."""


class Linked:
    """Listens under the process's own name; ``put`` gets what the loop is to know, in
    the order of each link. Nothing where ``folder`` is None."""

    def __init__(
        self,
        folder: Path | None,
        instance: str,
        *,
        put: Callable[[WorkerEvent | BatchFetched], None],
        orders: OrderIntake,
        order_bytes_max: int,
        log: Log,
    ) -> None:
        """Raises :class:`headrace.errors.SetupError` for a folder that is not safe."""
        self._put = put
        self._orders = orders
        self._log = log
        self._listener = None
        if folder is not None:
            self._listener = LinkListener(
                LinkFolder(folder),
                instance,
                take=self._take,
                ended=self._ended,
                bytes_max=order_bytes_max,
            )

    def start(self) -> None:
        if self._listener is not None:
            self._listener.start()

    def stop(self) -> None:
        if self._listener is not None:
            self._listener.stop()

    def end(self, link: int) -> None:
        assert self._listener is not None
        self._listener.end(link)

    def _take(self, link: int, value: memoryview) -> None:
        try:
            order = parse_order(value)
        except UndecodableRecord as error:
            self._log.error("link.refused", link=link, text=str(error))
            self.end(link)
            return
        if not isinstance(order, Opening):
            taken = self._orders.take(order, NOWHERE, link)
            if isinstance(taken, BatchFetched):
                taken.job.order = outlined(value)
            self._put(taken)
            return
        self._log.info("link.opened", link=link, former=order.former)
        self._put(
            LinkOpened(
                link,
                order.lane,
                order.epoch,
                order.former,
                order.k,
                order.incarnation,
            )
        )

    def _ended(self, link: int) -> None:
        self._put(LinkEnded(link))
