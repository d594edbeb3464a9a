"""The batch former's mind: what leaves next, to which worker, and what is given up.

One per lane. Requests wait in queues per (model version, shape) and priority; nothing
is bound to a worker before that worker has a credit (late binding). Pure: no clock,
no I/O, no dice; the same events give the same decisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, assert_never

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
from headrace.scheduling.companions import companions
from headrace.scheduling.estimate import PacedTimes
from headrace.scheduling.fairness import TenantClocks
from headrace.scheduling.line import Line
from headrace.scheduling.loads import load_of
from headrace.scheduling.misses import drop_certain
from headrace.scheduling.neighbours import Riders, neighbours
from headrace.scheduling.online import LIMIT_KEPT_US, OnlineTraffic
from headrace.scheduling.queue import NEVER_US, Entry, QueueKey
from headrace.scheduling.selection import Selection, Terms, Times, select
from headrace.scheduling.settings import SchedulingSettings
from headrace.scheduling.shares import Shares
from headrace.scheduling.slots import UNKNOWN_RUN_US, Slot, Slots
from headrace.scheduling.waiting import send_at

__all__ = ["BatchFormer"]

COMPANION_CHARGE = 0.25
"""Part of its cost that a request pays when it rides in a more urgent batch."""


class Choice(NamedTuple):
    """A batch about to leave."""

    line: Line
    priority: int
    slot: Slot
    times: Times
    chosen: Selection
    reason: ReleaseReason
    start_us: int


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
        self._slots = Slots()
        self._affinity = Affinity(self._slots)
        self._ahead_us = 2 * settings.control_hop_us
        self._running: dict[str, tuple[QueueKey, int]] = {}
        self._refused: dict[str, Refuse] = {}
        self._sendable_at_us: int | None = None
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
        return load_of(self._slots, self._backlog, self._tenants, now_us)

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
        if not len(self._backlog):
            return None
        if not self._slots.advance(now_us, ahead_us=self._ahead_us):
            return self._choose_behind(now_us, decisions)
        near = self._slots.last_sent_to_sole
        near_us = self._online.near_us(now_us)
        for priority, is_owed in self._backlog.bands_in_order(self._shares, now_us):
            for line in self._backlog.by_urgency(priority, near, near_us):
                slot = self._slot_for(line, priority)
                if slot is None:
                    continue
                choice = self._consider(line, priority, slot, now_us, decisions)
                if choice is not None:
                    if is_owed:
                        choice = choice._replace(reason=ReleaseReason.OWED)
                    return choice
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
                rows_max, self._online.bulk_rows(line, band.head, self._shares, now_us)
            )
            if not rows_max:
                # What holds it back passes with time alone: online traffic of late,
                # or a share that is not owed yet. No event would say so.
                self._look_again(now_us + LIMIT_KEPT_US)
                return None
        if line.times.is_doubted(now_us):
            start_us = 0  # whatever fits the batch goes, so that it is measured again
        terms = self._terms(line, start_us, rows_max, now_us)
        chosen = select(
            band.first(2 * rows_max, self._tenants), times, self._tenants, terms
        )
        if chosen is None:
            return None
        send_at_us, reason = send_at(
            line,
            chosen,
            terms,
            slot,
            deferral=self._deferral(line, priority),
            lines=max(self._online.lines(now_us), 1),
            spacing_us=self._backlog.spacing_us if priority else 0,
            control_us=self._backlog.control_us,
            now_us=now_us,
        )
        if send_at_us > now_us:
            if line.waits_since_us is None:
                line.waits_since_us = now_us
            self._look_again(send_at_us)
            return None
        return Choice(line, priority, slot, times, chosen, reason, start_us)

    def _look_again(self, at_us: int) -> None:
        """Something may be sendable then."""
        if self._sendable_at_us is None or at_us < self._sendable_at_us:
            self._sendable_at_us = at_us

    def _terms(self, line: Line, start_us: int, rows_max: int, now_us: int) -> Terms:
        demand = line.demand
        hops_us = self._backlog.control_us + self._backlog.response_us
        slots = max(len(line.slots), 1)
        gate = self._settings.gate
        pressure = demand.pressure(is_sole=self._online.lines(now_us) < 2)
        return Terms(
            start_us=start_us,
            response_us=self._backlog.response_us,
            target_rows=min(
                demand.target_rows(line.times, hops_us, slots, now_us), rows_max
            ),
            rows_max=rows_max,
            bytes_max=self._settings.batch_bytes_max,
            gate=gate + (1 - gate) * pressure,
            gate_light=gate,
            pressure=pressure,
        )

    def _slot_for(self, line: Line, priority: int) -> Slot | None:
        """The best open slot that has the version; the one that the head avoids only
        where there is no other."""
        has = line.slots
        avoid = line.head(priority).request.avoid
        found: Slot | None = None
        for slot in self._slots.open():
            if slot.number in has:
                if slot.number != avoid:
                    return self._affinity.nearest(line, slot, avoid)
                found = found or slot
        return found

    def _deferral(self, line: Line, priority: int) -> float:
        """Bulk work of the same line rides along; that of others needs a gap."""
        bulk = self._backlog.busy[Priority.BULK].values()
        if priority != Priority.BULK and any(other is not line for other in bulk):
            return max(self._settings.deferral, self._settings.deferral_bulk)
        return self._settings.deferral

    def _dispatch(
        self, choice: Choice, now_us: int, decisions: list[SchedulerDecision]
    ) -> None:
        line, slot, chosen = choice.line, choice.slot, choice.chosen
        line.waits_since_us = None
        members = chosen.members
        riders: Riders = []
        if not chosen.leaves_some and not chosen.victims:
            members = [*members, *self._companions(choice, now_us)]
            riders = self._neighbours(choice, members)
        times = choice.times
        self._backlog.remove(line, members)
        for other, entries in riders:
            self._backlog.remove(other, entries)
            other.waits_since_us = None
            other.demand.sent(sum(entry.request.rows for entry in entries))
            members = [*members, *entries]
        rows = sum(entry.request.rows for entry in members)
        expected_us = times.expected(rows)
        latest_us = max(entry.deadline_us for entry in members)
        batch = next(self._batch_ids)
        self._charge(choice, members, expected_us / rows, now_us)
        if chosen.deadline_us != NEVER_US:
            lost = sum(entry.request.rows for entry in chosen.victims)
            line.sent(chosen.rows, lost, now_us)
        if chosen.victims:
            self._backlog.remove(line, chosen.victims)
            retry_us = line.drain_us()
            text = "serving it would shrink the batches of all that wait behind it"
            decisions += [
                Refuse(entry.request, Reason.SHED_WINDOW, text, retry_us)
                for entry in chosen.victims
            ]
        self._running[batch] = (line.shape, rows)
        if not slot.batches:
            slot.started_us = choice.start_us
        slot.batches[batch] = expected_us
        self._affinity.sent(line, slot)
        slot.credits_free -= 1
        self._slots.changed(slot, now_us=now_us, ahead_us=self._ahead_us)
        decisions.append(
            Dispatch(
                batch=batch,
                slot=slot.number,
                requests=tuple(entry.request for entry in members),
                padded_rows=rows,
                predicted_us=expected_us,
                predicted_p99_us=times.extreme(rows),
                latest_start_us=(
                    None
                    if latest_us == NEVER_US
                    else latest_us - expected_us - self._backlog.response_us
                ),
                reason=choice.reason,
                padded_length=line.edge,
            )
        )

    def _companions(self, choice: Choice, now_us: int) -> list[Entry]:
        return companions(
            choice.line.queue.bands[choice.priority + 1 :],
            choice.chosen,
            choice.times,
            self._tenants,
            late_us=choice.start_us + self._backlog.response_us,
            rows_max=choice.line.rows_max(choice.slot.number),
            rows_wanted=self._online.rows_wanted(choice.line, now_us),
            bytes_max=self._settings.batch_bytes_max,
            limit_us=self._online.bulk_limit_us(now_us),
        )

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

    def _charge(
        self, choice: Choice, members: list[Entry], row_us: float, now_us: int
    ) -> None:
        busy = self._backlog.busy
        rows = [0] * len(busy)
        charged: dict[str, float] = {}
        for entry in members:
            request = entry.request
            part: float = request.rows
            rows[request.priority] += request.rows
            if request.priority != choice.priority:
                part *= COMPANION_CHARGE
            charged[request.tenant] = charged.get(request.tenant, 0.0) + part
        for tenant, part in charged.items():
            self._tenants.charge(tenant, row_us * part, now_us)
        run_us = row_us * sum(rows)
        for priority, lines in enumerate(busy):
            # Who rides along has had his share, unless others of his priority wait
            # who cannot.
            is_own = priority == choice.priority
            if not is_own and any(line is not choice.line for line in lines.values()):
                rows[priority] = 0
        parts_us = [row_us * each for each in rows]
        self._shares.served(run_us, parts_us, [bool(lines) for lines in busy])

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
            times.observe(rows, int(event.run_us / slot.pace))
            times.observed_at_us = now_us
        if slot.batches.pop(event.batch, None) is not None:
            # The done record took a hop, so the next run is already that old.
            slot.started_us = now_us - self._backlog.control_us
            self._slots.changed(slot, now_us=now_us, ahead_us=self._ahead_us)
