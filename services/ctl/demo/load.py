"""Many clients at once: each connection sends one request after another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from headrace.clock import Clock
from services.ctl.client import (
    Connection,
    InferRequest,
    tensors_of,
)

__all__ = ["Outcome", "Sent", "percentile_ms", "send_all"]

_OK = 200


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one request ended: its outputs, or a sentence about what went wrong."""

    latency_us: int
    outputs: dict[str, npt.NDArray[Any]] | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Sent:
    """All outcomes, in the order of the requests; ``elapsed_us`` from the first
    request sent to the last answer."""

    outcomes: Sequence[Outcome]
    elapsed_us: int

    @property
    def answered(self) -> int:
        return sum(outcome.outputs is not None for outcome in self.outcomes)


async def send_all(
    urls: Sequence[str],
    path: str,
    requests: Sequence[InferRequest],
    *,
    connections: int,
    clock: Clock,
    on_answer: Callable[[], None],
) -> Sent:
    """Send every request once over ``connections`` connections, dealt over ``urls``."""
    outcomes: list[Outcome | None] = [None] * len(requests)
    waiting = iter(enumerate(requests))

    async def client(url: str) -> None:
        connection = Connection(url)
        for index, request in waiting:
            outcomes[index] = await _send(connection, path, request, clock)
            on_answer()
        connection.close()

    began_us = clock.now_us()
    async with asyncio.TaskGroup() as group:
        for number in range(connections):
            group.create_task(client(urls[number % len(urls)]))
    elapsed_us = clock.now_us() - began_us
    return Sent([outcome for outcome in outcomes if outcome is not None], elapsed_us)


async def _send(
    connection: Connection, path: str, request: InferRequest, clock: Clock
) -> Outcome:
    began_us = clock.now_us()
    try:
        answer = await connection.post(path, request)
    except TimeoutError:
        return Outcome(clock.now_us() - began_us, None, "no answer in time")
    except OSError as error:
        return Outcome(clock.now_us() - began_us, None, str(error))
    latency_us = clock.now_us() - began_us
    if answer.status != _OK:
        return Outcome(latency_us, None, f"{answer.status}: {answer.error()}")
    return Outcome(latency_us, tensors_of(answer))


def percentile_ms(sent: Sent, share: float) -> float:
    """The latency below which ``share`` of the answers stayed."""
    latencies = sorted(o.latency_us for o in sent.outcomes if o.outputs is not None)
    if not latencies:
        return 0.0
    return latencies[min(len(latencies) - 1, int(share * len(latencies)))] / 1000
