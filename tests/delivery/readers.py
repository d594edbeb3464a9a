"""What a former's process in the simulation reads of the log."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.delivery.broker import Partition

if TYPE_CHECKING:
    from tests.delivery.former_process import FormerProcess

__all__ = ["Readers"]


class Readers:
    """Hands records to ``take`` as they come, now and then some of them once more."""

    def __init__(
        self, process: FormerProcess, take: Callable[[Partition, int, Any], None]
    ) -> None:
        self.positions: dict[Partition, int] = {}
        self._process = process
        self._world = process.world
        self._take = take
        self._paused: set[Partition] = set()
        self._single: set[Partition] = set()
        self._wakers: dict[Partition, Callable[[], None]] = {}

    def read(
        self, partition: Partition, position: int, *, single: bool = False
    ) -> None:
        """From ``position`` on; ``single``: one record, and then nothing."""
        self.stop(partition)
        self.positions[partition] = position
        if single:
            self._single.add(partition)
        waker = partial(self._process.call, partial(self.poll, partition))
        self._wakers[partition] = waker
        self._world.log.subscribe(partition, waker)
        latency_us = self._world.latency_us()
        self._process.after(latency_us, partial(self.poll, partition))

    def stop(self, partition: Partition) -> None:
        self.positions.pop(partition, None)
        self._paused.discard(partition)
        self._single.discard(partition)
        waker = self._wakers.pop(partition, None)
        if waker is not None:
            self._world.log.unsubscribe(partition, waker)

    def pause(self, partition: Partition) -> None:
        self._paused.add(partition)

    def resume(self, partition: Partition) -> None:
        self._paused.discard(partition)
        self.poll(partition)

    def poll(self, partition: Partition) -> None:
        records = self._world.log.records[partition]
        is_single = partition in self._single
        if (
            partition in self.positions
            and not is_single
            and self._world.faults.rereads()
        ):
            self.positions[partition] = max(0, self.positions[partition] - 3)
        while (position := self.positions.get(partition)) is not None:
            if position >= len(records) or partition in self._paused:
                break
            if is_single:
                self.stop(partition)
            else:
                self.positions[partition] = position + 1
            self._take(partition, position, records[position])
            if is_single or self._process.is_dead:
                break
