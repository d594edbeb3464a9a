"""Under a flood, requests with one head are told what the last one was: no more."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.domain import Load
from headrace.wire import Role
from services.ingress.exchange import Exchange
from services.ingress.handler import SAME_US, Handler
from services.ingress.journal import LINES_AT_ONCE_MAX
from tests.services.ingress.test_own_faults import Client, client_of
from tests.services.ingress.world import BODY, World, a_result

FULL = Load(slots=1, free_us=[10_000_000])
FLOOD = LINES_AT_ONCE_MAX + 20
HEAD = b"POST /v2/models/m/infer HTTP/1.1\r\nhost: h\r\nx-request-id: %b\r\n"


LONGER = json.dumps(
    json.loads(BODY) | {"parameters": {"timeout": 100_000_000}}
).encode()
PLAIN = BODY.ljust(len(LONGER))
"""As long, so that their heads are the same."""


def a_request(body: bytes = PLAIN, name: bytes = b"theirs") -> bytes:
    return HEAD % name + b"content-length: %d\r\n\r\n" % len(body) + body


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each request that came behind one that was turned away: whether it was told
    the same without being looked at."""
    told: list[bool] = []
    look = Handler.turned_away_again

    def watched(handler: Handler, *asked: object) -> bytes | None:
        answer = look(handler, *asked)  # type: ignore[arg-type] # as it was called
        told.append(answer is not None)
        return answer

    monkeypatch.setattr(Handler, "turned_away_again", watched)
    return told


def answer_at_once(world: World) -> None:
    send = world.outbox.send

    def sent(exchange: Exchange, *more: Any) -> None:
        send(exchange, *more)
        asyncio.get_running_loop().call_soon(world.reply, a_result(exchange))

    world.outbox.send = sent  # type: ignore[assignment,method-assign] # a log that answers


async def flood(client: Client) -> list[tuple[int, dict[str, str]]]:
    answers = []
    for _ in range(FLOOD):
        ((status, headers, body),) = await client.ask(a_request())
        assert " ms of work are ahead" in body["error"]
        answers.append((status, headers))
    return answers


async def test_a_flood_is_answered_and_counted_one_by_one(again: list[bool]) -> None:
    world = World()
    world.beat(Role.BATCH_FORMER, load=FULL)
    async with client_of(world) as client:
        answers = await flood(client)
    assert {status for status, _ in answers} == {503}
    assert len({headers.pop("headrace-request-id") for _, headers in answers}) == FLOOD
    assert all(headers == answers[0][1] for _, headers in answers)
    assert answers[0][1]["x-request-id"] == "theirs"
    assert any(again)
    assert b'reason="overloaded",status="503",version="1"} %d.0' % FLOOD in (
        world.registry.render()
    )


async def test_what_opens_the_door_is_not_missed(again: list[bool]) -> None:
    world = World()
    answer_at_once(world)
    world.beat(Role.BATCH_FORMER, load=FULL)
    async with client_of(world) as client:
        await flood(client)
        assert again.pop()
        world.clock.advance(SAME_US)
        await client.ask(a_request())
        assert not again.pop()

        await flood(client)
        assert again.pop()
        ((status, _, _),) = await client.ask(a_request(LONGER))
        assert status == 200

        await flood(client)
        assert again.pop()
        world.beat(Role.BATCH_FORMER)
        ((status, _, _),) = await client.ask(a_request())
        assert status == 200
        assert not again.pop()
