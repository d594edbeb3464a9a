"""Which reader has which partition, and what a move loses or repeats: nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker import TopicPartition
from services.batch_former.tiers import OVERLAP_US, Tier, Tiers

P = [TopicPartition("requests.m", n) for n in range(5)]

IDLE_US = 100

Records = list[tuple[TopicPartition, int]]


class Reader:
    """As a reader and its thread: a change is made when the thread comes to it, and a
    batch bears the number of the last one that was."""

    def __init__(self, changes: Iterator[int]) -> None:
        self._changes = changes
        self._asked: list[tuple[int, Callable[[], None]]] = []
        self._at: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self.change = 0

    @property
    def partitions(self) -> set[TopicPartition]:
        self.obey()
        return set(self._at)

    def read(self, positions: Mapping[TopicPartition, int]) -> int:
        def make() -> None:
            self._at.update(positions)
            self._paused.difference_update(positions)

        return self._ask(make)

    def stop_reading(self, partitions: Sequence[TopicPartition]) -> int:
        def make() -> None:
            for one in partitions:
                del self._at[one]

        return self._ask(make)

    def pause(self, partition: TopicPartition) -> int:
        return self._ask(lambda: self._paused.add(partition))

    def resume(self, partition: TopicPartition) -> int:
        return self._ask(lambda: self._paused.discard(partition))

    def obey(self) -> None:
        for number, make in self._asked:
            make()
            self.change = number
        self._asked.clear()

    def poll(self, ends: Mapping[TopicPartition, int]) -> Records:
        """What lies in the log up to ``ends``, without making changes before."""
        found = []
        for one, at in self._at.items():
            if one not in self._paused and one in ends:
                found += [(one, offset) for offset in range(at, ends[one])]
                self._at[one] = max(at, ends[one])
        return found

    def polled(self, ends: Mapping[TopicPartition, int]) -> Records:
        self.obey()
        return self.poll(ends)

    def _ask(self, make: Callable[[], None]) -> int:
        number = next(self._changes)
        self._asked.append((number, make))
        return number


class Scene:
    def __init__(self, hot_max: int) -> None:
        changes = itertools.count(1)
        self.hot = Reader(changes)
        self.cold = Reader(changes)
        self.tiers = Tiers(
            self.hot, lambda: self.cold, hot_max=hot_max, idle_us=IDLE_US
        )


@pytest.fixture
def few() -> Scene:
    """Room for two hot partitions."""
    return Scene(hot_max=2)


def test_few_partitions_need_no_second_reader() -> None:
    def never() -> Reader:
        raise AssertionError

    hot = Reader(itertools.count(1))
    tiers = Tiers(hot, never, hot_max=len(P), idle_us=IDLE_US)
    tiers.read(dict.fromkeys(P, 0))
    assert hot.partitions == set(P)
    assert not tiers.has_cold
    tiers.to_cool(0)
    assert tiers.to_cool(100 * IDLE_US) == []


def test_a_record_makes_a_partition_hot_and_idleness_makes_it_cold(few: Scene) -> None:
    few.tiers.read(dict.fromkeys(P[:4], 0))
    assert few.hot.partitions == {P[0], P[1]}
    assert few.cold.partitions == {P[2], P[3]}
    assert few.tiers.to_warm([P[0], P[2]], 5) == [P[2]]
    few.tiers.move({P[2]: 1}, Tier.HOT, 5)
    assert few.hot.partitions == {P[0], P[1], P[2]}
    assert few.cold.partitions == {P[2], P[3]}
    few.tiers.settle(5 + OVERLAP_US)
    assert few.cold.partitions == {P[3]}
    # P[1] is watched from here on.
    assert few.tiers.to_cool(10) == []
    assert few.tiers.to_cool(5 + IDLE_US) == [P[0]]
    few.tiers.to_warm([P[0]], 6 + IDLE_US)
    assert few.tiers.to_cool(10 + IDLE_US) == [P[2]]
    few.tiers.move({P[2]: 7}, Tier.COLD, 10 + IDLE_US)
    assert few.cold.polled({P[2]: 9}) == [(P[2], 7), (P[2], 8)]


def test_a_paused_partition_stays_where_it_is(few: Scene) -> None:
    few.tiers.read(dict.fromkeys(P[:4], 0))
    few.tiers.pause(P[3])
    assert few.tiers.to_warm([P[3]], 1) == []
    assert few.cold.polled({P[3]: 1}) == []
    few.tiers.resume(P[3])
    assert few.tiers.to_warm([P[3]], 1) == [P[3]]
    few.tiers.move({P[3]: 1}, Tier.HOT, 1)
    few.tiers.pause(P[0])
    assert few.tiers.to_cool(1) == []
    assert few.tiers.to_cool(1 + IDLE_US) == [P[1]]


def test_who_moves_is_paused_and_read_anew_in_both_readers(few: Scene) -> None:
    few.tiers.read(dict.fromkeys(P[:3], 0))
    few.tiers.move({P[2]: 1}, Tier.HOT, 1)
    few.tiers.pause(P[2])
    assert few.hot.polled({P[2]: 2}) == few.cold.polled({P[2]: 2}) == []
    few.tiers.resume(P[2])
    assert few.hot.polled({P[2]: 2}) == [(P[2], 1)]
    few.tiers.read({P[2]: 1})
    assert few.hot.polled({P[2]: 2}) == [(P[2], 1)]
    assert few.cold.partitions == set()


def test_what_is_not_read_any_more_takes_no_room(few: Scene) -> None:
    few.tiers.read(dict.fromkeys(P[:3], 0))
    few.tiers.stop_reading([P[0], P[2]])
    assert not few.tiers.has_cold
    few.tiers.read({P[4]: 0})
    assert few.hot.partitions == {P[1], P[4]}
    assert few.cold.partitions == set()


def test_a_partition_that_is_read_anew_stays_in_its_tier(few: Scene) -> None:
    few.tiers.read(dict.fromkeys(P[:3], 5))
    few.tiers.read({P[2]: 3, P[0]: 4})
    assert few.cold.polled({P[2]: 4}) == [(P[2], 3)]
    assert few.hot.polled({P[0]: 5}) == [(P[0], 4)]


def test_what_comes_beside_a_cold_reader_is_hot_while_there_is_twice_the_room(
    few: Scene,
) -> None:
    few.tiers.read(dict.fromkeys(P[:3], 0))
    assert few.cold.partitions == {P[2]}
    few.tiers.read({P[3]: 0})
    assert few.hot.partitions == {P[0], P[1], P[3]}
    more = [TopicPartition("requests.more", n) for n in range(3)]
    few.tiers.read(dict.fromkeys(more, 0))
    assert few.hot.partitions == {P[0], P[1], P[3], more[0]}
    assert few.cold.partitions == {P[2], *more[1:]}
    few.tiers.to_cool(0)
    assert len(few.tiers.to_cool(IDLE_US)) == 2


class Loop:
    """Takes batches from an inbox, and moves partitions, as the services do."""

    def __init__(self, scene: Scene) -> None:
        self._tiers = scene.tiers
        self._changes = dict.fromkeys(P, scene.tiers.read(dict.fromkeys(P, 0)))
        self.taken: dict[TopicPartition, list[int]] = {one: [] for one in P}
        self._moved: set[TopicPartition] = set()
        self.inbox: list[tuple[int, Records]] = []
        self.now_us = 0

    def take(self) -> None:
        if not self.inbox:
            return
        change, records = self.inbox.pop(0)
        for one, offset in records:
            is_old = one in self._moved and offset < len(self.taken[one])
            if change >= self._changes[one] and not is_old:
                self.taken[one].append(offset)
        had = {one for one, _ in records}
        self._move(self._tiers.to_warm(had, self.now_us), Tier.HOT)

    def cool(self) -> None:
        self._move(self._tiers.to_cool(self.now_us), Tier.COLD)
        self._tiers.settle(self.now_us)

    def read_anew(self, one: TopicPartition) -> None:
        """From a record that was taken already, or from where it reads."""
        at = max(len(self.taken[one]) - 1, 0)
        del self.taken[one][at:]
        self._changes[one] = self._tiers.read({one: at})
        self._moved.discard(one)

    def _move(self, some: Iterable[TopicPartition], tier: Tier) -> None:
        at = {one: len(self.taken[one]) for one in some}
        if at:
            self._moved.update(at)
            self._tiers.move(at, tier, self.now_us)


WHAT = ["append", "poll hot", "poll cold", "hot obeys", "cold obeys", "take"]
WHAT += ["cool", "read anew", "pause", "resume"]
SETTLING = ["hot obeys", "cold obeys", "poll hot", "poll cold", "take", "take"] * 20


@given(steps=st.lists(st.tuples(st.sampled_from(WHAT), st.integers(0, 4)), max_size=60))
def test_every_record_is_taken_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    """However long batches and changes lie between the two readers and the loop."""
    scene = Scene(hot_max=1)
    loop = Loop(scene)
    ends = dict.fromkeys(P, 0)
    resuming = [("resume", number) for number in range(len(P))]
    for step, number in [*steps, *resuming, *((step, 0) for step in SETTLING)]:
        loop.now_us += IDLE_US
        reader = scene.hot if "hot" in step else scene.cold
        match step:
            case "append":
                ends[P[number]] += 1
            case "take":
                loop.take()
            case "cool":
                loop.cool()
            case "hot obeys" | "cold obeys":
                reader.obey()
            case _:
                if records := reader.poll(ends):
                    loop.inbox.append((reader.change, records))
    assert loop.taken == {one: list(range(end)) for one, end in ends.items()}
