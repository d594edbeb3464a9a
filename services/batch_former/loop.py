"""The one loop: what came in, to the lanes; and time, to those that wait for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import assert_never

from headrace.clock import Clock
from headrace.delivery import LogClock
from headrace.delivery.events import (
    Assigned,
    ClaimWritten,
    CommitEnded,
    DrainRequested,
    GapNoticed,
    KeysRead,
    Lost,
    PositionsFetched,
    Revoked,
    Ticked,
    WriteEnded,
)
from headrace.lifecycle import DrainFlag, Heartbeat, Pulse
from headrace.scheduling import Publishing
from headrace.telemetry import get_log
from services.batch_former.acting import Acting
from services.batch_former.inbox import Channel, Inbox
from services.batch_former.intake import Intake
from services.batch_former.lanes import Lanes, OwnedLane
from services.batch_former.messages import (
    Asked,
    Ended,
    EndsFound,
    LanesAssigned,
    LanesLost,
    LanesRevoked,
    LinkEnded,
    LogTimeSampled,
    MemberFenced,
    Message,
    ModelsRead,
    OutOfRange,
    ReadBatch,
    StatusRead,
    ThreadFailed,
    WritesEnded,
)
from services.batch_former.ownership import Ownership
from services.batch_former.published import Published
from services.batch_former.writing import CLAIM

__all__ = ["Fenced", "Loop"]

GAP_US = 500_000
"""D5: after a turn longer than this anything may have been missed."""
WAIT_US_MAX = 100_000
"""Longest wait of a turn: the loop's pulse must be seen."""
RETAKE_US = 500_000
"""Between two looks for lanes that the group gave us and that we have let go."""
MEASURE_US = 200_000
FENCED_MAX = 5
FENCED_WITHIN_US = 60_000_000
"""Fenced so often in so long, though nobody else of our name is heard, the process
ends: whoever it is, joining again does not help."""
DRAIN_US_MAX = 15_000_000
"""Longest that SIGTERM waits for the lanes to be left."""

TICKED = Ticked()

OwnershipMessage = LanesAssigned | LanesRevoked | LanesLost | Asked | EndsFound


class Fenced(Exception):
    """Another process has this one's instance id, and lives."""


class Loop:
    """Owns the lanes, from their assignment to their end."""

    def __init__(  # noqa: PLR0913 - where everything meets
        self,
        inbox: Inbox[Message],
        lanes: Lanes,
        intake: Intake,
        acting: Acting,
        ownership: Ownership,
        published: Published,
        *,
        new_lane: Callable[[int, int], OwnedLane],
        lead: Callable[[], bool],
        heartbeat: Heartbeat,
        log_clock: LogClock,
        pulse: Pulse,
        clock: Clock,
    ) -> None:
        """``lead`` joins the group as soon as lanes can be served, and says whether
        it has."""
        self._inbox = inbox
        self._lanes = lanes
        self._intake = intake
        self._acting = acting
        self._ownership = ownership
        self._published = published
        self._new_lane = new_lane
        self._lead = lead
        self._heartbeat = heartbeat
        self._log_clock = log_clock
        self._pulse = pulse
        self._clock = clock
        self._log = get_log()
        self._terms = 0
        self._now_us = clock.now_us()
        self._retake_at_us = 0
        self._measure_at_us = 0
        self._publishing = Publishing()
        self._busy_us = 0
        """Of the turns since the last measurement."""

        self._is_leading = False
        self._status_end: int | None = None
        self._fenced_at_us: list[int] = []
        self._drain_until_us: int | None = None

    def run(self, drain: DrainFlag) -> None:
        """Until ``drain`` is set and every lane is left, or its time is over.

        Raises :class:`Fenced`, and whatever ended one of the threads.
        """
        wait_us = 0
        self._now_us = self._clock.now_us()
        while not self._is_drained():
            messages = self._inbox.take(wait_us / 1e6)
            wait_us = self._turn(messages, wait_us, drain_asked=drain.is_set())
        self._published.refresh(self._lanes, self._now_us)
        self._log.info("drain.ended", lanes=len(self._lanes.owned))

    def _turn(
        self, messages: Iterable[Message], waited_us: int, *, drain_asked: bool
    ) -> int:
        """One turn; how long to wait for the next one."""
        last_us, self._now_us = self._now_us, self._clock.now_us()
        self._pulse.beat()
        gap_us = self._now_us - last_us - waited_us
        if gap_us > GAP_US:
            self._log.warning("loop.paused", gap_ms=gap_us // 1000)
            self._acting.tell_all(GapNoticed(), self._now_us)
        if drain_asked and self._drain_until_us is None:
            self._drain_until_us = self._now_us + DRAIN_US_MAX
            self._log.info("drain.started", lanes=len(self._lanes.owned))
            self._published.drain()
            self._heartbeat.hasten()
            self._acting.tell_all(DrainRequested(), self._now_us)
        for message in messages:
            self._take_in(message)
        self._do_at_leisure()
        wait_us = self._let_time_pass()
        self._busy_us += self._clock.now_us() - self._now_us
        return wait_us

    def _is_drained(self) -> bool:
        if self._drain_until_us is None:
            return False
        return not self._lanes.owned or self._now_us > self._drain_until_us

    def _take_in(self, message: Message) -> None:
        match message:
            case ReadBatch(channel=Channel.COMPLETIONS):
                self._intake.take_completions(message, self._now_us)
            case ReadBatch():
                self._intake.take_requests(message, self._now_us)
                self._publishing.received(self._now_us)
            case WritesEnded(ended=ended):
                self._end_writes(ended)
            case LinkEnded(link=link):
                self._acting.end_link(link, self._now_us)
            case StatusRead() | ModelsRead() | OutOfRange():
                self._intake.take(message, self._now_us)
            case LogTimeSampled(sent_us=sent_us, acked_us=acked_us, log_us=log_us):
                self._log_clock.feed(sent_us, acked_us, log_us)
                self._published.show_clock(self._log_clock.error_us)
            case ThreadFailed(error=error):
                raise error
            case MemberFenced(status_end=status_end):
                self._be_fenced(status_end)
            case _:
                self._change_ownership(message)

    def _end_writes(self, ended: Iterable[Ended]) -> None:
        learned: dict[tuple[int, int], list[ClaimWritten | WriteEnded]] = {}
        for each in ended:
            owned = self._lanes.of(each.lane, each.term)
            if owned is None:
                continue
            event: ClaimWritten | WriteEnded = WriteEnded(each.write, each.offset)
            if each.write == CLAIM:
                owned.claim = -1 if each.offset is None else each.offset
                event = ClaimWritten(each.offset)
            learned.setdefault((each.lane, each.term), []).append(event)
        for ownership, events in learned.items():
            owned = self._lanes.of(*ownership)
            if owned is not None:
                self._acting.tell_each(owned, events, self._now_us)

    def _change_ownership(self, message: OwnershipMessage) -> None:
        match message:
            case LanesAssigned(lanes=lanes):
                for lane in lanes:
                    self._assign(lane)
            case LanesRevoked(lanes=lanes):
                for lane in lanes:
                    self._revoke(lane)
            case LanesLost(lanes=lanes):
                for lane in lanes:
                    self._lose(lane)
            case Asked(lane=lane, term=term, event=event):
                self._answer(self._lanes.of(lane, term), event)
            case EndsFound(lane=lane, term=term):
                owned = self._lanes.of(lane, term)
                if owned is not None:
                    owned.ends = message
            case _:
                assert_never(message)

    def _assign(self, lane: int) -> None:
        if self._drain_until_us is not None or lane in self._lanes.owned:
            return
        self._terms += 1
        owned = self._new_lane(lane, self._terms)
        self._lanes.owned[lane] = owned
        self._log.info("lane.taken", lane=lane)
        self._intake.introduce(owned, self._now_us)
        self._acting.tell(owned, Assigned(), self._now_us)

    def _revoke(self, lane: int) -> None:
        owned = self._lanes.owned.get(lane)
        if owned is None:
            self._ownership.let_go(lane)
        else:
            self._log.info("lane.revoked", lane=lane)
            self._acting.tell(owned, Revoked(), self._now_us)

    def _lose(self, lane: int) -> None:
        owned = self._lanes.owned.get(lane)
        if owned is not None:
            self._log.warning("lane.lost", lane=lane)
            self._acting.tell(owned, Lost(), self._now_us)

    def _answer(
        self, owned: OwnedLane | None, event: CommitEnded | PositionsFetched | KeysRead
    ) -> None:
        if isinstance(event, CommitEnded):
            self._published.committed(event.outcome)
        if owned is not None:
            self._acting.tell(owned, event, self._now_us)

    def _do_at_leisure(self) -> None:
        """What need not be done in every turn."""
        if not self._is_leading:
            self._join()
        self._intake.take_early(self._now_us)
        if self._acting.rejoins:
            # Every lane is as lost as the one that learned of it; the group's own
            # thread rejoins through its next poll.
            self._acting.rejoins = False
            self._acting.tell_all(Lost(), self._now_us)
        if self._now_us >= self._retake_at_us:
            self._retake_at_us = self._now_us + RETAKE_US
            for lane in self._ownership.owned - self._lanes.owned.keys():
                self._assign(lane)
        if self._now_us >= self._publishing.at_us:
            self._publish()

    def _be_fenced(self, status_end: int) -> None:
        self._log.warning("group.fenced")
        self._is_leading = False
        self._status_end = status_end
        since_us = self._now_us - FENCED_WITHIN_US
        recent = [at_us for at_us in self._fenced_at_us if at_us > since_us]
        self._fenced_at_us = [*recent, self._now_us]

    def _join(self) -> None:
        """Also anew after a fence: a member without a twin is fenced when the log took
        its word twice, as when it asked to join again while an older commit of its was
        still on its way."""
        if self._status_end is not None:
            if self._drain_until_us is not None:
                return
            if self._intake.status_at < self._status_end:
                return
            if self._intake.has_twin or len(self._fenced_at_us) > FENCED_MAX:
                raise Fenced
            self._status_end = None
        self._is_leading = self._lead()

    def _publish(self) -> None:
        if self._now_us >= self._measure_at_us:
            self._measure_at_us = self._now_us + MEASURE_US
            busy_us, self._busy_us = self._busy_us, 0
            measured = self._published.measure(self._lanes, busy_us, self._now_us)
            for owned, hops in measured:
                self._acting.tell(owned, hops, self._now_us)
            self._intake.cool(self._now_us)
        self._published.refresh(self._lanes, self._now_us)
        if self._publishing.looked(self._published.loads, self._now_us):
            self._heartbeat.hasten()

    def _let_time_pass(self) -> int:
        """Tick the lanes that are due; how long until the next one is."""
        wait_us = min(WAIT_US_MAX, self._publishing.at_us - self._now_us)
        for owned in list(self._lanes.owned.values()):
            if not self._has_caught_up(owned):
                continue
            at_us = owned.core.wakeup_at_us()
            if at_us is not None and at_us <= self._now_us:
                self._acting.tell(owned, TICKED, self._now_us)
                at_us = owned.core.wakeup_at_us()
            if at_us is not None:
                wait_us = min(wait_us, at_us - self._clock.now_us())
        return max(wait_us, 0)

    def _has_caught_up(self, owned: OwnedLane) -> bool:
        """D5: time passes for a lane only when it knows all that happened in a gap."""
        if not owned.is_catching_up:
            return True
        ends = owned.ends
        if (
            ends is None
            or owned.completions_at < ends.completions_end
            or self._intake.status_at < ends.status_end
        ):
            return False
        owned.is_catching_up = False
        return True
