"""Requests share batches when a worker is busy, and do not wait when it is free."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest

from headrace.broker import KafkaConnection, tail
from headrace.wire import Batch, Topics, decode_order
from services.ctl.client import Answer, Connection, infer_request
from tests.end_to_end.platforms import Platform, eventually

pytestmark = pytest.mark.kafka

ROW = infer_request({"X": np.arange(4, dtype=np.float32)[None]})


async def paced(
    url: str, model: str, every_s: float, count: int
) -> list[tuple[Answer, float]]:
    """A request every ``every_s``, whatever becomes of the ones before."""
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def one(number: int) -> tuple[Answer, float]:
        await asyncio.sleep(began + number * every_s - loop.time())
        connection = Connection(url)
        sent = loop.time()
        answer = await connection.post(f"/v2/models/{model}/infer", ROW)
        took_s = loop.time() - sent
        connection.close()
        return answer, took_s

    return await asyncio.gather(*(one(number) for number in range(count)))


async def test_two_ingresses_share_batches(platform: Platform) -> None:
    assert len(platform.document.http) == 2
    before = platform.stats("paced")
    since_us = time.time_ns() // 1000

    answers = await asyncio.gather(
        *(paced(url, "paced", 0.1, 40) for url in platform.document.http)
    )

    assert [a.status for mine in answers for a, _ in mine] == [200] * 80
    batches = await batches_since(platform, "paced", since_us)
    assert sum(len(batch) for batch in batches) == 80
    assert 80 / len(batches) >= 3
    shared = [batch for batch in batches if len(set(batch)) == 2]
    assert len(shared) >= len(batches) // 2
    rows, runs = (
        after - earlier
        for after, earlier in zip(platform.stats("paced"), before, strict=True)
    )
    assert rows == 80
    assert runs >= len(batches)


async def batches_since(
    platform: Platform, model: str, since_us: int
) -> list[list[int | None]]:
    """The reply partitions of each batch's members, from the log itself."""
    return [
        [to.partition if to else None for to in order.addresses]
        for order in await orders(platform, since_us)
        if order.model == model
    ]


async def orders(platform: Platform, since_us: int) -> list[Batch]:
    connection = KafkaConnection(platform.document.bootstrap_servers, "test")
    records = tail(connection, Topics().batches, since_us=since_us)
    found = [decode_order(record) async for record in records]
    return [order for order in found if isinstance(order, Batch)]


async def test_a_lone_request_is_not_delayed(platform: Platform) -> None:
    run_s = 0.020
    since_us = time.time_ns() // 1000
    connection = Connection(platform.url)
    took_s = []
    ended = runs_heard_of(platform)
    for number in range(1, 41):
        sent = time.monotonic()
        answer = await connection.post("/v2/models/quick/infer", ROW)
        took_s.append(time.monotonic() - sent)
        assert answer.status == 200
        await asyncio.to_thread(
            eventually,
            lambda: runs_heard_of(platform) == ended + number,  # noqa: B023 - awaited
            every_s=0.02,
        )
    connection.close()

    # A window of a batcher is waited for by each of them, a busy core by some.
    assert min(took_s) <= run_s + 0.050
    reasons = [order.release_reason for order in await orders(platform, since_us)]
    assert reasons == ["idle"] * 40


def runs_heard_of(platform: Platform) -> float:
    """Runs of which the former has read that they have ended."""
    return platform.former_value("run_overrun_ratio_count", model="quick")


async def test_those_that_come_during_a_run_leave_together(
    platform: Platform,
) -> None:
    """One batch runs for long; eight more arrive meanwhile."""
    since_us = time.time_ns() // 1000
    connections = [Connection(platform.url) for _ in range(9)]
    path = "/v2/models/long/infer"

    async def later(number: int) -> Answer:
        await asyncio.sleep(0.03 + 0.005 * number)
        return await connections[number].post(path, ROW)

    answers = await asyncio.gather(
        connections[8].post(path, ROW), *(later(number) for number in range(8))
    )
    for connection in connections:
        connection.close()

    assert {answer.status for answer in answers} == {200}
    sizes = [len(batch) for batch in await batches_since(platform, "long", since_us)]
    assert sizes == [1, 8]


async def test_a_full_batch_leaves_at_once(platform: Platform) -> None:
    """32 rows in one request fill a batch of 32."""
    since_us = time.time_ns() // 1000
    rows = infer_request({"X": np.zeros((32, 4), np.float32)})
    connection = Connection(platform.url)
    answer = await connection.post("/v2/models/quick/infer", rows)
    connection.close()

    assert answer.status == 200
    (order,) = await orders(platform, since_us)
    assert (order.release_reason, order.rows) == ("full", [32])
