"""What an ingress needs for kept answers, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.broker import (
    KafkaAdmin,
    KafkaConnection,
    KafkaProducer,
    KafkaReader,
    LoopHandover,
    ProducerSettings,
    ReaderSettings,
)
from headrace.clock import Clock
from headrace.errors import BusError
from headrace.wire import NewTopic, results_topic
from services.ingress.archive import Archive
from services.ingress.claims import Claims
from services.ingress.following import Follower
from services.ingress.keeping import Keeper
from services.ingress.later import Later
from services.ingress.routing import LaneRouter
from services.ingress.settings import IngressSettings
from services.ingress.shelf import Shelf

__all__ = ["KeptParts"]

SECOND_US = 1_000_000
ACKED = ProducerSettings()
"""Such a request is accepted when its record is acked."""


LOOKING = ReaderSettings(fetch_wait_ms=10)
"""A look waits for the fetch of the look before. Between looks nothing is fetched."""


class KeptParts:
    """Its clients of the log are idle until the first such request."""

    def __init__(  # noqa: PLR0913 - what the process has already
        self,
        settings: IngressSettings,
        slot: int,
        connection: KafkaConnection,
        *,
        clock: Clock,
        to_log_us: Callable[[int], int],
        router: LaneRouter,
        claims: Claims,
        fail: Callable[[BusError], None],
    ) -> None:
        bus, limits = settings.bus, settings.limits
        memory_us = bus.key_memory_s * SECOND_US
        self.producer = KafkaProducer(connection, ACKED)
        self._connection = connection
        self._fail = fail
        self._admin = KafkaAdmin(connection)
        self._archive = Archive(KafkaReader(connection, LOOKING), self._admin, clock)

        def new_topic(tenant: str, job: str) -> NewTopic:
            return results_topic(bus.topics, tenant, job, bus)

        self._shelf = Shelf(
            self._archive,
            new_topic=new_topic,
            known_max=limits.kept_known_max,
            topics_max=limits.kept_topics_max,
            memory_us=memory_us,
            clock=clock,
            to_log_us=to_log_us,
        )
        self.keeper = Keeper(
            self._shelf,
            self.producer,
            topics=bus.topics,
            source=f"headrace/ingress/{slot}",
            lanes=bus.lanes,
            is_heard=lambda lane: lane in router.lanes_patient,
            payload_bytes_max=bus.payload_bytes_max,
            memory_us=memory_us,
            clock=clock,
            to_log_us=to_log_us,
        )
        self.later = Later(
            self.keeper,
            bus.topics,
            claims,
            wait_s_max=limits.wait_s_max,
            memory_us=memory_us,
        )

    def follower(self, loop: asyncio.AbstractEventLoop) -> Follower:
        """The thread that reads kept answers for ``loop``."""
        give_records = LoopHandover(loop, self._shelf.arrived)
        give_topics = LoopHandover(loop, self._shelf.caught_up)
        follower = Follower(
            KafkaReader(self._connection),
            self._admin,
            take=give_records,
            caught_up=lambda topic: give_topics([topic]),
            fail=self._fail,
        )
        self._shelf.follow = follower.follow
        return follower

    def hurry(self) -> None:
        """As :meth:`services.ingress.shelf.Shelf.hurry`."""
        self._shelf.hurry()

    def close(self) -> None:
        self._archive.close()
