"""What a lane decides, done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import assert_never, cast

from headrace.broker import Admin, TopicPartition
from headrace.delivery.decisions import (
    Alarm,
    Cancelled,
    Commit,
    Decision,
    DropLane,
    FetchPositions,
    OpenLink,
    PausePartition,
    ReadCompletions,
    ReadKeys,
    ReadOne,
    ReadRequests,
    ReadToEnds,
    Rejoin,
    ResumePartition,
    StopReading,
    WriteBatch,
    WriteClaim,
    WriteDeadLetters,
    WriteReplies,
    WriteStale,
    WriteSync,
)
from headrace.delivery.events import Event, SlotHeard
from headrace.domain import Priority
from headrace.telemetry import LogEvent, get_log
from headrace.wire.topics import PRIORITIES, Topics
from services.batch_former.answered import AnsweredKeys
from services.batch_former.consuming import Consuming
from services.batch_former.inbox import Channel
from services.batch_former.lanes import NEVER, Lanes, OwnedLane, Route
from services.batch_former.linking import Linking
from services.batch_former.measuring import Measuring
from services.batch_former.messages import ReadBatch
from services.batch_former.ownership import Ownership
from services.batch_former.tiers import Tier, Tiers
from services.batch_former.writing import Writing

__all__ = ["Acting"]

LIST_TIMEOUT_S = 2.0


class Acting:
    """Carries decisions out; every outcome comes back through the inbox."""

    def __init__(  # noqa: PLR0913 - everything that a decision can move
        self,
        topics: Topics,
        lanes: Lanes,
        *,
        requests: Sequence[Tiers],
        completions: Consuming,
        ownership: Ownership,
        writing: Writing,
        measuring: Measuring,
        admin: Admin,
        keys: AnsweredKeys,
        linking: Linking,
    ) -> None:
        self._topics = topics
        self._lanes = lanes
        self._requests = requests
        self._completions = completions
        self._ownership = ownership
        self._writing = writing
        self._measuring = measuring
        self._admin = admin
        self._keys = keys
        self._linking = linking
        self._log = get_log()
        self.rejoins = False

    def tell(self, owned: OwnedLane, event: Event, now_us: int) -> None:
        self.carry_out(owned, owned.core.handle(event, now_us), now_us)

    def tell_each(self, owned: OwnedLane, events: Sequence[Event], now_us: int) -> None:
        """What was learned together."""
        self.carry_out(owned, owned.core.handle_all(events, now_us), now_us)

    def tell_all(self, event: Event, now_us: int) -> None:
        for owned in list(self._lanes.owned.values()):
            self.tell(owned, event, now_us)

    def warm(self, batch: ReadBatch, now_us: int) -> None:
        """What had records just now, and was idle before, moves to the hot reader."""
        tiers = self._requests[batch.channel - Channel.REALTIME]
        if tiers.has_cold:
            had = {TopicPartition(each.topic, each.partition) for each in batch.records}
            self._move(tiers, tiers.to_warm(had, now_us), Tier.HOT, now_us)

    def cool(self, now_us: int) -> None:
        """What has become idle moves to the cold reader."""
        for tiers in self._requests:
            self._move(tiers, tiers.to_cool(now_us), Tier.COLD, now_us)
            tiers.settle(now_us)

    def hear_worker(
        self, owned: OwnedLane, heard: SlotHeard, instance: str, now_us: int
    ) -> None:
        self.tell(owned, heard, now_us)
        found = self._linking.heard(owned, heard.slot, heard.incarnation, instance)
        if found is not None:
            self.tell(owned, found, now_us)

    def end_link(self, link: int, now_us: int) -> None:
        lost = self._linking.lost(link, self._lanes)
        if lost is not None:
            self.tell(*lost, now_us)

    def carry_out(
        self, owned: OwnedLane, decisions: Iterable[Decision], now_us: int
    ) -> None:
        for decision in decisions:
            self._carry_out(owned, decision, now_us)
        self._writing.release()

    def _carry_out(self, owned: OwnedLane, decision: Decision, now_us: int) -> None:
        match decision:
            case (
                WriteBatch()
                | WriteReplies()
                | OpenLink()
                | WriteSync()
                | WriteDeadLetters()
                | WriteStale()
                | WriteClaim()
            ):
                self._writing.write(owned, decision, now_us)
            case Commit():
                self._ownership.commit(owned.lane, owned.term, decision)
            case Alarm(event=event, facts=facts):
                self._measuring.alarmed(owned.lane, event)
                # A name of the log's list, by the decision's own promise.
                self._log.warning(cast(LogEvent, event), lane=owned.lane, **facts)
            case Cancelled(request=request):
                self._measuring.cancelled(request)
            case Rejoin():
                self.rejoins = True
            case DropLane():
                self._drop(owned)
            case _:
                self._read(owned, decision)

    def _read(
        self,
        owned: OwnedLane,
        decision: FetchPositions
        | ReadRequests
        | ReadOne
        | ReadCompletions
        | ReadKeys
        | ReadToEnds
        | StopReading
        | PausePartition
        | ResumePartition,
    ) -> None:
        match decision:
            case FetchPositions(models=models):
                self._fetch_positions(owned, models)
            case ReadRequests(positions=positions):
                self._read_requests(owned, positions)
            case ReadOne(topic=topic, partition=partition, offset=offset):
                place = ((topic, partition, offset),)
                self._read_requests(owned, place, takes_one=True)
            case ReadCompletions(position=position):
                self._read_completions(owned, position)
            case ReadKeys():
                self._keys.read(owned.lane, owned.term)
            case ReadToEnds():
                owned.is_catching_up = True
                owned.ends = None
                self._ownership.find_ends(
                    owned.lane,
                    owned.term,
                    self._completions_of(owned.lane),
                )
            case StopReading(partitions=partitions):
                self._stop(owned, partitions)
            case PausePartition(topic=topic, partition=partition):
                self._reader(partition).pause(TopicPartition(topic, partition))
            case ResumePartition(topic=topic, partition=partition):
                self._reader(partition).resume(TopicPartition(topic, partition))
            case _:
                assert_never(decision)

    def _fetch_positions(
        self, owned: OwnedLane, models: tuple[str, ...] | None
    ) -> None:
        def requests() -> list[TopicPartition]:
            return [
                TopicPartition(topic, self._topics.request_partition(lane, priority))
                for topic in self._request_topics(models)
                for priority in Priority
            ]

        lane = owned.lane
        completions = self._completions_of(lane)
        self._ownership.fetch_positions(lane, owned.term, requests, completions)

    def _request_topics(self, models: tuple[str, ...] | None) -> list[str]:
        if models is not None:
            return [self._topics.requests(model) for model in models]
        return [
            topic
            for topic in self._admin.topics(LIST_TIMEOUT_S)
            if topic.startswith(self._topics.requests(""))
        ]

    def _read_requests(
        self,
        owned: OwnedLane,
        positions: Iterable[tuple[str, int, int]],
        *,
        takes_one: bool = False,
    ) -> None:
        by_priority = defaultdict[int, dict[TopicPartition, int]](dict)
        for topic, partition, offset in positions:
            one = TopicPartition(topic, partition)
            by_priority[partition % PRIORITIES][one] = offset
        for priority, some in by_priority.items():
            change = self._requests[priority].read(some)
            for one in some:
                self._lanes.routes[one] = Route(owned, change, takes_one)

    def _read_completions(self, owned: OwnedLane, position: int) -> None:
        claims = TopicPartition(self._topics.lanes, owned.lane)
        owned.completions_change = self._completions.read(
            {self._completions_of(owned.lane): position, claims: owned.claim + 1}
        )
        owned.completions_at = position

    def _stop(
        self, owned: OwnedLane, partitions: Iterable[tuple[str, int]] | None
    ) -> None:
        """Stop reading all of the lane, or these request partitions."""
        if partitions is None:
            claims = TopicPartition(self._topics.lanes, owned.lane)
            self._completions.stop_reading([self._completions_of(owned.lane), claims])
            owned.completions_change = 0
            partitions = self._lanes.routes_of(owned)
        by_priority = defaultdict[int, list[TopicPartition]](list)
        for one in partitions:
            if self._lanes.routes.pop(one, None) is None:
                continue
            by_priority[one[1] % PRIORITIES].append(TopicPartition(*one))
        for priority, some in by_priority.items():
            self._requests[priority].stop_reading(some)

    def _drop(self, owned: OwnedLane) -> None:
        """The lane is out: what still comes for it finds nobody."""
        if owned.completions_change:
            self._stop(owned, None)
        del self._lanes.owned[owned.lane]
        self._linking.drop(owned)
        self._log.info("lane.dropped", lane=owned.lane)
        self._ownership.let_go(owned.lane)

    def _reader(self, partition: int) -> Tiers:
        return self._requests[partition % PRIORITIES]

    def _move(
        self,
        tiers: Tiers,
        partitions: Iterable[TopicPartition],
        tier: Tier,
        now_us: int,
    ) -> None:
        """Whose records are taken one by one stays where it is."""
        moves = {}
        for one in partitions:
            route = self._lanes.routes.get(one)
            if route is not None and not route.takes_one and route.change < NEVER:
                moves[one] = route.owned.core.reads_at(*one)
                self._lanes.routes[one] = route._replace(is_read_twice=True)
        if moves:
            tiers.move(moves, tier, now_us)

    def _completions_of(self, lane: int) -> TopicPartition:
        return TopicPartition(self._topics.completions, lane)
