"""What an ingress needs for files and batches, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.broker import (
    Delivery,
    KafkaAdmin,
    KafkaConnection,
    KafkaProducer,
    KafkaReader,
    LoopHandover,
    TableReader,
)
from headrace.errors import BusError
from headrace.registry import JobTable
from headrace.wire import JSON_HEADERS, Record, Role, ServiceState, results_topic
from headrace.wire.jobs import JobCancel, JobPart, JobSpec, job_key
from services.ingress.batches.files import Files
from services.ingress.batches.leading import BatchKey, Leading
from services.ingress.batches.objects import ApiError
from services.ingress.batches.orders import Orders
from services.ingress.batches.runners import Runners
from services.ingress.batches.store import FileStore
from services.ingress.batches.tidying import Tidying
from services.ingress.fleet import Fleet
from services.ingress.identity import RequestIds
from services.ingress.listening import Heard
from services.ingress.settings import IngressSettings

__all__ = ["BatchParts"]

CREATE_S: Final = 15
TIDY_EVERY_US: Final = 3_600_000_000
TIDY_FIRST_US: Final = 5_000_000
"""After it began to lead: whoever leads for a moment alone leaves it to the other."""

ANY: Final = ("GET", "POST", "DELETE", "PUT", "PATCH")
UNCONFIGURED: Final = (
    "this server keeps no files: its operator names a place in HEADRACE_FILES__URL"
)


class BatchParts:
    """All of it runs on the event loop, but for ``threads``.

    Raises :class:`headrace.errors.SetupError` for an address of files that is none.
    """

    def __init__(
        self,
        settings: IngressSettings,
        slot: int,
        connection: KafkaConnection,
        *,
        producer: KafkaProducer,
        fleet: Fleet,
        fail: Callable[[BusError], None],
    ) -> None:
        """``producer``: one whose deliveries are told."""
        self._settings = settings
        self._connection = connection
        self._producer = producer
        self._fail = fail
        self._table = JobTable()
        self._leading = Leading(slot, settings.files.batches_at_once_max)
        self._runners = Runners(slot, self._ended)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reader: TableReader | None = None
        self._tidying: Tidying | None = None
        self._tidy_at_us = 0
        url = settings.files.url
        self.routes = [Route("/v1/{rest:path}", _unconfigured, methods=[*ANY])]
        if url is not None:
            store = FileStore(url)
            self.routes = self._made_routes(store, fleet)
            self._tidying = Tidying(
                store, connection, settings.bus.topics, settings.files.keep_s
            )

    def threads(
        self, loop: asyncio.AbstractEventLoop
    ) -> Sequence[Runners | TableReader]:
        """What reads the log for ``loop``."""
        if self._tidying is None:
            return ()
        self._loop = loop
        self._reader = TableReader(
            KafkaReader(self._connection),
            self._settings.bus.topics.control_jobs,
            LoopHandover(loop, self._table.apply),
            self._fail,
        )
        return (self._reader, self._runners)

    def heard(self, batch: list[Heard]) -> None:
        """Heartbeats."""
        for beat, log_us in batch:
            if beat.role is Role.INGRESS:
                is_ready = beat.state is ServiceState.READY
                self._leading.heard(beat.slot, log_us, is_ready=is_ready)

    def sweep(self, now_us: int) -> None:
        """Start what is due; about every second."""
        if self._tidying is None:
            return
        for key in self._leading.due(self._table, self._runners.running):
            self._runners.begin(key)
        if not (self._leading.leads and self._reader and self._reader.caught_up):
            self._tidy_at_us = now_us + TIDY_FIRST_US
        elif now_us >= self._tidy_at_us:
            self._tidy_at_us = now_us + TIDY_EVERY_US
            self._tidying.begin(self._table)

    async def submit(self, spec: JobSpec) -> None:
        """As :class:`services.ingress.batches.orders.Records`."""
        bus = self._settings.bus
        topic = results_topic(bus.topics, spec.tenant, spec.job, bus, partitions=1)
        admin = KafkaAdmin(self._connection)
        await asyncio.to_thread(admin.create_topics, [topic], CREATE_S)
        await self._write(spec.tenant, spec.job, JobPart.SPEC, spec)

    async def cancel(self, cancel: JobCancel) -> None:
        await self._write(cancel.tenant, cancel.job, JobPart.CANCEL, cancel)

    async def _write(
        self, tenant: str, job: str, part: JobPart, value: JobSpec | JobCancel
    ) -> None:
        assert self._loop is not None
        ended: asyncio.Future[Delivery] = self._loop.create_future()
        loop = self._loop
        topic, key = self._settings.bus.topics.control_jobs, job_key(tenant, job, part)
        content = msgspec.json.encode(value)

        def told(delivery: Delivery) -> None:
            loop.call_soon_threadsafe(_settle, ended, delivery)

        self._producer.produce(
            topic,
            0,
            content,
            key=key,
            headers=JSON_HEADERS,
            on_delivery=told,
        )
        delivery = await ended
        if delivery.error is not None:
            raise delivery.error
        place = (delivery.offset, delivery.timestamp_us)
        # Whoever asked may ask again at once.
        self._table.apply([Record(topic, 0, *place, key, content, [*JSON_HEADERS])])

    def _ended(self, key: BatchKey, well: bool) -> None:  # noqa: FBT001 - as told
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._heard_end, key, well)

    def _heard_end(self, key: BatchKey, well: bool) -> None:  # noqa: FBT001 - as told
        self._runners.forget(key)
        self._leading.ended(key, well=well)

    def _made_routes(self, store: FileStore, fleet: Fleet) -> list[Route]:
        new_id = RequestIds().next
        files = Files(store, self._settings.limits, self._settings.files, new_id)
        orders = Orders(self._table, self, store, fleet, new_id)
        return [
            Route("/v1/files", files.create, methods=["POST"]),
            Route("/v1/files", files.list, methods=["GET"]),
            Route("/v1/files/{id}", files.get, methods=["GET"]),
            Route("/v1/files/{id}", files.delete, methods=["DELETE"]),
            Route("/v1/files/{id}/content", files.content, methods=["GET"]),
            Route("/v1/batches", orders.create, methods=["POST"]),
            Route("/v1/batches", orders.list, methods=["GET"]),
            Route("/v1/batches/{id}", orders.get, methods=["GET"]),
            Route("/v1/batches/{id}/cancel", orders.cancel, methods=["POST"]),
        ]


def _settle(ended: asyncio.Future[Delivery], delivery: Delivery) -> None:
    if not ended.done():
        ended.set_result(delivery)


async def _unconfigured(_request: Request) -> Response:
    raise ApiError(UNCONFIGURED, status=501)
