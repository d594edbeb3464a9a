"""Many clients at once: nobody gets the answer of another one."""

from __future__ import annotations

import asyncio
import random
import resource
from collections.abc import Sequence

import numpy as np
import pytest

from services.ctl.client import Answer, Connection, infer_request, tensors_of
from services.ctl.demo import digits
from tests.end_to_end.platforms import Array, Direct, Platform, occupied

pytestmark = pytest.mark.kafka

UNHURRIED = {"timeout": 60_000_000}
"""A thousand at once are more than a slow machine answers within the default limit."""
FULL = 32
PATH = "/v2/models/identity_int64/infer"


def unique_requests(count: int) -> list[Array]:
    """1 to 3 rows of 4; every value occurs once."""
    rng = random.Random(0)
    rows = [rng.randint(1, 3) for _ in range(count)]
    values = np.arange(4 * sum(rows), dtype=np.int64).reshape(-1, 4)
    return np.split(values, np.cumsum(rows)[:-1])


async def send_all(
    urls: Sequence[str], requests: Sequence[Array], connections: int
) -> list[Answer]:
    answers: list[Answer | None] = [None] * len(requests)
    waiting = iter(range(len(requests)))

    async def client(url: str) -> None:
        connection = Connection(url)
        for index in waiting:
            request = infer_request({"X": requests[index]}, parameters=UNHURRIED)
            answers[index] = await connection.post(PATH, request)
        connection.close()

    async with asyncio.TaskGroup() as group:
        for number in range(connections):
            group.create_task(client(urls[number % len(urls)]))
    return [answer for answer in answers if answer is not None]


@pytest.mark.parametrize("connections", [64, 1000])
async def test_five_thousand_unique_requests_get_their_own_answers(
    platform: Platform, connections: int
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * connections:
        pytest.skip(f"this machine allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        requests = unique_requests(5000)
        answers = await send_all(platform.document.http, requests, connections)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert [answer.status for answer in answers] == [200] * 5000
    mixed_up = [
        index
        for index, (request, answer) in enumerate(zip(requests, answers, strict=True))
        if not np.array_equal(tensors_of(answer)["Y"], request)
    ]
    assert mixed_up == []
    identities = {answer.headers["headrace-request-id"] for answer in answers}
    assert len(identities) == 5000


async def test_answers_in_full_batches_are_bit_equal_to_direct_runs(
    platform: Platform,
) -> None:
    images, _ = digits.held_out()
    direct = Direct(platform.models / "digits_mlp/1/model.onnx")
    before = platform.stats("digits_mlp")
    connections = [Connection(platform.url) for _ in range(FULL)]

    async def ask(connection: Connection, mine: Array) -> list[Answer]:
        return [
            await connection.post(
                "/v2/models/digits_mlp/infer", infer_request({"X": image[None]})
            )
            for image in mine
        ]

    shares = np.array_split(images, FULL)
    async with asyncio.TaskGroup() as group:
        with occupied(platform):
            asking = [
                group.create_task(ask(connection, mine))
                for connection, mine in zip(connections, shares, strict=True)
            ]
            await asyncio.to_thread(platform.await_queued, "digits_mlp", FULL)
    answers = [asked.result() for asked in asking]
    for connection in connections:
        connection.close()
    rows, batches = (
        after - earlier
        for after, earlier in zip(platform.stats("digits_mlp"), before, strict=True)
    )

    got = [tensors_of(answer) for mine in answers for answer in mine]
    for image, outputs in zip(images, got, strict=True):
        want = direct({"X": image[None]})
        for name, value in want.items():
            assert outputs[name].tobytes() == value.tobytes()
    assert rows == len(images)
    assert batches <= rows - FULL + 1
