"""The partitions of a priority, busy ones and idle ones apart.

A fetch names all partitions of its reader, and the log looks at every one of them:
with a thousand in one reader each record waits for that. So there are two readers, and
records themselves say which of them a partition belongs to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from headrace.broker import LOOK_S, ReaderSettings, TopicPartition

__all__ = ["READING", "Reading", "Tier", "Tiers"]


class Tier(IntEnum):
    HOT = 0
    COLD = 1


class Reading(NamedTuple):
    """How a tier's reader asks the log."""

    settings: ReaderSettings
    look_s: float
    """Between two looks whether there is anything that did not come."""


READING = {
    Tier.HOT: Reading(ReaderSettings(), LOOK_S),
    Tier.COLD: Reading(ReaderSettings(fetch_wait_ms=1_000), 8.0),
}
"""The log looks at each partition several times a fetch, and twice a look: a thousand
cold ones in four readers that asked every quarter of a second took a quarter of a core.
A record ends a wait at once; only a partition that comes while a fetch is under way
waits for its end, and so does a look, twice."""

OVERLAP_US = 2_000 * READING[Tier.COLD].settings.fetch_wait_ms
"""Twice as long as any fetch waits."""


class PartitionReader(Protocol):
    """What a tier needs of its reader; each call returns the number of the change,
    and the two of a priority count their changes together: a route's change is older
    than those with which its partition moves."""

    def read(self, positions: Mapping[TopicPartition, int]) -> int: ...

    def stop_reading(self, partitions: Sequence[TopicPartition]) -> int: ...

    def pause(self, partition: TopicPartition) -> int: ...

    def resume(self, partition: TopicPartition) -> int: ...


class Tiers:
    """One priority's partitions over its two readers. A paused one stays where it is.

    A reader does not see a partition before the fetch is over that was under way when
    it got it. So who moves is read by both for ``OVERLAP_US``, and whoever takes the
    records tells by their offsets which it has. The loop alone calls.
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
        ``idle_us``. Up to twice as many are hot while new ones come: a model just
        loaded is about to be asked for, and the cold reader would see it late."""
        self._hot_max = hot_max
        self._idle_us = idle_us
        self._readers = {Tier.HOT: hot}
        self._make_cold = make_cold
        self._tiers: dict[TopicPartition, Tier] = {}
        self._leaving: dict[TopicPartition, int] = {}
        """Until when the other reader has them too."""
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
                tier = self._put(one, self._tier_of_new())
            apart.setdefault(tier, {})[one] = offset
        self._paused.difference_update(positions)
        changes = [self._reader(tier).read(some) for tier, some in apart.items()]
        # What the other reader had of them has an older change.
        self._leave(self._leaving.keys() & positions.keys())
        return min(changes)

    def stop_reading(self, partitions: Iterable[TopicPartition]) -> None:
        known = self._tiers.keys() & set(partitions)
        self._leave(self._leaving.keys() & known)
        self._stop([(self._tiers.pop(one), one) for one in known])
        for one in known:
            self._read_us.pop(one, None)
            self._paused.discard(one)

    def pause(self, partition: TopicPartition) -> None:
        self._paused.add(partition)
        for reader in self._readers_of(partition):
            reader.pause(partition)

    def resume(self, partition: TopicPartition) -> None:
        self._paused.discard(partition)
        for reader in self._readers_of(partition):
            reader.resume(partition)

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
    ) -> None:
        """Read these in ``tier``, from there on."""
        for one in positions:
            self._put(one, tier, now_us)
            self._leaving[one] = now_us + OVERLAP_US
        self._reader(tier).read(positions)

    def settle(self, now_us: int) -> None:
        """Whoever has moved leaves its old reader when it is time."""
        self._leave({one for one, at_us in self._leaving.items() if at_us <= now_us})

    def _tier_of_new(self) -> Tier:
        room = self._hot_max
        if Tier.COLD in self._readers:
            room *= 2
        return Tier.HOT if len(self._read_us) < room else Tier.COLD

    def _leave(self, partitions: Collection[TopicPartition]) -> None:
        for one in partitions:
            del self._leaving[one]
        self._stop([(Tier(1 - self._tiers[one]), one) for one in partitions])

    def _stop(self, placed: Iterable[tuple[Tier, TopicPartition]]) -> None:
        apart: defaultdict[Tier, list[TopicPartition]] = defaultdict(list)
        for tier, one in placed:
            apart[tier].append(one)
        for tier, some in apart.items():
            self._reader(tier).stop_reading(some)

    def _readers_of(self, one: TopicPartition) -> list[PartitionReader]:
        tiers = Tier if one in self._leaving else (self._tiers[one],)
        return [self._reader(tier) for tier in tiers]

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
