"""A log and a group for the simulation: what A1 to A5 of the protocol promise, and no
more. Bytes handed to the network land whatever becomes of their sender; a record whose
produce timed out lies before its producer's next acked one or nowhere; a commit is
accepted from any live member, whatever it names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.delivery.decisions import CommitEntry
from headrace.delivery.events import CommitOutcome
from tests.delivery.builders import MS, SECOND

if TYPE_CHECKING:
    from tests.delivery.former_process import FormerProcess
    from tests.delivery.process import Process
    from tests.delivery.world import World

__all__ = ["Coordinator", "Log", "Partition", "Producer"]

Partition = tuple[str, int]
SESSION_US = 3 * SECOND


class Log:
    """Partitions of records. Readers are called some time after each append."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.records: dict[Partition, list[Any]] = defaultdict(list)
        self._readers: dict[Partition, list[Callable[[], None]]] = defaultdict(list)

    def append(self, partition: Partition, record: object) -> int:
        records = self.records[partition]
        offset = len(records)
        records.append(record)
        self._world.history.appended(partition, record)
        for reader in self._readers[partition]:
            self._world.after(self._world.latency_us(), reader)
        return offset

    def end(self, partition: Partition) -> int:
        return len(self.records[partition])

    def subscribe(self, partition: Partition, reader: Callable[[], None]) -> None:
        self._readers[partition].append(reader)

    def unsubscribe(self, partition: Partition, reader: Callable[[], None]) -> None:
        if reader in self._readers[partition]:
            self._readers[partition].remove(reader)


class Producer:
    """One idempotent producer of a process."""

    def __init__(self, world: World, owner: Process) -> None:
        self._world = world
        self._owner = owner
        self._lands_at_us: dict[Partition, int] = defaultdict(int)

    def produce(
        self,
        partition: Partition,
        record: object,
        on_end: Callable[[int | None], None],
        timeout_us: int,
    ) -> None:
        world = self._world
        lands_at_us = max(
            world.now_us + world.latency_us(), self._lands_at_us[partition] + 1
        )
        fate = world.faults.produce_fate()
        if fate == "lost":
            self._owner.after(timeout_us, lambda: on_end(None))
            return
        self._lands_at_us[partition] = lands_at_us

        def land() -> None:
            if self._owner.is_dead and world.random.random() < 0.5:
                return  # it was still in the process's memory
            offset = world.log.append(partition, record)
            if fate == "acked":
                self._owner.after(world.latency_us(), lambda: on_end(offset))

        world.at(lands_at_us, land)
        if fate == "unacked":
            self._owner.after(timeout_us, lambda: on_end(None))


class Coordinator:
    """The lane group of one lane: members by instance id, an owner, commits."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.members: dict[int, FormerProcess] = {}
        self.owner: int | None = None
        self.committed: dict[Partition, tuple[int, str]] = {}
        self._rebalances_until_us = 0
        self._is_moving = False

    def join(self, process: FormerProcess) -> None:
        """A static member: a known instance id takes its place, and its lanes, back."""
        world = self._world
        before = self.members.get(process.instance)
        self.members[process.instance] = process
        if before is not None and before is not process and not before.is_dead:
            world.after(world.latency_us(), before.fenced)
        if self.owner == process.instance:
            world.after(200 * MS, lambda: self._assign(process))
        else:
            self._settle_owner()

    def leave(self, process: FormerProcess) -> None:
        """``process`` is out: its session ended, or it learned that it has."""
        if self.members.get(process.instance) is process:
            del self.members[process.instance]
            if self.owner == process.instance:
                self.owner = None
                self._settle_owner()

    def check_sessions(self) -> None:
        for process in list(self.members.values()):
            silent_since_us = process.silent_since_us
            if silent_since_us is None:
                continue
            if self._world.now_us - silent_since_us > SESSION_US:
                self.leave(process)

    def is_member(self, process: FormerProcess) -> bool:
        return self.members.get(process.instance) is process

    def commit(
        self,
        process: FormerProcess,
        entries: tuple[CommitEntry, ...],
        on_end: Callable[[CommitOutcome], None],
    ) -> None:
        world = self._world
        delay_us = world.latency_us()
        if world.random.random() < 0.02:
            delay_us += world.random.randrange(SECOND)  # A2: accepted late

        def arrive() -> None:
            outcome = self._accept(process, entries)
            process.after(world.latency_us(), lambda: on_end(outcome))

        world.after(delay_us, arrive)

    def move(self) -> None:
        """A graceful rebalance: the lane goes to another live member."""
        others = [
            process
            for instance, process in self.members.items()
            if instance != self.owner and process.silent_since_us is None
        ]
        owner = self.members.get(self.owner) if self.owner is not None else None
        if not others or owner is None or self._is_moving:
            return
        if owner.silent_since_us is not None:
            return
        self._is_moving = True
        successor = self._world.random.choice(others)
        self._rebalances_until_us = self._world.now_us + 300 * MS

        def let_go() -> None:
            self._is_moving = False
            if self.owner == owner.instance and self.is_member(owner):
                self.owner = successor.instance
                if self.is_member(successor):
                    self._assign(successor)
                else:
                    self.owner = None
                    self._settle_owner()

        owner.revoked(let_go)

    def _accept(
        self, process: FormerProcess, entries: tuple[CommitEntry, ...]
    ) -> CommitOutcome:
        member = self.members.get(process.instance)
        if member is not process:
            return CommitOutcome.NOT_MEMBER if member is None else CommitOutcome.FENCED
        world = self._world
        if world.now_us < self._rebalances_until_us and world.random.random() < 0.5:
            return CommitOutcome.TRANSIENT
        for entry in entries:
            partition = (entry.topic, entry.partition)
            self.committed[partition] = (entry.offset, entry.metadata)
            world.history.committed(process, partition, entry.offset, entry.metadata)
        return CommitOutcome.ACCEPTED

    def _settle_owner(self) -> None:
        def assign() -> None:
            live = [p for p in self.members.values() if p.silent_since_us is None]
            if self.owner is None and live:
                process = self._world.random.choice(live)
                self.owner = process.instance
                self._assign(process)

        self._world.after(self._world.random.randrange(200, 900) * MS, assign)

    def _assign(self, process: FormerProcess) -> None:
        def assign() -> None:
            if self.owner == process.instance and self.is_member(process):
                process.assigned()

        self._world.after(self._world.latency_us(), assign)
