"""How far pipelined requests are read ahead of their answers."""

import asyncio
from collections.abc import AsyncIterator, Callable

from services.ingress.exchange import Exchange
from services.ingress.flow import PIECE_BYTES
from services.ingress.hot import HotExchange
from tests.services.ingress.test_own_faults import BROKEN, a_request, serving
from tests.services.ingress.world import World, a_result

LIMIT_S = 60
READ_AT_ONCE = 256 * 1024
"""By the event loop."""
LEAST = b"GET / HTTP/1.1\r\nhost:\r\n\r\n"


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not is_so():  # noqa: ASYNC110 - the server has no event for a test
            await asyncio.sleep(0.001)


async def a_waiting(world: World) -> Exchange:
    waiting = world.handler.ends.waiters.by_id
    await until(lambda: waiting)
    (exchange,) = waiting.values()
    return exchange


async def statuses(reader: asyncio.StreamReader, count: int) -> AsyncIterator[int]:
    async with asyncio.timeout(LIMIT_S):
        for _ in range(count):
            head = await reader.readuntil(b"\r\n\r\n")
            fields = head.lower().partition(b"content-length: ")[2]
            await reader.readexactly(int(fields.split(b"\r\n")[0]))
            yield int(head.split()[1])


async def test_pipelined_requests_become_objects_only_as_far_as_there_is_room() -> None:
    """As objects they take hundreds of times their bytes, and a client that reads no
    answers can send as many as it likes."""
    world = World()
    most = world.handler.limits.http_pipelined_max + PIECE_BYTES // len(LEAST)
    count = 10 * most
    async with serving(world) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(a_request(BROKEN) + LEAST * count + a_request(BROKEN))
        exchange = await a_waiting(world)
        assert isinstance(exchange, HotExchange)
        connection = exchange.connection
        await until(lambda: connection.pipeline)
        assert len(connection.pipeline) <= most
        world.reply(a_result(exchange))
        seen = []
        async for status in statuses(reader, 1 + count):
            seen.append(status)
            assert len(connection.pipeline) <= most
        assert seen == [200] + [404] * count
        world.reply(a_result(await a_waiting(world)))
        assert [status async for status in statuses(reader, 1)] == [200]
        # In step, and read again.
        writer.write(LEAST)
        assert [status async for status in statuses(reader, 1)] == [404]
        writer.close()


async def test_bodies_of_any_size_stand_between_pipelined_requests() -> None:
    world = World()
    bodies = [b"x" * size for size in (0, 1, PIECE_BYTES, 3 * PIECE_BYTES + 7, 300_000)]
    requests = [
        b"PUT /%d HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n%b"
        % (len(body), len(body), body)
        for body in bodies
    ]
    async with serving(world) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(a_request(BROKEN) + b"".join(requests) + LEAST)
        world.reply(a_result(await a_waiting(world)))
        seen = [status async for status in statuses(reader, len(requests) + 2)]
        assert seen == [200] + [404] * (len(requests) + 1)
        writer.close()


async def test_no_more_is_read_with_every_answer() -> None:
    world = World()
    body = bytes(60_000)
    head = b"PUT / HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n"
    request = head % len(body) + body
    count = 60
    async with serving(world) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(a_request(BROKEN) + request * count)
        exchange = await a_waiting(world)
        assert isinstance(exchange, HotExchange)
        pipeline = exchange.connection.pipeline
        await until(lambda: pipeline)
        world.reply(a_result(exchange))
        async for status in statuses(reader, 1 + count):
            assert status in (200, 404)
            assert sum(len(cycle.body) for cycle, _ in pipeline) <= READ_AT_ONCE
        writer.close()
