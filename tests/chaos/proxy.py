"""The network between the services and the broker, to be slowed, stalled and cut.

A process of its own, since all traffic of a platform passes it: it takes commands, one
a line, and answers each with a line when it is done.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import deque
from enum import Enum, auto
from pathlib import Path
from typing import cast

import uvloop

__all__ = ["Direction", "Proxy"]

HOST = "127.0.0.1"
_TICK_S = 0.001
ROOT = Path(__file__).parents[2]


class Direction(Enum):
    """Which bytes."""

    TO_BROKER = auto()
    FROM_BROKER = auto()


class Proxy:
    """Passes TCP connections on to a port of this machine."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.proxy"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.port = int(self._answer())

    def lead_to(self, port: int) -> None:
        """Where connections made from now on end."""
        self._do(f"lead {port}")

    def slow(self, delay_s: float) -> None:
        """Let every byte arrive so much later, in both directions."""
        self._do(f"slow {delay_s}")

    def stall(self, *directions: Direction) -> None:
        """Take bytes of these directions in and pass none on, until ``flow``."""
        for direction in directions:
            self._do(f"stall {direction.name}")

    def flow(self) -> None:
        """End ``slow`` and ``stall``; what was held back arrives."""
        self._do("flow")

    def cut(self) -> None:
        """Reset every connection to the services. What had left them arrives at the
        broker all the same, now or after ``flow``."""
        self._do("cut")

    def close(self) -> None:
        self._process.communicate()

    def _do(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        assert self._answer() == command

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the proxy has ended"
        return line.strip()


class Network:
    """What happens to all bytes."""

    def __init__(self) -> None:
        self.port = 0
        self.delay_s = 0.0
        self.stalled: set[Direction] = set()
        self.ends: set[End] = set()

    def obey(self, command: str) -> None:
        match command.split():
            case ["lead", port]:
                self.port = int(port)
            case ["slow", delay_s]:
                self.delay_s = float(delay_s)
            case ["stall", direction]:
                self.stalled.add(Direction[direction])
            case ["flow"]:
                self.delay_s = 0.0
                self.stalled.clear()
                for end in list(self.ends):
                    end.pass_on()
            case ["cut"]:
                for end in list(self.ends):
                    if end.direction is Direction.TO_BROKER:
                        end.reset()
            case _:
                raise AssertionError(command)


class End(asyncio.Protocol):
    """One side's connection; what it receives goes to the other side."""

    def __init__(self, network: Network, direction: Direction) -> None:
        self.direction = direction
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._other: End | None = None
        self._held: deque[tuple[float, bytes | None]] = deque()
        """Each with the time from which it may arrive; None: the side has ended."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._network.ends.add(self)
        if self.direction is Direction.TO_BROKER:
            self._loop.create_task(self._reach())

    def data_received(self, data: bytes) -> None:
        self._take(data)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._take(None)

    def reset(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def pass_on(self) -> None:
        """What was held back, unless it still must be."""
        if self._other is None or self.direction in self._network.stalled:
            return
        now_s = self._loop.time()
        while self._held and (self._held[0][0] <= now_s or not self._network.delay_s):
            _, data = self._held.popleft()
            self._other.write(data)
            if data is None:
                self._network.ends.discard(self)

    def write(self, data: bytes | None) -> None:
        assert self._transport is not None
        if data is None:
            self._transport.close()
        elif not self._transport.is_closing():
            self._transport.write(data)

    async def _reach(self) -> None:
        """Find the broker for a service that has connected."""
        other = End(self._network, Direction.FROM_BROKER)
        other._other = self
        try:
            await self._loop.create_connection(lambda: other, HOST, self._network.port)
        except OSError:
            self._network.ends.discard(self)
            self.reset()
            return
        self._other = other
        self.pass_on()

    def _take(self, data: bytes | None) -> None:
        delay_s = self._network.delay_s
        self._held.append((self._loop.time() + delay_s, data))
        if delay_s:
            self._loop.call_later(delay_s + _TICK_S, self.pass_on)
        else:
            self.pass_on()


async def serve() -> None:
    loop = asyncio.get_running_loop()
    network = Network()
    server = await loop.create_server(
        lambda: End(network, Direction.TO_BROKER), HOST, 0
    )
    tell(server.sockets[0].getsockname()[1])
    while command := (await asyncio.to_thread(sys.stdin.readline)).strip():
        network.obey(command)
        tell(command)


def tell(line: object) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    uvloop.run(serve())
