"""The thread that is a member of the lane group, and whose commits prove it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Event, Thread

from headrace.broker import (
    CommitRefused,
    Committed,
    Leader,
    LeaderListener,
    Reader,
    TopicPartition,
)
from headrace.clock import Clock
from headrace.delivery.decisions import Commit
from headrace.delivery.events import (
    CommitEnded,
    CommitOutcome,
    PartitionState,
    PositionsFetched,
)
from headrace.errors import BusError
from headrace.telemetry import get_log
from services.batch_former.inbox import Channel, Inbox
from services.batch_former.messages import (
    Asked,
    EndsFound,
    LanesAssigned,
    LanesLost,
    LanesRevoked,
    MemberFenced,
    Message,
    ThreadFailed,
)

__all__ = ["Ownership", "positions_of"]

POLL_S = 0.02
"""Longest that a question waits for the thread to come back from the group."""
COMMIT_TIMEOUT_S = 1.0
FETCH_TIMEOUT_S = 2.0
ASK_AGAIN_US = 200_000
UNANSWERED = 3
"""So many questions in a row got no answer: the client that asks is made anew. One that
met a broker in its start may believe for a minute that there is no such partition."""
FATAL = "_FATAL"
RELEASE_TIMEOUT_US = 2_500_000
"""Longest that a revoked lane holds up the group: 500 ms for what flies, 300 ms for
the producers, 1 s for the commit (``delivery.md`` §6.8), and some for the loop."""

Question = Callable[[Leader], None]


def _ignore(_refused: CommitRefused | None) -> None:
    """Nobody waits for the answer."""


class Ownership(LeaderListener):
    """Serves the group and answers the loop's questions to it, also while the group
    waits for lanes to be let go."""

    def __init__(
        self,
        inbox: Inbox[Message],
        ranges: Reader,
        status: TopicPartition,
        clock: Clock,
    ) -> None:
        self._inbox = inbox
        self._ranges = ranges
        self._unanswered = 0
        self._status = status
        self._clock = clock
        self._questions: SimpleQueue[Question] = SimpleQueue()
        self._later: deque[tuple[int, Question]] = deque()
        self._owned: frozenset[int] = frozenset()
        self._committable: frozenset[int] = frozenset()
        self._revoking: set[int] = set()
        self._in_revoke = False
        self._let_go = Event()
        self._closing = Event()
        self._leaves = False
        self._is_fenced = False
        self._thread: Thread | None = None
        self._leader: Leader

    @property
    def owned(self) -> frozenset[int]:
        """The lanes that the group has given us and does not want back."""
        return self._owned

    def start(self, leader: Leader) -> None:
        """``leader`` is one that calls this object back. Started again after
        ``MemberFenced``, with a new one."""
        self._leader = leader
        self._is_fenced = False
        self._thread = Thread(target=self._run, name="leader", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 2.0, *, leave: bool = False) -> None:
        """``leave``: as :meth:`headrace.broker.Leader.close`."""
        self._leaves = leave
        self._closing.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def let_go(self, lane: int) -> None:
        """The loop holds nothing of a revoked lane any more."""
        self._revoking.discard(lane)
        if not self._revoking:
            self._let_go.set()

    def commit(self, lane: int, term: int, commit: Commit) -> None:
        """Answered by ``Asked(CommitEnded)``."""

        def end(refused: CommitRefused | None) -> None:
            outcome = (
                CommitOutcome.ACCEPTED
                if refused is None
                else CommitOutcome(refused.value)
            )
            self._answer(lane, term, CommitEnded(commit.commit, outcome))

        def ask(leader: Leader) -> None:
            if lane not in self._committable:
                end(CommitRefused.NOT_MEMBER)
                return
            offsets = {
                TopicPartition(entry.topic, entry.partition): Committed(
                    entry.offset, entry.metadata
                )
                for entry in commit.entries
            }
            try:
                if self._in_revoke:
                    # Sent before the group goes on, answered after it: whoever has
                    # the lane next starts here, or a little before.
                    leader.commit(offsets, _ignore)
                    end(CommitRefused.UNAVAILABLE)
                elif commit.wait:
                    end(leader.commit_now(offsets, COMMIT_TIMEOUT_S))
                else:
                    leader.commit(offsets, end)
            except BusError as error:
                if error.code == FATAL:
                    raise
                end(CommitRefused.UNAVAILABLE)

        self._questions.put(ask)

    def fetch_positions(
        self,
        lane: int,
        term: int,
        requests: Callable[[], Sequence[TopicPartition]],
        completions: TopicPartition,
    ) -> None:
        """Answered by ``Asked(PositionsFetched)``; asked again for as long as the
        lane is ours and Kafka does not answer. ``requests`` may ask Kafka too."""

        def ask(leader: Leader) -> None:
            if lane not in self._owned:
                return
            try:
                positions = positions_of(leader, self._ranges, requests(), completions)
            except BusError as error:
                self._ask_again(ask, error)
                return
            self._unanswered = 0
            self._answer(lane, term, positions)

        self._questions.put(ask)

    def find_ends(
        self,
        lane: int,
        term: int,
        completions: TopicPartition,
    ) -> None:
        """Answered by ``EndsFound``."""

        def ask(_leader: Leader) -> None:
            status = self._status
            try:
                logs = self._ranges.log_ranges([completions, status], FETCH_TIMEOUT_S)
            except BusError as error:
                self._ask_again(ask, error)
                return
            self._unanswered = 0
            ends = EndsFound(lane, term, logs[completions].end, logs[status].end)
            self._inbox.put(Channel.OWNERSHIP, ends)

        self._questions.put(ask)

    def on_assign(self, lanes: Sequence[int]) -> None:
        self._owned |= frozenset(lanes)
        self._committable = self._owned
        self._inbox.put(Channel.OWNERSHIP, LanesAssigned(tuple(lanes)))

    def on_revoke(self, lanes: Sequence[int]) -> None:
        self._owned -= frozenset(lanes)
        self._revoking = set(lanes)
        self._let_go.clear()
        self._inbox.put(Channel.OWNERSHIP, LanesRevoked(tuple(lanes)))
        self._in_revoke = True
        self._wait_until_let_go()
        self._in_revoke = False
        self._committable = self._owned
        self._inbox.put(Channel.OWNERSHIP, LanesLost(tuple(lanes)))

    def on_lost(self, lanes: Sequence[int]) -> None:
        self._owned -= frozenset(lanes)
        self._committable = self._owned
        self._inbox.put(Channel.OWNERSHIP, LanesLost(tuple(lanes)))

    def _answer(
        self, lane: int, term: int, event: CommitEnded | PositionsFetched
    ) -> None:
        self._inbox.put(Channel.OWNERSHIP, Asked(lane, term, event))

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._leader.poll(POLL_S)
                self._answer_questions()
            self._leader.close(leave=self._leaves)
        except BaseException as error:  # noqa: BLE001 - the loop ends the process
            if isinstance(error, BusError) and error.code == FATAL:
                self._be_fenced()
            else:
                self._inbox.put(Channel.OWNERSHIP, ThreadFailed("leader", error))

    def _be_fenced(self) -> None:
        self._is_fenced = True
        lanes, self._owned, self._committable = self._owned, frozenset(), frozenset()
        self._inbox.put(Channel.OWNERSHIP, LanesLost(tuple(sorted(lanes))))
        self._leader.close()
        while not self._closing.is_set():
            try:
                end = self._ranges.log_range(self._status, FETCH_TIMEOUT_S).end
            except BusError as error:
                self._count(error)
                self._closing.wait(ASK_AGAIN_US / 1e6)
            else:
                self._inbox.put(Channel.OWNERSHIP, MemberFenced(end))
                return

    def _wait_until_let_go(self) -> None:
        # At the end the client revokes what the loop has left already.
        if self._closing.is_set() or self._is_fenced:
            return
        until_us = self._clock.now_us() + RELEASE_TIMEOUT_US
        while not self._let_go.wait(0.005) and self._clock.now_us() < until_us:
            self._answer_questions()

    def _answer_questions(self) -> None:
        now_us = self._clock.now_us()
        while self._later and self._later[0][0] <= now_us:
            self._later.popleft()[1](self._leader)
        for _ in range(self._questions.qsize()):
            self._questions.get()(self._leader)

    def _ask_again(self, question: Question, error: BusError) -> None:
        self._count(error)
        self._later.append((self._clock.now_us() + ASK_AGAIN_US, question))

    def _count(self, error: BusError) -> None:
        self._unanswered += 1
        if self._unanswered >= UNANSWERED:
            self._unanswered = 0
            get_log().warning("read.failed", thread="leader", text=str(error))
            self._ranges.restart()


def positions_of(
    leader: Leader,
    ranges: Reader,
    requests: Sequence[TopicPartition],
    completions: TopicPartition,
) -> PositionsFetched:
    """W, epoch and ends of the partitions. The end of the completions comes first: a
    request that has its done below that end then lies below its own partition's, so
    that a successor that finds nothing unread has passed by no done."""
    committed = leader.committed(requests, FETCH_TIMEOUT_S)
    done = ranges.log_range(completions, FETCH_TIMEOUT_S)
    logs = ranges.log_ranges(requests, FETCH_TIMEOUT_S)
    states = tuple(
        PartitionState(
            topic=partition.topic,
            partition=partition.partition,
            log_start=logs[partition].start,
            log_end=logs[partition].end,
            committed=committed[partition].offset,
            metadata=committed[partition].metadata,
        )
        for partition in requests
    )
    return PositionsFetched(states, done.start, done.end)
