"""Reading a topic from a tool: on an event loop, without positions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from headrace.broker.connection import KafkaConnection
from headrace.broker.history import History
from headrace.broker.interface import Record
from headrace.broker.reader import KafkaReader

__all__ = ["tail"]

T = TypeVar("T")

_LOOK_UP_S: Final = 5.0
_RECORDS_MAX: Final = 1000
_READ_S: Final = 0.2


async def tail(
    connection: KafkaConnection,
    topic: str,
    *,
    since_us: int | None = None,
    follow: bool = False,
) -> AsyncGenerator[Record, None]:
    """The records of every partition of ``topic``, each partition in order.

    ``since_us`` (append time): the first record to read; None: from the start.
    Ends at what was the end when the reading began, unless ``follow``. A topic that
    does not exist has no records. Raises BusError.
    """
    # Of one thread: a call that is cancelled ends before the client is closed.
    with ThreadPoolExecutor(1, "tail") as thread:

        def call(function: Callable[[], T]) -> asyncio.Future[T]:
            return asyncio.get_running_loop().run_in_executor(thread, function)

        open_history = partial(
            History,
            connection,
            lambda one: one.topic == topic,
            since_us or 0,
            timeout_s=_LOOK_UP_S,
        )
        history = await call(open_history)
        try:
            while history.read_to_us is not None:
                for record in await call(history.read):
                    yield record
        finally:
            await call(history.close)
        if not follow or not history.extents:
            return
        reader = await call(partial(KafkaReader, connection))
        ends = {one: extent.end for one, extent in history.extents.items()}
        try:
            await call(partial(reader.assign, ends))
            while True:
                for record in await call(partial(reader.read, _RECORDS_MAX, _READ_S)):
                    yield record
        finally:
            await call(reader.close)
