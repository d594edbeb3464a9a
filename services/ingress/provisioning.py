"""The topics that an ingress needs, made while it listens already."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress

from headrace.broker import KafkaAdmin, KafkaConnection
from headrace.errors import BusError, SetupError
from headrace.lifecycle import BusSettings, Health
from headrace.telemetry import get_log
from headrace.wire import base_topics

__all__ = ["provided"]

TRY_S = 5.0
"""A request of a try that began while the log was away may hang, though it is back."""

REST_S = 0.5
"""Between two tries: an error may come at once."""


async def provided(
    bus: BusSettings, connection: KafkaConnection, health: Health
) -> None:
    """Return once the log has answered, and has the topics. Until then ``health`` says
    why it waits (``log``). Raises :class:`SetupError` for topics that are not fit.

    On a thread that nobody waits for: who is asked to end need not wait for the log.
    """
    admin, topics = KafkaAdmin(connection), base_topics(bus.topics, bus)
    loop, log = asyncio.get_running_loop(), get_log()
    ended: asyncio.Future[None] = loop.create_future()

    def end(error: SetupError | None) -> None:
        if ended.done():
            return  # nobody awaits it any more
        if error is None:
            ended.set_result(None)
        else:
            ended.set_exception(error)

    def run() -> None:
        # The loop may be closed by then.
        with suppress(RuntimeError):
            while True:
                try:
                    admin.create_topics(topics, TRY_S)
                except BusError as error:
                    health.await_("log", f"the log has not answered yet: {error}")
                    log.warning("topic.missing", code=error.code, text=str(error))
                    time.sleep(REST_S)
                except SetupError as error:
                    loop.call_soon_threadsafe(end, error)
                    return
                else:
                    loop.call_soon_threadsafe(end, None)
                    return

    threading.Thread(target=run, name="provisioning", daemon=True).start()
    await ended
