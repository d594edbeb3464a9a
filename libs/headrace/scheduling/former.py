"""The batch former's mind: what leaves next, to which worker, and what is given up.

One per lane. Requests wait in queues per (model version, shape) and priority; nothing
is bound to a worker before that worker has a credit (late binding). Pure: no clock,
no I/O, no dice; the same events give the same decisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from headrace.domain import (
    Arrived,
    BatchEnded,
    Dispatch,
    Event,
    HopsMeasured,
    Load,
    Priority,
    Reason,
    Refuse,
    ReleaseReason,
    Request,
    SchedulerDecision,
    SlotChanged,
    Ticked,
    VersionChanged,
    Withdrawn,
)
from headrace.scheduling.affinity import Affinity
from headrace.scheduling.backlog import Backlog
from headrace.scheduling.behind import is_light
from headrace.scheduling.charging import charge
from headrace.scheduling.choice import Choice
from headrace.scheduling.companions import Berths, companions
from headrace.scheduling.conditions import Conditions
from headrace.scheduling.estimate import PacedTimes
from headrace.scheduling.fairness import TenantClocks
from headrace.scheduling.line import Line
from headrace.scheduling.loads import load_of
from headrace.scheduling.misses import drop_certain
from headrace.scheduling.neighbours import Riders, neighbours
from headrace.scheduling.online import LIMIT_KEPT_US, OnlineTraffic
from headrace.scheduling.queue import NEVER_US, Entry, QueueKey
from headrace.scheduling.selection import Terms, Times, select
from headrace.scheduling.settings import SchedulingSettings
from headrace.scheduling.shares import Shares
from headrace.scheduling.slots import UNKNOWN_RUN_US, Slot, Slots

__all__ = ["BatchFormer"]


class BatchFormer:
    """The scheduling core behind :class:`headrace.domain.Scheduler`."""

    def __init__(
        self, settings: SchedulingSettings, *, batch_ids: Iterator[str]
    ) -> None:
        self._settings = settings
        self._batch_ids = batch_ids
        self._tenants = TenantClocks(
            settings.tenant_weights, burst_us=settings.burst_us
        )
        self._backlog = Backlog(settings, self._tenants)
        self._shares = Shares(settings.shares)
        self._online = OnlineTraffic(settings, self._backlog)
        self._conditions = Conditions(settings, self._backlog, self._online)
        self._slots = Slots()
        self._affinity = Affinity(self._slots)
        self._ahead_us = 2 * settings.control_hop_us
        self._running: dict[str, tuple[QueueKey, int]] = {}
        self._refused: dict[str, Refuse] = {}
        self._sendable_at_us: int | None = None
        self._waiting: list[Choice] = []
        self._wakeup_us: int | None = None

    def handle(self, event: Event, now_us: int) -> list[SchedulerDecision]:
        match event:
            case Arrived(request=request):
                self._arrive(request, now_us)
                return []
            case Ticked():
                return self._decide(now_us)
            case SlotChanged():
                self._change_slot(event, now_us)
            case BatchEnded():
                self._end_batch(event, now_us)
            case Withdrawn(key=key):
                self._backlog.withdraw(key)
                self._refused.pop(key, None)
            case VersionChanged(served=served):
                if served.is_gone:
                    self._affinity.forget((served.model, served.version))
                for refuse in self._backlog.change_version(served):
                    self._refused[refuse.request.key] = refuse
            case HopsMeasured():
                self._backlog.take_hops(event)
                self._ahead_us = event.ahead_us or 2 * event.control_us
            case _:
                assert_never(event)
        self._wakeup_us = now_us
        return []

    def wakeup_at_us(self) -> int | None:
        return self._wakeup_us

    def load(self, now_us: int) -> Load:
        """What waits and runs, and what a row costs, for admission."""
        return load_of(
            self._slots,
            self._backlog,
            self._tenants,
            shares=self._settings.shares,
            now_us=now_us,
        )

    def _arrive(self, request: Request, now_us: int) -> None:
        if request.key in self._refused:
            return
        refused = self._backlog.add(request, now_us)
        if refused is not None:
            self._refused[request.key] = refused
        if refused is not None or self._slots.is_any_open:
            self._wakeup_us = now_us
            return
        # Nothing leaves before a slot opens, so a tick now would change nothing.
        if self._wakeup_us is None:
            self._wakeup_us = self._next_wakeup_us()
            return
        miss_us = self._backlog.next_miss_us()
        if miss_us is not None and miss_us < self._wakeup_us:
            self._wakeup_us = miss_us

    def _decide(self, now_us: int) -> list[SchedulerDecision]:
        decisions: list[SchedulerDecision] = list(self._refused.values())
        self._refused.clear()
        self._drop_missed(now_us, decisions)
        while (choice := self._choose(now_us, decisions)) is not None:
            self._dispatch(choice, now_us, decisions)
        self._wakeup_us = self._next_wakeup_us()
        return decisions

    def _choose(self, now_us: int, decisions: list[SchedulerDecision]) -> Choice | None:
        """The batch that gets the next free credit, or None: nothing is sendable."""
        self._sendable_at_us = None
        self._waiting.clear()
        if not len(self._backlog):
            return None
        if not self._slots.advance(now_us, ahead_us=self._ahead_us):
            return self._choose_behind(now_us, decisions)
        near = self._slots.last_sent_to_sole
        near_us = self._online.near_us(now_us)
        for priority, is_owed in self._backlog.bands_in_order(self._shares, now_us):
            for line in self._backlog.by_urgency(priority, near, near_us):
                slot = self._slot_for(line, priority, now_us)
                if slot is None:
                    continue
                choice = self._consider(line, priority, slot, now_us, decisions)
                if choice is not None:
                    if is_owed:
                        return choice._replace(reason=ReleaseReason.OWED)
                    return self._in_turn(choice)
        return self._choose_behind(now_us, decisions)

    def _choose_behind(
        self, now_us: int, decisions: list[SchedulerDecision]
    ) -> Choice | None:
        """A full batch of bulk for a slot that holds two already, whose runs are over
        before word of the first could bring another. Never while anyone is online: who
        comes next waits for what the slot holds."""
        deep = list(self._slots.deep())
        bytes_max = self._settings.behind_bytes_max
        if not deep or any(self._backlog.busy[: Priority.BULK]):
            return None
        if self._online.bulk_limit_us(now_us) is not None:
            return None
        for line in self._backlog.by_urgency(Priority.BULK, None, 0):
            avoid = line.head(Priority.BULK).request.avoid
            has = line.slots - {avoid}
            slot = next((one for one in deep if one.number in has), None)
            if slot is None:
                continue
            choice = self._consider(line, Priority.BULK, slot, now_us, decisions)
            if choice is None:
                continue
            if is_light(choice.chosen, choice.reason, bytes_max):
                return choice
        return None

    def _consider(
        self,
        line: Line,
        priority: int,
        slot: Slot,
        now_us: int,
        decisions: list[SchedulerDecision],
    ) -> Choice | None:
        """What ``line`` would send to ``slot`` now, if anything."""
        start_us = max(now_us + self._backlog.control_us, slot.free_at_us(now_us))
        decisions += drop_certain(
            self._slots, self._backlog, line, priority, start_us, now_us
        )
        band = line.queue.bands[priority]
        if not band:
            return None
        times: Times = line.times
        if slot.pace != 1.0:
            times = PacedTimes(line.times, slot.pace)
        # A request is whole: one that fits nowhere goes alone, and its worker tells.
        rows_max = max(line.rows_max(slot.number), band.head.request.rows)
        if priority == Priority.BULK:
            rows_max = min(
                rows_max, self._online.bulk_rows(line, band.head, slot, now_us)
            )
            if not rows_max:
                # What holds it back passes with time alone: online traffic of late,
                # or a share that is not owed yet. No event would say so.
                self._look_again(now_us + LIMIT_KEPT_US)
                return None
        if line.times.is_doubted(now_us):
            start_us = 0  # whatever fits the batch goes, so that it is measured again
        terms = self._conditions.terms(line, priority, start_us, rows_max, now_us)
        chosen = select(
            band.first(2 * rows_max, self._tenants), times, self._tenants, terms
        )
        if chosen is None:
            return None
        eager = ReleaseReason.AHEAD if slot.batches else ReleaseReason.IDLE
        choice = Choice(line, priority, slot, times, chosen, eager, start_us)
        return self._now_or_later(choice, terms, now_us)

    def _now_or_later(self, choice: Choice, terms: Terms, now_us: int) -> Choice | None:
        line, priority, chosen = choice.line, choice.priority, choice.chosen
        send_at_us, reason = self._conditions.send_at(
            choice, chosen.rows, terms, now_us
        )
        if send_at_us > now_us:
            rows = self._rows_together(choice, terms.target_rows, now_us)
            if rows > chosen.rows:
                send_at_us, reason = self._conditions.send_at(
                    choice, rows, terms, now_us
                )
        if send_at_us <= now_us:
            return choice._replace(reason=reason)
        if line.waits_since_us[priority] is None:
            line.waits_since_us[priority] = now_us
        self._look_again(send_at_us)
        self._waiting.append(choice)
        return None

    def _rows_together(self, choice: Choice, wanted: int, now_us: int) -> int:
        """Rows of a batch with the less urgent online requests that ride along, where
        they could make it as large as ``wanted``."""
        chosen = choice.chosen
        first = choice.priority + 1
        bands = choice.line.queue.bands[first : Priority.BULK]
        waiting = sum(band.rows for band in bands)
        if not waiting or chosen.victims or chosen.rows + waiting < wanted:
            return chosen.rows
        riding = self._companions(choice, range(first, Priority.BULK), now_us)
        return chosen.rows + sum(entry.request.rows for entry in riding)

    def _in_turn(self, choice: Choice) -> Choice:
        """Who leaves in place of ``choice``: a more urgent batch waits for company
        while nobody needs the worker, so it goes first where a less urgent one would
        take it. Bulk may, by ``deferral_bulk``."""
        for other in self._waiting:
            is_ahead = other.priority < choice.priority
            if is_ahead and choice.slot.number in other.line.slots:
                lends = self._conditions.deferral(other.line, other.priority) > 0
                if choice.priority != Priority.BULK or not lends:
                    return other
        return choice

    def _look_again(self, at_us: int) -> None:
        """Something may be sendable then."""
        if self._sendable_at_us is None or at_us < self._sendable_at_us:
            self._sendable_at_us = at_us

    def _slot_for(self, line: Line, priority: int, now_us: int) -> Slot | None:
        """The best open slot that has the version; the one that the head avoids only
        where there is no other."""
        has = line.slots
        avoid = line.head(priority).request.avoid
        found: Slot | None = None
        if priority == Priority.BULK:
            apart = has - self._online.slots(now_us) - {avoid}
            for slot in self._slots.open() if apart else ():
                if slot.number in apart:
                    return slot
        for slot in self._slots.open():
            if slot.number in has:
                if slot.number != avoid:
                    return self._affinity.nearest(line, slot, avoid)
                found = found or slot
        return found

    def _dispatch(
        self, choice: Choice, now_us: int, decisions: list[SchedulerDecision]
    ) -> None:
        line, slot, chosen = choice.line, choice.slot, choice.chosen
        line.waits_since_us[choice.priority] = None
        members = chosen.members
        riders: Riders = []
        if not chosen.leaves_some and not chosen.victims:
            priorities = range(choice.priority + 1, len(Priority))
            members = [*members, *self._companions(choice, priorities, now_us)]
            riders = self._neighbours(choice, members)
        self._backlog.remove(line, members)
        members = [*members, *self._riding(riders, choice.priority)]
        rows = sum(entry.request.rows for entry in members)
        expected_us = choice.times.expected(rows)
        self._backlog.used.add(line.version, expected_us, now_us)
        latest_us = max(entry.deadline_us for entry in members)
        batch = next(self._batch_ids)
        charge(
            choice,
            members,
            expected_us / rows,
            busy=self._backlog.busy,
            tenants=self._tenants,
            shares=self._shares,
            now_us=now_us,
        )
        if chosen.deadline_us != NEVER_US:
            lost = sum(entry.request.rows for entry in chosen.victims)
            line.sent(choice.priority, chosen.rows, lost, now_us)
        if chosen.victims:
            decisions += self._give_up(line, chosen.victims)
        self._running[batch] = (line.shape, rows)
        self._load(choice, batch, rows, now_us)
        decisions.append(
            Dispatch(
                batch=batch,
                slot=slot.number,
                requests=tuple(entry.request for entry in members),
                padded_rows=rows,
                predicted_us=expected_us,
                predicted_p99_us=choice.times.extreme(rows),
                latest_start_us=(
                    None
                    if latest_us == NEVER_US
                    else latest_us - expected_us - self._backlog.response_us
                ),
                reason=choice.reason,
                padded_length=line.edge,
            )
        )

    def _load(self, choice: Choice, batch: str, rows: int, now_us: int) -> None:
        line, slot = choice.line, choice.slot
        if choice.priority == Priority.BULK:
            self._online.bulk_started(line, slot, rows, now_us)
        if not slot.batches:
            slot.started_us = choice.start_us
        slot.batches[batch] = choice.times.expected(rows)
        self._affinity.sent(line, slot)
        slot.credits_free -= 1
        self._slots.changed(slot, now_us=now_us, ahead_us=self._ahead_us)

    def _riding(self, riders: Riders, priority: int) -> Iterator[Entry]:
        for line, entries in riders:
            self._backlog.remove(line, entries)
            line.demand.sent(priority, sum(entry.request.rows for entry in entries))
            yield from entries

    def _give_up(self, line: Line, victims: list[Entry]) -> list[Refuse]:
        self._backlog.remove(line, victims)
        retry_us = line.drain_us()
        text = "serving it would shrink the batches of all that wait behind it"
        return [
            Refuse(entry.request, Reason.SHED_WINDOW, text, retry_us)
            for entry in victims
        ]

    def _companions(
        self, choice: Choice, priorities: range, now_us: int
    ) -> list[Entry]:
        line = choice.line
        bands = [
            (band, self._conditions.gate(line, priority, now_us))
            for priority in priorities
            if (band := line.queue.bands[priority])
        ]
        if not bands:
            return []
        berths = Berths(
            late_us=choice.start_us + self._backlog.response_us,
            rows_max=line.rows_max(choice.slot.number),
            rows_wanted=self._online.rows_wanted(line, now_us),
            bytes_max=self._settings.batch_bytes_max,
            limit_us=self._online.bulk_limit_us(now_us),
        )
        return companions(bands, choice.chosen, choice.times, self._tenants, berths)

    def _neighbours(self, choice: Choice, members: list[Entry]) -> Riders:
        """Shorter requests of the same model that are padded to the batch's length."""
        line, slot = choice.line, choice.slot
        return neighbours(
            self._backlog.shorter(line, choice.priority),
            members,
            choice.times,
            priority=choice.priority,
            slot=slot.number,
            late_us=choice.start_us + self._backlog.response_us,
            rows_max=line.rows_max(slot.number),
            bytes_max=self._settings.batch_bytes_max,
        )

    def _drop_missed(self, now_us: int, decisions: list[SchedulerDecision]) -> None:
        start_us = now_us + self._backlog.control_us
        for line, priority in self._backlog.missing(now_us):
            decisions += drop_certain(
                self._slots, self._backlog, line, priority, start_us, now_us
            )

    def _next_wakeup_us(self) -> int | None:
        if not len(self._backlog):
            return None
        soonest_us = self._backlog.next_miss_us()
        for at_us in (self._slots.next_opening_us(), self._sendable_at_us):
            if at_us is not None and (soonest_us is None or at_us < soonest_us):
                soonest_us = at_us
        return soonest_us

    def _change_slot(self, event: SlotChanged, now_us: int) -> None:
        slot = self._slots.get(event.slot)
        first = next(iter(slot.batches), None)
        slot.credits_free = event.credits_free
        slot.batches = {
            batch: slot.batches.get(batch, UNKNOWN_RUN_US) for batch in event.held
        }
        if event.held and event.held[0] != first:
            slot.started_us = now_us
        self._slots.changed(slot, now_us=now_us, ahead_us=self._ahead_us)

    def _end_batch(self, event: BatchEnded, now_us: int) -> None:
        slot = self._slots.get(event.slot)
        key, rows = self._running.pop(event.batch, (None, 0))
        times = None if key is None else self._backlog.times_of(key)
        if times is not None and event.run_us is not None:
            self._slots.observe_pace(slot, event.run_us / times.expected(rows))
            if times.observe(rows, int(event.run_us / slot.pace)):
                self._backlog.suspect_others(times)
            times.observed_at_us = now_us
        if slot.batches.pop(event.batch, None) is not None:
            # The done record took a hop, so the next run is already that old.
            slot.started_us = now_us - self._backlog.control_us
            self._slots.changed(slot, now_us=now_us, ahead_us=self._ahead_us)
