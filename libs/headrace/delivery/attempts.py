"""The runs of a request: when it is handed to the scheduler, and what follows from
the end of a run.

A failed attempt counts unless nothing was tried: a batch that came too late, or that
never reached a worker's hands, is no attempt, and neither is the failure of a batch as
a whole, which says nothing about any one member. Its halves run apart from now on, and
theirs, until who fails is alone: of 32 members one is found in 10 more runs, and a
member runs at most as often as its batch can be halved.

Whoever was on board of two workers that were lost is suspected of it and runs alone,
once even beyond its attempts, so that a killer takes no company with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from heapq import heappop, heappush
from typing import NamedTuple, assert_never

import msgspec

from headrace.delivery.budget import RetryBudget
from headrace.delivery.ledger import Entry, EntryState, Keyed, Ledger
from headrace.delivery.limits import LaneLimits
from headrace.delivery.verdicts import Verdicts
from headrace.domain import (
    Arrived,
    Done,
    DoneMember,
    MemberStatus,
    Priority,
    Reason,
    Refuse,
    Scheduler,
    SchedulerDecision,
    ServedVersion,
    Setback,
    Source,
    VersionChanged,
    Withdrawn,
)
from headrace.domain import Event as SchedulerEvent

__all__ = ["Attempts", "Failed", "Toll"]

NOT_TRIED = frozenset({Setback.LATE, Setback.NEIGHBOUR, Setback.HANDED_BACK})
WHOLE_BATCH = frozenset({Setback.MODEL_ERROR, Setback.OOM, Setback.STOPPED})
"""Setbacks that say nothing about any one member."""
ENDED_WORKER = frozenset({Setback.RUN_LIMIT, Setback.DEVICE})
LOSSES_TO_SUSPECT = 2


class Toll(Enum):
    """What another run of a request costs it."""

    NOTHING = 0
    """It was not tried, or its batch failed as a whole."""
    ATTEMPT = 1
    WORKER = 2
    """An attempt, and the worker ended or fell silent with it on board."""
    BEHIND = 3
    """The same, but another batch lay ahead of it, which is likelier to blame: who was
    alone pays nothing."""
    LAPSE = 4
    """An attempt: its lease lapsed although the worker is heard, which a slow machine
    does to everyone."""

    @property
    def behind(self) -> Toll:
        """What it costs who lay behind another batch."""
        return Toll.BEHIND if self is Toll.WORKER else self


_WHY = {
    Toll.ATTEMPT: "its worker does not have it",
    Toll.WORKER: "its worker was lost",
    Toll.BEHIND: "its worker was lost",
    Toll.LAPSE: "its run took too long",
}


class Failed(NamedTuple):
    """A member that flies in a batch which is done, without a result for it."""

    entry: Entry
    member: DoneMember


class Attempts:
    """Moves entries between QUEUED and FLYING and into their verdicts.

    What the scheduler decides on the way is kept in ``decided`` for the lane: it may
    be told something in the middle of another change.
    """

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        ledger: Ledger,
        verdicts: Verdicts,
        limits: LaneLimits,
    ) -> None:
        self._scheduler = scheduler
        self._ledger = ledger
        self._verdicts = verdicts
        self._limits = limits
        self._is_open = False
        self._served: dict[tuple[str, str], ServedVersion] | None = None
        self._backing_off: list[tuple[int, int, Entry]] = []
        self._backoffs = 0
        self._budget = RetryBudget(limits)
        self.decided: list[SchedulerDecision] = []

    def tell(self, event: SchedulerEvent, now_us: int) -> None:
        self.decided += self._scheduler.handle(event, now_us)

    def open(self, now_us: int) -> None:
        """The lane is ACTIVE: hand over what is queued."""
        self._is_open = True
        for entry in list(self._ledger.entries()):
            if entry.state is EntryState.QUEUED and entry.keyed is not Keyed.WAITING:
                self.enqueue(entry, now_us)

    def close(self, now_us: int) -> None:
        """The lane is left: the scheduler forgets its requests, not what it learned."""
        if self._is_open:
            self._is_open = False
            for entry in self._ledger.entries():
                if entry.state is EntryState.QUEUED:
                    self.tell(Withdrawn(entry.request.key), now_us)
            self.decided.clear()

    def served(self, model: str, version: str) -> ServedVersion | None:
        return self._served.get((model, version)) if self._served else None

    def versions_changed(self, served: tuple[ServedVersion, ...], now_us: int) -> None:
        """The versions of the pool, whole. What is queued for one that no slot has any
        more is refused: no worker will ever run it."""
        before = self._served or {}
        self._served = {(each.model, each.version): each for each in served}
        for each in served:
            if each != before.get((each.model, each.version)):
                self.tell(VersionChanged(each), now_us)
        gone = before.keys() - self._served.keys()
        for name in gone:
            none: frozenset[int] = frozenset()
            left = msgspec.structs.replace(
                before[name],
                ready_slots=none,
                unloading_slots=none,
                loading_slots=none,
            )
            self.tell(VersionChanged(left), now_us)
        if gone and self._is_open:
            for entry in list(self._ledger.entries()):
                request = entry.request
                if (request.model, request.version) in gone:
                    self._refuse_gone(entry, now_us)

    def enqueue(self, entry: Entry, now_us: int) -> None:
        """Let the scheduler have a queued entry, once the lane is ACTIVE."""
        if not self._is_open:
            return
        request = entry.request
        if entry.is_overdue:
            expired = Refuse(request, Reason.EXPIRED, "its deadline passed in the log")
            self._verdicts.refuse(entry, expired, now_us)
        elif self._served is not None and (
            (request.model, request.version) not in self._served
        ):
            self._refuse(entry, now_us)
        else:
            self.tell(Arrived(request), now_us)

    def fly(
        self, entry: Entry, batch: str, now_us: int, *, is_alone: bool = False
    ) -> None:
        """The scheduler dispatched it."""
        if entry.first_flight_us is None:
            entry.first_flight_us = now_us
            self._budget.earn(entry.request.model, entry.request.version)
        entry.state = EntryState.FLYING
        entry.batch = batch
        entry.is_alone = is_alone

    def adopt(self, entry: Entry, batch: str, now_us: int) -> None:
        """It flies already, in a predecessor's batch; the report may have come after
        the census, when the scheduler had it."""
        if self._is_open:
            self.tell(Withdrawn(entry.request.key), now_us)
        if entry.keyed is not None:
            entry.keyed = Keyed.ASKED
        self.fly(entry, batch, now_us)

    def settle(self, entry: Entry, done_offset: int, now_us: int) -> None:
        """A worker has written its success, whatever we thought of it."""
        if entry.state is EntryState.QUEUED and self._is_open:
            self.tell(Withdrawn(entry.request.key), now_us)
        if entry.keyed is not None:
            entry.keyed = Keyed.ASKED
        self._ledger.settle(entry, done_offset)

    def settle_at(self, source: Source, done_offset: int, now_us: int) -> None:
        """The completions say that the request at ``source`` has its evidence; it may
        be settled already, or not read yet."""
        entry = self._ledger.at(source)
        if entry is None:
            self._ledger.settle_ahead(source, done_offset)
        else:
            self.settle(entry, done_offset, now_us)

    def cancel(self, entry: Entry, now_us: int) -> None:
        """Its client wants no answer any more: it ends unless it runs already."""
        match entry.state:
            case EntryState.QUEUED:
                if self._is_open:
                    self.tell(Withdrawn(entry.request.key), now_us)
                self._verdicts.cancel(entry)
            case EntryState.FLYING:
                entry.is_cancelled = True
            case EntryState.VERDICT | EntryState.SETTLED:
                pass
            case _:
                assert_never(entry.state)

    def forget(self, entry: Entry, now_us: int) -> None:
        """Its record is gone from the log, and from the ledger."""
        if entry.state is EntryState.QUEUED and self._is_open:
            self.tell(Withdrawn(entry.request.key), now_us)
        entry.state = EntryState.SETTLED

    def run_failed(self, done: Done, failed: Sequence[Failed], now_us: int) -> None:
        """What a batch that is done leaves to decide."""
        blamed = []
        for each in failed:
            entry, member = each
            if member.status is MemberStatus.FINAL:
                self._verdicts.fail(entry, _reason(member.reason), member.text)
            elif member.status is MemberStatus.UNACKED:
                self.retry(entry, now_us, why=member.text, last=_last(member))
            elif member.reason in NOT_TRIED:
                self.retry(entry, now_us, Toll.NOTHING)
            elif member.reason in WHOLE_BATCH:
                blamed.append(each)
            else:
                ended = member.reason in ENDED_WORKER
                toll = Toll.WORKER if ended else Toll.ATTEMPT
                avoid, last = done.slot, _last(member)
                self.retry(entry, now_us, toll, avoid=avoid, why=member.text, last=last)
        if len(done.members) == 1:
            for entry, member in blamed:
                self._failed_alone(entry, member, done.slot, now_us)
        else:
            self._split(done, blamed, now_us)

    def _split(self, done: Done, blamed: Sequence[Failed], now_us: int) -> None:
        middle = len(blamed) // 2
        for half, part in enumerate((blamed[:middle], blamed[middle:])):
            for entry, member in part:
                entry.has_failed |= member.reason == Setback.MODEL_ERROR
                self.retry(
                    entry,
                    now_us,
                    Toll.NOTHING,
                    group=f"{done.batch}.{half}",
                    avoid=done.slot,
                    why=member.text,
                )

    def _failed_alone(
        self, entry: Entry, member: DoneMember, slot: int, now_us: int
    ) -> None:
        """Nobody else was there to blame but the worker: it has a second try, unless
        it failed in company before."""
        bulk = entry.request.priority is Priority.BULK
        is_last = entry.request.attempt >= self._limits.attempts_max(bulk=bulk)
        is_model_error = member.reason == Setback.MODEL_ERROR
        if is_model_error and (entry.has_failed or is_last):
            self._verdicts.fail(entry, Reason.MODEL_ERROR, member.text)
            return
        if is_last and member.reason == Setback.STOPPED:
            # A slow device looks the same: nobody is blamed for good.
            self._verdicts.fail(entry, Reason.EXPIRED, f"alone, {member.text}")
            return
        entry.has_failed |= is_model_error
        self.retry(entry, now_us, avoid=slot, why=member.text)

    def retry(  # noqa: PLR0913 - what it costs, where it may go, why
        self,
        entry: Entry,
        now_us: int,
        toll: Toll = Toll.ATTEMPT,
        *,
        group: str = "",
        avoid: int | None = None,
        why: str = "",
        last: Reason = Reason.ATTEMPTS_EXHAUSTED,
    ) -> None:
        """A flying entry gets another attempt, or its verdict, for ``last`` at least.

        Whether the time left is enough for one is the scheduler's to say.
        """
        assert entry.state is EntryState.FLYING
        if entry.is_cancelled:
            self._verdicts.cancel(entry)
            return
        request = entry.request
        bulk = request.priority is Priority.BULK
        if toll is Toll.BEHIND and entry.is_alone:
            toll = Toll.NOTHING
        attempt = request.attempt + (toll is not Toll.NOTHING)
        is_lost = toll in {Toll.WORKER, Toll.BEHIND}
        entry.losses += is_lost
        entry.suspect |= entry.losses >= LOSSES_TO_SUSPECT
        is_last = attempt > self._limits.attempts_max(bulk=bulk)
        if is_last and not entry.is_alone and (is_lost or toll is Toll.LAPSE):
            # Its company may be to blame.
            entry.suspect, is_last = True, False
        if is_last and toll is Toll.LAPSE:
            return  # no other try is left, and its worker may say more
        why = why or _WHY.get(toll, entry.why)
        is_killer = toll is Toll.WORKER and entry.losses >= self._limits.losses_max
        if is_last or is_killer:
            reason = Reason.CRASH if is_lost and entry.suspect else last
            text = f"{request.attempt} attempts failed, the last one because {why}"
            self._verdicts.fail(entry, reason, text)
            return
        version = request.model, request.version
        is_afforded = toll is Toll.NOTHING or self._budget.spend(*version)
        if not is_afforded and toll is Toll.LAPSE:
            return
        if not is_afforded and not bulk:
            text = f"too many requests of the model are tried again already ({why})"
            self._verdicts.fail(entry, last, text)
            return
        entry.request = msgspec.structs.replace(
            request,
            attempt=attempt,
            group=request.key if entry.suspect else group or request.group,
            avoid=avoid,
        )
        entry.why, entry.last = why, last
        self.put_back(entry)
        if bulk and toll is not Toll.NOTHING:
            self._back_off(entry, now_us, is_longest=not is_afforded)
        else:
            self.enqueue(entry, now_us)

    def lost(self, entry: Entry, now_us: int) -> None:
        """The worker was lost with which its lease had lapsed before."""
        entry.losses += 1
        is_queued = entry.state is EntryState.QUEUED
        if is_queued and entry.losses >= self._limits.losses_max:
            if self._is_open:
                self.tell(Withdrawn(entry.request.key), now_us)
            text = f"{entry.losses} workers were lost with it"
            self._verdicts.fail(entry, Reason.CRASH, text)
        elif entry.losses >= LOSSES_TO_SUSPECT:
            self.crashed(entry, now_us)

    def put_back(self, entry: Entry) -> None:
        entry.state = EntryState.QUEUED
        entry.batch = ""

    def crashed(self, entry: Entry, now_us: int) -> None:
        """The worker that had it on board ended by a signal of its own making: from
        now on it runs alone, so that a killer fails alone."""
        entry.suspect = True
        key = entry.request.key
        if entry.state is EntryState.QUEUED and entry.request.group != key:
            entry.request = msgspec.structs.replace(entry.request, group=key)
            if self._is_open and not self._is_backing_off(entry):
                self.tell(Withdrawn(entry.request.key), now_us)
                self.enqueue(entry, now_us)

    def end_backoffs(self, now_us: int) -> None:
        while self._backing_off and self._backing_off[0][0] <= now_us:
            entry = heappop(self._backing_off)[2]
            if entry.state is EntryState.QUEUED:
                self.enqueue(entry, now_us)

    def give_up_old(self, now_us: int) -> None:
        """D19, asked at each full commit."""
        first_us = now_us - self._limits.flying_max_us
        for entry in list(self._ledger.entries()):
            flown_us = entry.first_flight_us
            if flown_us is None or flown_us > first_us:
                continue
            if entry.state is EntryState.FLYING:
                text = (
                    f"without a result {self._limits.flying_max_us} us after its start"
                )
                self._verdicts.fail(entry, Reason.ATTEMPTS_EXHAUSTED, text)

    def wakeup_at_us(self) -> int | None:
        instants = [self._backing_off[0][0]] if self._backing_off else []
        scheduler_us = self._scheduler.wakeup_at_us()
        if self._is_open and scheduler_us is not None:
            instants.append(scheduler_us)
        return min(instants, default=None)

    def scheduler_is_due(self, now_us: int) -> bool:
        wakeup_us = self._scheduler.wakeup_at_us()
        return self._is_open and wakeup_us is not None and wakeup_us <= now_us

    def _back_off(self, entry: Entry, now_us: int, *, is_longest: bool) -> None:
        retries = entry.request.attempt - 1
        wait_us = min(self._limits.backoff_us << retries, self._limits.backoff_max_us)
        if is_longest:
            wait_us = self._limits.backoff_max_us
        self._backoffs += 1
        heappush(self._backing_off, (now_us + wait_us, self._backoffs, entry))

    def _is_backing_off(self, entry: Entry) -> bool:
        return any(waiting is entry for _, _, waiting in self._backing_off)

    def _refuse_gone(self, entry: Entry, now_us: int) -> None:
        if entry.state is EntryState.QUEUED:
            self.tell(Withdrawn(entry.request.key), now_us)
            self._refuse(entry, now_us)

    def _refuse(self, entry: Entry, now_us: int) -> None:
        request = entry.request
        text = f"no worker has version {request.version} of model {request.model}"
        refuse = Refuse(request, Reason.MODEL_UNAVAILABLE, text)
        self._verdicts.refuse(entry, refuse, now_us)


def _last(member: DoneMember) -> Reason:
    """Why a request ends whose last attempt failed so: where the payload store was
    away, it tells its client, or whoever may put it back, what to wait for."""
    if member.reason == Reason.STORE_UNAVAILABLE:
        return Reason.STORE_UNAVAILABLE
    return Reason.ATTEMPTS_EXHAUSTED


def _reason(text: str) -> Reason:
    """A worker's reason as one of the closed set; it may be of a newer version."""
    try:
        return Reason(text)
    except ValueError:
        return Reason.MODEL_ERROR
