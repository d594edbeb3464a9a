"""The partitions of a priority, busy ones and idle ones apart.

A fetch names all partitions of its reader, and the log looks at every one of them:
with a thousand in one reader each record waits for that. So there are two readers, and
records themselves say which of them a partition belongs to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Protocol

from headrace.broker import TopicPartition

__all__ = ["Tier", "Tiers"]


class Tier(IntEnum):
    HOT = 0
    COLD = 1


class PartitionReader(Protocol):
    """What a tier needs of its reader; each call returns the number of the change,
    and the two of a priority count their changes together."""

    def read(self, positions: Mapping[TopicPartition, int]) -> int: ...

    def stop_reading(self, partitions: Sequence[TopicPartition]) -> int: ...

    def pause(self, partition: TopicPartition) -> int: ...

    def resume(self, partition: TopicPartition) -> int: ...


class Tiers:
    """One priority's partitions over its two readers. A paused one stays where it is.

    The loop alone calls it. Since the changes of both readers have one count, a route
    tells by its change what was read before a move from what was read after it.
    """

    def __init__(
        self,
        hot: PartitionReader,
        make_cold: Callable[[], PartitionReader],
        *,
        hot_max: int,
        idle_us: int,
    ) -> None:
        """Beyond ``hot_max`` partitions those become cold that had no record for
        ``idle_us``."""
        self._hot_max = hot_max
        self._idle_us = idle_us
        self._readers = {Tier.HOT: hot}
        self._make_cold = make_cold
        self._tiers: dict[TopicPartition, Tier] = {}
        self._read_us: dict[TopicPartition, int | None] = {}
        """When each hot partition last had a record, once that is watched."""
        self._paused: set[TopicPartition] = set()

    @property
    def has_cold(self) -> bool:
        """Whether records must be shown to :meth:`to_warm`."""
        return len(self._tiers) > len(self._read_us)

    def read(self, positions: Mapping[TopicPartition, int]) -> int:
        """Read from there on, in the tier where each is or, if it is new, where there
        is room; the number of the change."""
        apart: dict[Tier, dict[TopicPartition, int]] = {}
        for one, offset in positions.items():
            tier = self._tiers.get(one)
            if tier is None:
                has_room = len(self._read_us) < self._hot_max
                tier = self._put(one, Tier.HOT if has_room else Tier.COLD)
            apart.setdefault(tier, {})[one] = offset
        self._paused.difference_update(positions)
        return min(self._reader(tier).read(some) for tier, some in apart.items())

    def stop_reading(self, partitions: Iterable[TopicPartition]) -> None:
        apart: defaultdict[Tier, list[TopicPartition]] = defaultdict(list)
        for one in partitions:
            tier = self._tiers.pop(one, None)
            if tier is not None:
                self._read_us.pop(one, None)
                self._paused.discard(one)
                apart[tier].append(one)
        for tier, some in apart.items():
            self._reader(tier).stop_reading(some)

    def pause(self, partition: TopicPartition) -> None:
        self._paused.add(partition)
        self._reader(self._tiers[partition]).pause(partition)

    def resume(self, partition: TopicPartition) -> None:
        self._paused.discard(partition)
        self._reader(self._tiers[partition]).resume(partition)

    def to_warm(
        self, partitions: Iterable[TopicPartition], now_us: int
    ) -> list[TopicPartition]:
        """These had records now: which of them are still cold, and may move."""
        cold = []
        for one in partitions:
            if one in self._read_us:
                self._read_us[one] = now_us
            elif one in self._tiers and one not in self._paused:
                cold.append(one)
        return cold

    def to_cool(self, now_us: int) -> list[TopicPartition]:
        """Hot partitions beyond the room for them, the longest idle first."""
        too_many = len(self._read_us) - self._hot_max
        if too_many <= 0:
            return []
        idle = []
        for one, read_us in self._read_us.items():
            if read_us is None:
                self._read_us[one] = now_us
            elif now_us - read_us >= self._idle_us and one not in self._paused:
                idle.append((read_us, one))
        return [one for _, one in sorted(idle)[:too_many]]

    def move(
        self, positions: Mapping[TopicPartition, int], tier: Tier, now_us: int
    ) -> int:
        """Read these in ``tier`` from there on; the number of the change."""
        for one in positions:
            self._put(one, tier, now_us)
        # What the old reader still finds of them, it finds before its next change, and
        # so after one that is older than this.
        change = self._reader(tier).read(positions)
        self._reader(Tier(1 - tier)).stop_reading([*positions])
        return change

    def _reader(self, tier: Tier) -> PartitionReader:
        if tier not in self._readers:
            self._readers[tier] = self._make_cold()
        return self._readers[tier]

    def _put(self, one: TopicPartition, tier: Tier, now_us: int | None = None) -> Tier:
        self._tiers[one] = tier
        if tier is Tier.HOT:
            self._read_us[one] = now_us
        else:
            self._read_us.pop(one, None)
        return tier
