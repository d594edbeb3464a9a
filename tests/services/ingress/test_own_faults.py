"""A fault of ours in the middle of a request: its client is told, the log has the
traceback under the request's id, and the connection goes on."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog

from headrace.lifecycle import Health, Pulse
from services.ingress.cold import cold_app
from services.ingress.later import Later
from services.ingress.server import HttpServer
from services.ingress.statistics import Statistics
from tests.services.ingress.world import BODY, World, a_result

BROKEN, UNKNOWN = b"m", b"nobody"
LIMIT_S = 30


def planted(*_arguments: object, **_named: object) -> Any:
    raise ZeroDivisionError("planted")


def a_request(model: bytes) -> bytes:
    head = b"POST /v2/models/%b/infer HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n"
    return head % (model, len(BODY)) + BODY


@contextlib.asynccontextmanager
async def serving(world: World) -> AsyncIterator[tuple[str, int]]:
    listener = socket.create_server(("127.0.0.1", 0))
    health = Health(Pulse(world.clock), {})
    app = cold_app(
        world.handler,
        world.fleet,
        Statistics(),
        planted,
        health,
        cast("Later", SimpleNamespace(get=planted, delete=planted)),
    )
    server = HttpServer(app, world.handler)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve([listener]))
        try:
            yield listener.getsockname()
        finally:
            server.drain()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader, self._writer = reader, writer

    async def ask(self, *requests: bytes) -> list[tuple[int, dict[str, str], Any]]:
        self._writer.write(b"".join(requests))
        return [await self._answer() for _ in requests]

    async def _answer(self) -> tuple[int, dict[str, str], Any]:
        async with asyncio.timeout(LIMIT_S):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
            line, *lines = head.strip().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            body = await self._reader.readexactly(int(headers["content-length"]))
        return int(line.split()[1]), headers, json.loads(body)

    def close(self) -> None:
        self._writer.close()


@contextlib.asynccontextmanager
async def client_of(world: World) -> AsyncIterator[Client]:
    async with serving(world) as address:
        client = Client(*await asyncio.open_connection(*address))
        try:
            yield client
        finally:
            client.close()


def crashes(log: list[Any]) -> dict[str, str]:
    """What was raised, by the request's id."""
    return {
        line["request_id"]: repr(line["exc_info"])
        for line in log
        if line["event"] == "http.failed"
    }


@pytest.fixture
def log() -> Any:
    with structlog.testing.capture_logs() as lines:
        yield lines


@pytest.mark.parametrize("where", ["_admission.decide", "_outbox.send"])
async def test_a_fault_on_the_hot_route_is_answered_between_its_neighbours(
    log: Any, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    owner, name = where.split(".")
    monkeypatch.setattr(getattr(world.handler, owner), name, planted)
    async with client_of(world) as client:
        neighbour = a_request(UNKNOWN)
        # The third time the head is known, and not parsed.
        for _ in range(3):
            (answer,) = await client.ask(a_request(BROKEN))
            check_told(answer, log)
        together = [neighbour, a_request(BROKEN), neighbour, a_request(BROKEN)]
        answers = await client.ask(*together)
        assert [status for status, _, _ in answers] == [404, 500, 404, 500]
        check_told(answers[1], log)
    assert len(world.handler.ends.waiters) == 0


@pytest.mark.parametrize("where", ["_admission.decide", "_outbox.send"])
async def test_a_fault_behind_asgi_is_answered_and_the_connection_goes_on(
    log: Any, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    owner, name = where.split(".")
    monkeypatch.setattr(getattr(world.handler, owner), name, planted)
    async with client_of(world) as client:
        # What is pipelined behind an ASGI call goes the same way.
        page = b"GET /v2 HTTP/1.1\r\nhost: h\r\n\r\n"
        answers = await client.ask(page, a_request(BROKEN), page, a_request(BROKEN))
        assert [status for status, _, _ in answers] == [200, 500, 200, 500]
        check_told(answers[1], log)
    assert len(world.handler.ends.waiters) == 0


async def test_a_fault_in_a_page_is_answered_and_the_connection_goes_on(
    log: Any,
) -> None:
    world = World()
    async with client_of(world) as client:
        page = b"GET /livez HTTP/1.1\r\nhost: h\r\n\r\n"
        for answer in await client.ask(page, page):
            check_told(answer, log)


async def test_where_the_refusal_itself_fails_the_connection_ends_with_an_answer(
    log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    monkeypatch.setattr(world.handler.outcomes, "refused", planted)
    async with client_of(world) as client:
        (answer,) = await client.ask(a_request(UNKNOWN))
        assert (answer[0], answer[1]["connection"]) == (500, "close")
        assert len(crashes(log)) == 1


def test_an_answer_that_cannot_be_written_costs_no_other_its_own(
    log: Any,
) -> None:
    world = World()
    broken, whole = world.ask(), world.ask()
    broken.wanted = planted  # type: ignore[assignment] # no outputs to go through
    world.reply(a_result(broken), a_result(whole))
    assert (broken.status, broken.reason, whole.status) == (500, "crash", 200)
    assert set(crashes(log)) == {broken.request_id}


def check_told(answer: tuple[int, dict[str, str], Any], log: Any) -> None:
    status, headers, body = answer
    assert (status, headers["headrace-reason"]) == (500, "crash")
    assert list(body) == ["error"]
    assert "connection" not in headers
    assert crashes(log)[headers["headrace-request-id"]] == (
        "ZeroDivisionError('planted')"
    )
