"""Clients over HTTP: each request with a value of its own, all that came back noted."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from services.ctl.client import (
    Answer,
    Connection,
    InferRequest,
    infer_request,
    tensors_of,
)
from tests.chaos.history import Ask, End

__all__ = [
    "INLINE_BYTES_MAX",
    "INTEGERS",
    "LIMIT_MS",
    "MODELS",
    "Clients",
    "now_us",
    "value_of",
]

INTEGERS = "echo"
MODELS = (INTEGERS, "simulated", "tight")
"""An identity of ONNX Runtime's that some rows break, a simulated accelerator, and one
with little memory. All of them answer with what they were asked."""

INLINE_BYTES_MAX = 4_096
"""A larger request or answer travels through the payload store."""

STORED_EVERY = 8
STORED_WIDTH = 1_024
"""Of 64-bit numbers, of every so manieth value."""

LIMIT_MS = 2_000
GIVES_UP_S = 60.0
"""Far beyond every limit and pause."""

AGAIN_WITHIN_S = 20.0
PAUSE_S = 0.25
"""After a refusal. They ask for a second; without any, most of a run is refusals."""

LOOK_S = 0.01
CALM_S = 0.5


def now_us() -> int:
    return time.monotonic_ns() // 1000


@dataclass
class Clients:
    """``count`` clients that ask one request after another until ``stop``."""

    urls: Sequence[str]
    seed: int
    count: int = 16
    limits_ms: Sequence[int] = (LIMIT_MS,)
    """Each request has one of them."""
    pause_s: float = 0.02
    """Between an answer and the next request, at most."""
    keyed: float = 0.25
    """The part that is asked under an idempotency key."""
    models: Sequence[str] = MODELS
    asks: list[Ask] = field(default_factory=list)
    _numbers: int = 0
    _stopping: bool = False
    _lags: list[tuple[int, int]] = field(default_factory=list)

    def ask_during(self, act: Callable[[], None], *, at_least: int = 0) -> None:
        """Ask while ``act`` runs in a thread, and a moment before and after; so many
        times at least."""
        over = False

        def run() -> None:
            nonlocal over
            time.sleep(CALM_S)
            try:
                act()
                time.sleep(CALM_S)
            finally:
                over = True

        async def both() -> None:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(asyncio.to_thread(run))
                tasks.create_task(self.run(lambda: over and len(self.asks) >= at_least))

        asyncio.run(both())

    async def run(self, until: Callable[[], bool]) -> None:
        """Ask until ``until``; every request has ended then."""
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._watch_lag())
            asking = [
                tasks.create_task(self._client(number, until))
                for number in range(self.count)
            ]
            await asyncio.wait(asking)
            # The connections, which were aborted, are closed by the loop.
            await asyncio.sleep(LOOK_S)
            watching.cancel()

    async def _watch_lag(self) -> None:
        """Note when this process itself was late."""
        while True:
            before = now_us()
            await asyncio.sleep(LOOK_S)
            late_us = now_us() - before - int(LOOK_S * 1e6)
            if late_us > LOOK_S * 1e6:
                self._lags.append((now_us(), late_us))

    async def _client(self, number: int, until: Callable[[], bool]) -> None:
        rng = random.Random(f"{self.seed} {number}")
        connections = [Connection(url) for url in self.urls]
        while not until():
            ask = await self._ask(rng, connections)
            if ask.end is End.BROKEN and ask.key:
                await self._ask_again(ask, connections)
            refused = ask.end is not End.ANSWERED or ask.status != 200
            await asyncio.sleep(PAUSE_S if refused else rng.uniform(0, self.pause_s))
        for connection in connections:
            connection.close()

    async def _ask(self, rng: random.Random, connections: list[Connection]) -> Ask:
        self._numbers += 1
        number = self._numbers
        model = rng.choice(self.models)
        ingress = rng.randrange(len(connections))
        key = f"{self.seed}-{number}" if rng.random() < self.keyed else ""
        limit_ms = rng.choice(self.limits_ms)
        return await self._send(number, model, ingress, key, limit_ms, connections)

    async def _ask_again(self, ask: Ask, connections: list[Connection]) -> None:
        """Under the same key, until an answer or the patience's end."""
        give_up_us = now_us() + int(AGAIN_WITHIN_S * 1e6)
        ingress = ask.ingress
        while now_us() < give_up_us:
            ingress = (ingress + 1) % len(connections)
            got = await self._send(
                ask.number,
                ask.model,
                ingress,
                ask.key,
                ask.limit_us // 1000,
                connections,
            )
            if got.end is End.ANSWERED and got.status == 200:
                return
            await asyncio.sleep(PAUSE_S)

    async def _send(
        self,
        number: int,
        model: str,
        ingress: int,
        key: str,
        limit_ms: int,
        connections: list[Connection],
    ) -> Ask:
        value = value_of(number, model)
        plain = infer_request({"X": value})
        headers = {**plain.headers, "headrace-timeout-ms": str(limit_ms)}
        if key:
            headers["idempotency-key"] = key
        request = InferRequest(plain.body, headers)
        sent_us = now_us()
        answer: Answer | None = None
        try:
            answer = await connections[ingress].post(
                f"/v2/models/{model}/infer", request, timeout_s=GIVES_UP_S
            )
            end = End.ANSWERED
        except TimeoutError:
            end = End.SILENT
        except OSError:
            end = End.BROKEN
        ended_us = now_us()
        ask = Ask(
            number=number,
            model=model,
            ingress=ingress,
            limit_us=limit_ms * 1000,
            sent_us=sent_us,
            ended_us=ended_us,
            lag_us=self._lag_us(sent_us),
            end=end,
            status=answer.status if answer else 0,
            reason=answer.headers.get("headrace-reason", "") if answer else "",
            is_right=answer is not None and is_right(answer, value),
            key=key,
        )
        self.asks.append(ask)
        return ask

    def _lag_us(self, since_us: int) -> int:
        total_us = 0
        for at_us, late_us in reversed(self._lags):
            if at_us < since_us:
                break
            total_us += late_us
        return total_us


def value_of(number: int, model: str) -> npt.NDArray[np.generic]:
    """One row that no other request has."""
    if model == INTEGERS:
        width = STORED_WIDTH if number % STORED_EVERY == 0 else 1
        return np.arange(number, number + width, dtype=np.int64).reshape(1, width)
    low, high = number % 65536, number // 65536
    return np.array([[low, high, -low, 0.5]], np.float32)


def is_right(answer: Answer, value: npt.NDArray[np.generic]) -> bool:
    if answer.status != 200:
        return False
    (output,) = tensors_of(answer).values()
    return output.dtype == value.dtype and bool(np.array_equal(output, value))
