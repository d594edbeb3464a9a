"""What strikes in a simulated run, drawn from its seed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.delivery.builders import MS, SECOND
from tests.delivery.process import Process

if TYPE_CHECKING:
    from tests.delivery.world import World

__all__ = ["FAULTS_UNTIL_US", "HARMLESS", "KINDS", "Faults"]

FAULTS_UNTIL_US = 8 * SECOND
KINDS = (
    "former_kill",
    "former_freeze",
    "worker_kill",
    "worker_freeze",
    "worker_replace",
    "worker_restart",
    "produce",
    "move",
    "slow_run",
    "slow_status",
    "no_status",
    "reread",
    "link",
)

HARMLESS = frozenset({"slow_status", "no_status", "move", "worker_restart", "reread"})
"""Kinds that cost no request an attempt, however often they strike (D3, D16)."""


class Faults:
    """Which kinds strike in this run, and how often."""

    def __init__(self, world: World, kinds: frozenset[str], strikes: int) -> None:
        self._world = world
        self.kinds = kinds
        self.strikes = strikes
        self.is_over = False
        self.struck = 0
        """Faults so far that can cost an attempt."""

    def plan(self) -> None:
        """Spread the strikes over the time of faults."""
        world = self._world
        singles = sorted(self.kinds - {"produce", "slow_run", "reread"})
        for _ in range(self.strikes if singles else 0):
            kind = world.random.choice(singles)
            at_us = world.random.randrange(200 * MS, FAULTS_UNTIL_US)
            world.at(at_us, partial(self._strike, kind))
        world.at(FAULTS_UNTIL_US, self._end)

    def produce_fate(self) -> str:
        if self.is_over or "produce" not in self.kinds:
            return "acked"
        if self._world.random.random() > 0.03 or self.struck >= self.strikes:
            return "acked"
        self.struck += 1
        return self._world.random.choice(["lost", "unacked"])

    def rereads(self) -> bool:
        return "reread" in self.kinds and self._world.random.random() < 0.05

    def run_us(self) -> int:
        random = self._world.random
        if not self.is_over and "slow_run" in self.kinds and random.random() < 0.05:
            self.struck += 1
            return random.randrange(300 * MS, 3 * SECOND)
        return random.randrange(*self._world.run_us)

    def _strike(self, kind: str) -> None:
        world = self._world
        self.struck += kind not in HARMLESS
        match kind:
            case "former_kill":
                world.kill_former(world.random.randrange(len(world.formers)))
            case "former_freeze":
                self._freeze(world.random.choice(world.formers))
            case "worker_kill":
                worker = world.random.choice(world.workers)
                if not worker.is_dead:
                    world.worker_ended(worker, "signal:KILL")
            case "worker_freeze":
                self._freeze(world.random.choice(world.workers))
            case "worker_replace":
                worker = world.random.choice(world.workers)
                self._freeze(worker)
                world.start_worker(worker.slot, "")
            case _:
                self._disturb(kind)

    def _disturb(self, kind: str) -> None:
        world = self._world
        match kind:
            case "worker_restart":
                world.random.choice(world.workers).drain()
            case "move":
                world.group.move()
            case "slow_status":
                slow_us = world.random.randrange(2 * SECOND)
                world.status_slow_until_us = world.now_us + slow_us
            case "link":
                for former in world.formers:
                    former.streams.stall()
            case "no_status":
                stopped_us = world.random.randrange(3 * SECOND)
                world.status_stopped_until_us = world.now_us + stopped_us
            case _:
                raise AssertionError(kind)

    def _freeze(self, process: Process) -> None:
        if process.silent_since_us is None:
            process.freeze()
            self._world.frozen.append(process)
            freeze_us = self._world.random.randrange(100 * MS, 6 * SECOND)
            self._world.after(freeze_us, process.thaw)

    def _end(self) -> None:
        self.is_over = True
        for process in self._world.frozen:
            process.thaw()
