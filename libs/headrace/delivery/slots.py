"""The worker slots of a lane: what each holds, and whether it may be sent more.

Nothing is counted. ``held`` is the set of batches that a slot's process has or is about
to get; a credit is free where there are fewer than ``cap``. Only a ``done`` takes a
batch out; where one may have been lost, nothing more is sent until the slot has been
asked (sync) and has said what it holds (report).
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.delivery.attempts import Attempts, Failed, Toll
from headrace.delivery.decisions import Alarm, WriteBatch, WriteSync
from headrace.delivery.events import LinkFound, LinkLost
from headrace.delivery.leases import LeaseWatch, announced_p99_us
from headrace.delivery.ledger import Entry, EntryState, Ledger
from headrace.delivery.limits import LaneLimits
from headrace.delivery.links import Links
from headrace.delivery.outbox import Outbox
from headrace.delivery.roster import Roster
from headrace.delivery.slot import UNKNOWN, Flight, Slot, has_crashed
from headrace.delivery.slot_table import SlotTable
from headrace.domain import (
    BatchEnded,
    Dispatch,
    Done,
    HeldBatch,
    MemberStatus,
    Reported,
    SlotChanged,
    Source,
)

__all__ = ["Slots"]


class Slots:
    """All slots of a lane. Its methods are the facts that completions tell, and what
    time does to leases."""

    def __init__(  # noqa: PLR0913 - what a slot's fate touches
        self,
        numbers: Iterable[int],
        *,
        lane: int,
        limits: LaneLimits,
        roster: Roster[tuple[int, int]],
        leases: LeaseWatch,
        ledger: Ledger,
        attempts: Attempts,
        links: Links,
        out: Outbox,
    ) -> None:
        self._slots = SlotTable(numbers, limits=limits, roster=roster)
        self._lane = lane
        self._limits = limits
        self._leases = leases
        self._ledger = ledger
        self._attempts = attempts
        self._links = links
        self._out = out
        self._leases_stand = False
        self.is_scanning = False
        """Completions from before our syncs are being read: the processes that they
        name have those syncs ahead of them and need no other."""

    # -- what completions tell; offsets are those of the lane's completions

    def joined(
        self, number: int, incarnation: int, previous_exit: str, now_us: int
    ) -> None:
        slot = self._slots.get(number)
        if slot is not None and incarnation > slot.incarnation:
            self._replace(slot, incarnation, now_us, crashed=has_crashed(previous_exit))
            self._ask_newcomer(slot, now_us)

    def reported(self, report: Reported, epoch: int, former: str, now_us: int) -> None:
        slot = self._slots.get(report.slot)
        if slot is None or report.incarnation < slot.incarnation:
            return
        is_new = report.incarnation > slot.incarnation
        if is_new:
            self._replace(slot, report.incarnation, now_us)
        slot.is_draining = report.draining
        is_ours = (report.epoch, report.former) == (epoch, former)
        if not is_ours or report.k < slot.k_counts:
            if is_new:
                self._ask_newcomer(slot, now_us)
            return
        # A draining worker reports unasked, with the k of the last sync. What is on
        # its way to a usable slot is in no report, so that one is not counted.
        if not slot.is_usable:
            slot.is_usable = True
            slot.must_ask = False
            self._links.reported(slot)
            self._count(slot, report.held, now_us)

    def done(self, done: Done, offset: int, now_us: int) -> None:
        slot = self._slots.get(done.slot)
        if slot is not None and done.incarnation > slot.incarnation:
            self._replace(slot, done.incarnation, now_us)
            self._ask_newcomer(slot, now_us)
        counts = slot is not None and done.incarnation == slot.incarnation
        if slot is not None and counts:
            slot.remember_done(done.batch)
            if slot.held.pop(done.batch, None) is not None:
                run_us = done.measured_us
                self._attempts.tell(BatchEnded(done.batch, done.slot, run_us), now_us)
        failed = []
        for member in done.members:
            if member.status is MemberStatus.OK:
                self._attempts.settle_at(member.source, offset, now_us)
                continue
            entry = self._ledger.at(member.source)
            if counts and entry is not None and entry.flies_in(done.batch):
                failed.append(Failed(entry, member))
        if failed:
            self._attempts.run_failed(done, failed, now_us)

    def left(self, number: int, incarnation: int, now_us: int) -> None:
        """The process finished what it had taken and is gone; also when it refused
        our lane as not its own."""
        slot = self._slots.get(number)
        if slot is None or incarnation < slot.incarnation:
            return
        if incarnation > slot.incarnation:
            self._replace(slot, incarnation, now_us)
        slot.is_usable = slot.must_ask = False
        slot.has_left = True
        # What it did not take it has not tried.
        self._lose_all(slot, now_us, Toll.NOTHING)

    def refused_cap(self, number: int, incarnation: int, now_us: int) -> None:
        """The worker holds more than we believed: ask what."""
        slot = self._slots.get(number)
        if slot is not None and incarnation == slot.incarnation:
            slot.ask(now_us)

    # -- links

    def link_found(self, event: LinkFound, now_us: int) -> None:
        """What the topic has may be unread, so the slot is asked first."""
        self._links.found(event.slot, event.incarnation, event.link)
        slot = self._slots.get(event.slot)
        if slot is not None and slot.is_usable and self._links.waits_for(slot):
            slot.ask(now_us)

    def link_lost(self, event: LinkLost, now_us: int) -> None:
        if self._links.lost(event.slot, event.link):
            self._slots[event.slot].ask(now_us)

    # -- asking

    def ask_all(self, now_us: int) -> None:
        for slot in self._slots:
            slot.ask(now_us)

    def flush(self, epoch: int, now_us: int) -> None:
        """Write the syncs that are due."""
        for slot in self._slots:
            if slot.must_ask:
                slot.must_ask = False
                slot.asked_at_us = now_us
                link = self._links.way(self._lane, slot.number, epoch)
                write = self._out.number()
                slot.sync = write if link is None else None
                known = None if slot.incarnation == UNKNOWN else slot.incarnation
                where = write, self._lane, slot.number
                self._out.put(WriteSync(*where, epoch, slot.k, known, link))

    def write_ended(self, write: int, offset: int | None, now_us: int) -> None:
        """A sync that was not acked is asked again. A batch that was not acked may be
        there or not: the next sync of the same producer lies behind it if it is, so
        the answer is certain (A3)."""
        if offset is not None:
            return
        for slot in self._slots:
            is_lost = any(flight.write == write for flight in slot.held.values())
            if is_lost or (slot.sync == write and not slot.is_usable):
                slot.ask(now_us)

    def have_reported(self) -> bool:
        return self._slots.have_reported()

    @property
    def has_flying(self) -> bool:
        return self._slots.has_flying

    # -- dispatch

    def dispatch(self, dispatch: Dispatch, epoch: int, now_us: int) -> bool:
        """Send the batch; False: the slot cannot take it (any more), has a member
        already, or a member was settled while the scheduler still had it."""
        slot = self._slots.get(dispatch.slot)
        if slot is None or self._slots.credits_free(slot) == 0:
            return False
        members = []
        for request in dispatch.requests:
            entry = self._ledger.by_key(request.key)
            if entry is None or entry.state is not EntryState.QUEUED:
                return False
            members.append(entry)
        if [each for each in members if self._resume_in(slot, each, now_us)]:
            return False
        is_alone = len(members) == 1
        for entry in members:
            self._attempts.fly(entry, dispatch.batch, now_us, is_alone=is_alone)
        p99_us = dispatch.predicted_p99_us or self._limits.run_unknown_us
        number = self._out.number()
        flight = Flight(dispatch.batch, members, p99_us, number)
        slot.held[dispatch.batch] = flight
        lease = self._slots.lease(slot)
        if any(request.payload for request in dispatch.requests):
            lease += self._limits.store_wait_us
        flight.lease_at_us = now_us + lease
        incarnation = slot.incarnation
        link = self._links.way(self._lane, slot.number, epoch)
        self._out.put(
            WriteBatch(number, self._lane, epoch, incarnation, lease, dispatch, link)
        )
        return True

    def tell_scheduler(self, now_us: int) -> None:
        """Say what may be sent where, as far as it has changed."""
        for slot in self._slots:
            level = SlotChanged(
                slot.number, self._slots.credits_free(slot), tuple(slot.held)
            )
            if level != slot.told:
                slot.told = level
                self._attempts.tell(level, now_us)

    def tell_again(self, number: int, now_us: int) -> None:
        """The scheduler believes what is not so."""
        slot = self._slots.get(number)
        if slot is not None:
            self._attempts.tell(slot.told, now_us)

    def close(self, now_us: int) -> None:
        """Nothing may be sent any more."""
        for slot in self._slots:
            slot.is_usable = False
        self.tell_scheduler(now_us)

    def adopt(self, entry: Entry, batch: str, now_us: int) -> bool:
        """A request just read flies in a predecessor's batch, if a slot still has
        it."""
        flight = self._slots.holds(batch)
        if flight is None:
            return False
        self._attempts.adopt(entry, batch, now_us)
        flight.members.append(entry)
        return True

    def resume(self, entry: Entry, now_us: int) -> bool:
        """The scheduler refused a queued entry. Where a slot that is heard has it from
        an earlier attempt, that may still succeed: it flies there again."""
        return any(
            self._slots.is_heard(slot) and self._resume_in(slot, entry, now_us)
            for slot in self._slots
        )

    # -- time

    def own_heartbeat_read(self, now_us: int) -> None:
        """D4."""
        extended_us = self._leases.heard(now_us)
        self._leases_stand = False
        if extended_us:
            for slot in self._slots:
                for flight in slot.held.values():
                    flight.lease_at_us += extended_us

    def on_time(self, now_us: int) -> None:
        """Leases, silence, and questions without an answer."""
        leases_run = self._leases.runs(now_us)
        for slot in self._slots:
            is_heard = self._slots.is_heard(slot)
            if slot.was_heard and not is_heard:
                self._alarm("slot.silent", slot, held=len(slot.held))
                self._lapse(slot, list(slot.held.values()), now_us, Toll.WORKER)
            elif is_heard and not slot.was_heard and not slot.is_usable:
                slot.asked_at_us = now_us
            slot.was_heard = is_heard
            lapsed = [
                flight
                for flight in slot.held.values()
                if not flight.is_lapsed and now_us >= flight.lease_at_us
            ]
            if lapsed and leases_run:
                self._tell_lapse(slot, lapsed)
                self._lapse(slot, lapsed, now_us, Toll.LAPSE)
            self._leases_stand |= bool(lapsed) and not leases_run
            if self._slots.ask_again_at_us(slot) <= now_us:
                waiting = [each for each in slot.held.values() if each.is_lapsed]
                self._lapse(slot, waiting if leases_run else [], now_us, Toll.LAPSE)

    def wakeup_at_us(self) -> int | None:
        instants = []
        for slot in self._slots:
            if slot.must_ask:
                return 0
            if not self._leases_stand:
                instants += [
                    flight.lease_at_us
                    for flight in slot.held.values()
                    if not flight.is_lapsed
                ]
            if slot.was_heard and not slot.is_usable and not slot.has_left:
                instants.append(self._slots.ask_again_at_us(slot))
        return min(instants, default=None)

    # -- inside

    def _ask_newcomer(self, slot: Slot, now_us: int) -> None:
        if not self.is_scanning:
            slot.ask(now_us)

    def _resume_in(self, slot: Slot, entry: Entry, now_us: int) -> bool:
        has_flown = entry.first_flight_us is not None
        flight = slot.flight_of(entry) if has_flown else None
        if flight is None:
            return False
        is_alone = len(flight.members) == 1
        self._attempts.fly(entry, flight.batch, now_us, is_alone=is_alone)
        return True

    def _replace(
        self, slot: Slot, incarnation: int, now_us: int, *, crashed: bool = False
    ) -> None:
        """The slot has a new process, and what the old one held is lost."""
        slot.incarnation = incarnation
        slot.is_usable = slot.is_draining = slot.has_left = False
        slot.was_heard = False
        slot.done.clear()
        self._links.replaced(slot)
        members = [entry for flight in slot.held.values() for entry in flight.members]
        if crashed:
            for entry in members:
                self._attempts.crashed(entry, now_us)
        self._lose_all(slot, now_us)

    def _lose_all(self, slot: Slot, now_us: int, toll: Toll = Toll.WORKER) -> None:
        held, slot.held = slot.held, {}
        for place, flight in enumerate(held.values()):
            self._lose(slot, flight, now_us, toll.behind if place else toll)

    def _lose(
        self, slot: Slot, flight: Flight, now_us: int, toll: Toll = Toll.WORKER
    ) -> None:
        """The batch is no longer there."""
        self._attempts.tell(BatchEnded(flight.batch, slot.number, None), now_us)
        self._retry(slot, flight, now_us, toll)

    def _retry(
        self, slot: Slot, flight: Flight, now_us: int, toll: Toll = Toll.WORKER
    ) -> None:
        is_news = toll is Toll.WORKER and not flight.is_lost
        flight.is_lost |= is_news
        for entry in flight.members:
            if entry.flies_in(flight.batch):
                if toll is Toll.LAPSE and not self._has_others(entry, slot):
                    continue  # its slot has it, as far as anyone knows
                self._attempts.retry(entry, now_us, toll, avoid=slot.number)
            elif is_news:
                self._attempts.lost(entry, now_us)

    def _lapse(
        self, slot: Slot, flights: list[Flight], now_us: int, toll: Toll
    ) -> None:
        """The members are tried elsewhere; the credit stays taken until the slot has
        said what it holds: it may be frozen with the batch in its hands. Where a slot
        that is heard is the only one that could run them, they wait for its word."""
        first = next(iter(slot.held.values()), None)
        for flight in flights:
            flight.is_lapsed = True
            own = toll if flight is first else toll.behind
            self._retry(slot, flight, now_us, own)
        slot.ask(now_us)

    def _has_others(self, entry: Entry, slot: Slot) -> bool:
        served = self._attempts.served(entry.request.model, entry.request.version)
        return self._slots.could_run_elsewhere(entry, slot, served)

    def _tell_lapse(self, slot: Slot, lapsed: list[Flight]) -> None:
        """Once for a batch, however often its lease is renewed."""
        news = [flight for flight in lapsed if not flight.is_told]
        if news:
            self._alarm("lease.lapsed", slot, batch=news[0].batch)
        for flight in news:
            flight.is_told = True

    def _alarm(self, event: str, slot: Slot, **facts: str | int) -> None:
        self._out.put(Alarm(event, {"slot": slot.number, **facts}))

    def _count(self, slot: Slot, reported: tuple[HeldBatch, ...], now_us: int) -> None:
        """Believe the report: what it does not name is gone, and what it names beyond
        our own is a predecessor's and adopted."""
        before, slot.held = slot.held, {}
        for held in reported:
            flight = before.pop(held.batch, None)
            if flight is None and held.batch in slot.done:
                continue
            if flight is None:
                flight = self._adopted(held, now_us)
            slot.held[held.batch] = flight
            if flight.is_lapsed:
                flight.is_lapsed = False
                flight.lease_at_us = now_us + self._slots.lease(slot)
        for flight in before.values():
            self._lose(slot, flight, now_us, Toll.ATTEMPT)

    def _adopted(self, held: HeldBatch, now_us: int) -> Flight:
        members = []
        for source in held.members:
            entry = self._ledger.at(Source(*source))
            if entry is None:
                self._ledger.aloft(source, held.batch)
            elif entry.state is EntryState.QUEUED and entry.first_flight_us is None:
                self._attempts.adopt(entry, held.batch, now_us)
                members.append(entry)
        flight = Flight(held.batch, members, self._adopted_p99_us(held, members))
        flight.is_lapsed = True  # its lease begins now
        return flight

    def _adopted_p99_us(self, held: HeldBatch, members: list[Entry]) -> int:
        if not members:
            return self._limits.run_unknown_us
        request = members[0].request
        served = self._attempts.served(request.model, request.version)
        rows = sum(entry.request.rows for entry in members)
        if served is not None and len(members) < len(held.members):
            rows = served.max_batch
        return announced_p99_us(served, rows, self._limits)
