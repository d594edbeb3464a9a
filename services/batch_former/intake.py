"""What was read from the log, told to the lanes that it concerns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from headrace.broker import Record
from headrace.delivery.events import (
    ClaimSeen,
    Completed,
    CompletionsAt,
    CompletionsLost,
    OwnHeartbeatRead,
    ReadingLost,
    SlotHeard,
    StatusAdvanced,
    VersionsChanged,
)
from headrace.domain import Done, Request, RequestRead, RequestRejected
from headrace.errors import UndecodableRecord
from headrace.registry import Catalog
from headrace.telemetry import get_log
from headrace.wire import (
    Announcement,
    Claim,
    Heartbeat,
    RequestDecoder,
    Role,
    ServiceState,
    Topics,
    decode_completion,
    decode_json,
    parse_announcement_key,
)
from services.batch_former.acting import Acting
from services.batch_former.early import EarlyRequests, Held
from services.batch_former.inbox import Channel
from services.batch_former.lanes import Lanes, OwnedLane
from services.batch_former.measuring import Measuring
from services.batch_former.messages import (
    ModelsRead,
    OutOfRange,
    ReadBatch,
    StatusRead,
)

__all__ = ["Intake"]

HEIR_US = 1_000_000
TWIN_US = 10_000_000
"""Longer than any session: who was silent for so long is dead, or will be fenced."""


class Intake:
    """Decodes records and tells each lane its own, in the order of each partition."""

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        topics: Topics,
        lanes: Lanes,
        acting: Acting,
        catalog: Catalog,
        *,
        decoder: RequestDecoder,
        early: EarlyRequests,
        measuring: Measuring,
        slot: int,
        former: str,
    ) -> None:
        self._topics = topics
        self._lanes = lanes
        self._acting = acting
        self._catalog = catalog
        self._decoder = decoder
        self._early = early
        self._measuring = measuring
        self._slot = slot
        self._former = former
        self._is_heard = False
        self._twin_us: int | None = None
        self._heirs_us: dict[int, int] = {}
        self._log = get_log()
        self._heard: dict[int, tuple[int, SlotHeard, str]] = {}
        self._newest = StatusAdvanced(0)
        self.status_at = 0
        """Where the next heartbeat will be read."""

    @property
    def has_twin(self) -> bool:
        """Whether another process with our instance id lives, as far as ``status`` is
        read. Such a one has been heard before it could join the group (`main`)."""
        twin_us = self._twin_us
        return twin_us is not None and self._newest.log_us - twin_us < TWIN_US

    @property
    def has_heir(self) -> bool:
        """Whether another former could take our lanes now."""
        heirs = self._heirs_us.values()
        return any(self._newest.log_us - at_us < HEIR_US for at_us in heirs)

    def introduce(self, owned: OwnedLane, now_us: int) -> None:
        """Tell a lane just taken what was read before it was ours."""
        self._acting.tell(owned, VersionsChanged(self._catalog.served()), now_us)
        for lane, heard, instance in self._heard.values():
            if lane == owned.lane:
                self._acting.hear_worker(owned, heard, instance, now_us)
        self._acting.tell(owned, self._newest, now_us)

    def take_requests(self, batch: ReadBatch, now_us: int) -> None:
        read = self._take_requests(
            ((record, batch.change) for record in batch.records), now_us
        )
        if read is not None:
            owned, last = read
            self._measuring.requests_read(owned.lane, last, owned.taken_us, now_us)
        # What is held is not taken yet: a second reader would bring it again.
        if not self._early.is_holding:
            self._acting.warm(batch, now_us)

    def cool(self, now_us: int) -> None:
        """Leave partitions that have become idle to the reader of such."""
        if not self._early.is_holding:
            self._acting.cool(now_us)

    def take_early(self, now_us: int, *, models_changed: bool = False) -> None:
        """Read anew what may have been early, when it is time."""
        early = self._early.release(now_us, models_changed=models_changed)
        if early:
            self._take_requests(early, now_us)

    def take_completions(self, batch: ReadBatch, now_us: int) -> None:
        learned: dict[int, list[Completed | CompletionsAt]] = {}
        for record in batch.records:
            owned = self._lanes.owned.get(record.partition)
            if owned is None or not 0 < owned.completions_change <= batch.change:
                continue
            if record.topic == self._topics.lanes:
                self._take_claim(owned, record, now_us)
            else:
                owned.completions_at = record.offset + 1
                event = self._completion(record, now_us)
                learned.setdefault(owned.lane, []).append(event)
        for lane, events in learned.items():
            owned = self._lanes.owned.get(lane)
            if owned is not None:
                self._acting.tell_each(owned, events, now_us)

    def take(self, message: StatusRead | ModelsRead | OutOfRange, now_us: int) -> None:
        match message:
            case StatusRead(records=records):
                self._take_status(records, now_us)
            case ModelsRead(records=records):
                self._take_models(records, now_us)
            case OutOfRange():
                self._lose(message, now_us)
            case _:
                assert_never(message)

    def _take_status(self, records: list[Record], now_us: int) -> None:
        for record in records:
            try:
                heartbeat = decode_json(Heartbeat, record)
            except UndecodableRecord as error:
                self._skip(record, error)
                continue
            if heartbeat.role is Role.GPU_WORKER:
                self._hear_worker(heartbeat, record.timestamp_us, now_us)
            elif heartbeat.instance == self._former:
                self._is_heard = True
                self._acting.tell_all(OwnHeartbeatRead(), now_us)
            elif heartbeat.role is Role.BATCH_FORMER:
                self._hear_former(heartbeat, record.timestamp_us)
        last = records[-1]
        self.status_at = last.offset + 1
        if last.timestamp_us > self._newest.log_us:
            self._newest = StatusAdvanced(last.timestamp_us)
            self._acting.tell_all(self._newest, now_us)

    def _take_models(self, records: list[Record], now_us: int) -> None:
        changes = [self._apply(record) for record in records]
        if any(changes):
            versions = VersionsChanged(self._catalog.served())
            self._acting.tell_all(versions, now_us)
            self.take_early(now_us, models_changed=True)

    def _lose(self, lost: OutOfRange, now_us: int) -> None:
        """A reader's position left its log: the lane decides how it goes on."""
        (topic, partition), log = lost.partition, lost.log
        self._log.error(
            "position.lost",
            topic=topic,
            partition=partition,
            log_start=log.start,
            log_end=log.end,
        )
        if lost.channel is Channel.COMPLETIONS:
            owned = self._lanes.owned.get(partition)
            # Claims are a hint: without them the next commit tells the same.
            if owned is not None and topic == self._topics.completions:
                self._acting.tell(owned, CompletionsLost(*log), now_us)
            return
        route = self._lanes.routes.get(lost.partition)
        if route is not None and lost.change >= route.change:
            self._acting.tell(route.owned, ReadingLost(topic, partition, *log), now_us)

    def _take_requests(
        self, held: Iterable[Held], now_us: int
    ) -> tuple[OwnedLane, Request] | None:
        """The last one that was read, and whose it was; reading it may have been the
        end of that ownership."""
        early, routes = self._early, self._lanes.routes
        decode = self._decoder.decode
        last = None
        for each in held:
            record, change = each
            key = record.topic, record.partition
            route = routes.get(key)
            if route is None or change < route.change:
                continue
            if route.is_read_twice and record.offset < route.owned.core.reads_at(*key):
                continue
            if early.is_holding and early.is_held(key, each):
                continue
            if route.takes_one:
                routes[key] = route.without_more()
            read = decode(record)
            if isinstance(read, RequestRead):
                last = route.owned, read.request
            elif (
                isinstance(read, RequestRejected)
                and not route.takes_one
                and early.holds(read, key, each, now_us)
            ):
                continue
            decisions = route.owned.core.handle(read, now_us)
            if decisions:
                self._acting.carry_out(route.owned, decisions, now_us)
        return last

    def _completion(self, record: Record, now_us: int) -> Completed | CompletionsAt:
        try:
            completion = decode_completion(record)
        except UndecodableRecord as error:
            self._skip(record, error)
            return CompletionsAt(record.offset + 1)
        if isinstance(completion, Done):
            self._measuring.done(completion, now_us)
        return Completed(record.offset, completion)

    def _take_claim(self, owned: OwnedLane, record: Record, now_us: int) -> None:
        try:
            claim = decode_json(Claim, record)
        except UndecodableRecord as error:
            self._skip(record, error)
            return
        if claim.former != self._former:
            self._acting.tell(owned, ClaimSeen(record.offset), now_us)

    def _hear_worker(self, heartbeat: Heartbeat, log_us: int, now_us: int) -> None:
        if heartbeat.incarnation is None or heartbeat.lane is None:
            return
        heard = SlotHeard(heartbeat.slot, heartbeat.incarnation, log_us)
        instance = heartbeat.instance
        self._heard[heartbeat.slot] = (heartbeat.lane, heard, instance)
        owned = self._lanes.owned.get(heartbeat.lane)
        if owned is not None:
            self._acting.hear_worker(owned, heard, instance, now_us)

    def _hear_former(self, heartbeat: Heartbeat, log_us: int) -> None:
        if heartbeat.slot == self._slot:
            # What stands before our own first one is our predecessor's.
            if self._is_heard:
                self._twin_us = log_us
        elif heartbeat.state is ServiceState.DRAINING:
            self._heirs_us.pop(heartbeat.slot, None)
        else:
            self._heirs_us[heartbeat.slot] = log_us

    def _apply(self, record: Record) -> bool:
        try:
            if record.value is None:
                return self._catalog.remove(*parse_announcement_key(record.key))
            return self._catalog.apply(decode_json(Announcement, record))
        except UndecodableRecord as error:
            self._skip(record, error)
            return False

    def _skip(self, record: Record, error: UndecodableRecord) -> None:
        self._measuring.undecodable(record.topic)
        self._log.warning(
            "record.undecodable",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            text=str(error),
        )
