"""Lane groups in memory: static members, cooperative rebalances, fenced commits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from headrace.broker import (
    CommitRefused,
    Committed,
    LeaderListener,
    TopicPartition,
)
from headrace.errors import BusError

__all__ = ["MemoryGroup", "MemoryLeader"]

_Answer = Callable[[CommitRefused | None], None]


class MemoryGroup:
    """The coordinator's view of one group.

    A member is its instance id: it keeps its lanes while its process is away, until
    :meth:`expire`. A lane moves to another member only after its owner gave it up in
    a poll, or expired.
    """

    def __init__(self, lanes: Callable[[], int]) -> None:
        self._lanes = lanes
        self._lock = threading.RLock()
        self._owned: dict[str, list[int]] = {}
        self._leaders: dict[str, MemoryLeader] = {}
        self.committed: dict[TopicPartition, Committed] = {}
        self.refusals: deque[CommitRefused] = deque()
        """What the next commits are answered, one each, whoever sends them."""

    def expire(self, instance_id: str) -> None:
        """The member's session has ended: it was silent for too long."""
        with self._lock:
            del self._owned[instance_id]
            leader = self._leaders.pop(instance_id)
            leader.lose_session()

    def leave(self, instance_id: str) -> None:
        with self._lock:
            self._owned.pop(instance_id, None)
            self._leaders.pop(instance_id, None)

    def join(self, instance_id: str, leader: MemoryLeader) -> list[int]:
        """The lanes that the member had when it was away."""
        with self._lock:
            former = self._leaders.get(instance_id)
            if former is not None:
                former.fenced = True
            self._leaders[instance_id] = leader
            return list(self._owned.setdefault(instance_id, []))

    def wanted(self) -> dict[str, list[int]]:
        """Who should own what: as now, but within one lane of each other."""
        with self._lock:
            members = sorted(self._owned, key=lambda one: -len(self._owned[one]))
            least, more = divmod(self._lanes(), len(members))
            shares = {
                one: self._owned[one][: least + (place < more)]
                for place, one in enumerate(members)
            }
            taken = {lane for lanes in shares.values() for lane in lanes}
            free = [lane for lane in range(self._lanes()) if lane not in taken]
            for place, one in enumerate(members):
                while free and len(shares[one]) < least + (place < more):
                    shares[one].append(free.pop(0))
            return shares

    def give_up(self, instance_id: str) -> list[int]:
        """Lanes that the member has and should not have."""
        with self._lock:
            wanted = self.wanted()[instance_id]
            return [one for one in self._owned[instance_id] if one not in wanted]

    def gave_up(self, instance_id: str, lanes: Sequence[int]) -> None:
        with self._lock:
            kept = [one for one in self._owned[instance_id] if one not in lanes]
            self._owned[instance_id] = kept

    def take(self, instance_id: str) -> list[int]:
        """Lanes that the member gets now: it should have them and nobody does."""
        with self._lock:
            owned = {lane for lanes in self._owned.values() for lane in lanes}
            taken = [one for one in self.wanted()[instance_id] if one not in owned]
            self._owned[instance_id] += taken
            return taken

    def commit(
        self, leader: MemoryLeader, offsets: Mapping[TopicPartition, Committed]
    ) -> CommitRefused | None:
        """Which partitions are named is nobody's business, as in Kafka."""
        with self._lock:
            if leader.fenced:
                return CommitRefused.FENCED
            if leader not in self._leaders.values():
                return CommitRefused.NOT_MEMBER
            if self.refusals:
                return self.refusals.popleft()
            self.committed.update(offsets)
            return None


class MemoryLeader:
    """A :class:`headrace.broker.Leader`."""

    def __init__(
        self, group: MemoryGroup, instance_id: str, listener: LeaderListener
    ) -> None:
        self.fenced = False
        self._group = group
        self._instance_id = instance_id
        self._listener = listener
        self._joined = False
        self._lost: list[int] = []
        self._lanes: list[int] = []
        self._answers: deque[Callable[[], None]] = deque()
        self._in_listener = False

    def poll(self, timeout_s: float) -> None:
        del timeout_s
        answers, self._answers = self._answers, deque()
        for answer in answers:
            answer()
        if self.fenced:
            raise BusError("fenced by another process", code="_FATAL")
        if self._lost:
            lost, self._lost = self._lost, []
            self._tell(self._listener.on_lost, lost)
        if not self._joined:
            self._joined = True
            self._lanes = self._group.join(self._instance_id, self)
            self._tell(self._listener.on_assign, self._lanes)
            return
        leaving = self._group.give_up(self._instance_id)
        if leaving:
            self._tell(self._listener.on_revoke, leaving)
            self._group.gave_up(self._instance_id, leaving)
        coming = self._group.take(self._instance_id)
        self._lanes = [one for one in self._lanes if one not in leaving] + coming
        self._tell(self._listener.on_assign, coming)

    def commit(
        self, offsets: Mapping[TopicPartition, Committed], on_done: _Answer
    ) -> None:
        refused = self._group.commit(self, offsets)
        self._answers.append(partial(on_done, refused))

    def commit_now(
        self, offsets: Mapping[TopicPartition, Committed], timeout_s: float
    ) -> CommitRefused | None:
        del timeout_s
        assert not self._in_listener, "use commit inside a listener call"
        return self._group.commit(self, offsets)

    def committed(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, Committed]:
        del timeout_s
        never = Committed(None, "")
        return {one: self._group.committed.get(one, never) for one in partitions}

    def close(self, *, leave: bool = False) -> None:
        lanes, self._lanes = self._lanes, []
        self._tell(self._listener.on_revoke, lanes)
        if leave:
            self._group.leave(self._instance_id)

    def lose_session(self) -> None:
        """The coordinator has forgotten this member; the next poll tells."""
        self._lost, self._lanes = self._lanes, []
        self._joined = False

    def _tell(
        self, hear: Callable[[Sequence[int]], None], lanes: Sequence[int]
    ) -> None:
        if not lanes:
            return
        self._in_listener = True
        try:
            hear(lanes)
        finally:
            self._in_listener = False
