"""What always holds, whatever comes in whatever order, with limits that bind.

The numbers are those of ``libs/headrace/scheduling/README.md``.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.domain import (
    Arrived,
    BatchEnded,
    Dispatch,
    Event,
    Priority,
    Reason,
    Refuse,
    Request,
    SchedulerDecision,
    SlotChanged,
    Ticked,
    Withdrawn,
)
from headrace.scheduling import SchedulingSettings
from tests.scheduling.scenes import MS, Desk, a_request, a_version

SLOTS = 2
CREDITS = 4
MAX_BATCH = 3
QUEUE_MAX = 3
SETTINGS = SchedulingSettings(
    control_hop_us=200,
    response_hop_us=300,
    queue_requests_max=QUEUE_MAX,
    batch_bytes_max=10,
    burst_us=2 * MS,
)
LIMITS_US = st.sampled_from([1 * MS, 3 * MS, 6 * MS, 20 * MS, 500 * MS])


class Scheduling(RuleBasedStateMachine):
    """Random arrivals, cancels, ends, losses and time, over two workers, three
    models (the others on one worker alone), two shapes and three tenants."""

    def __init__(self) -> None:
        super().__init__()
        self.versions = (
            a_version(slots=frozenset({0, 1}), max_batch=MAX_BATCH),
            a_version("n", slots=frozenset({1}), max_batch=2, alpha_us=2 * MS),
            a_version("s", slots=frozenset({0}), max_batch=3, alpha_us=20, beta_us=20),
        )
        self.desk = Desk(*self.versions, slots=SLOTS, settings=SETTINGS)
        self.now_us = 0
        self.usable = {0, 1}
        self.admitted: dict[str, Request] = {}
        self.ran_us: dict[tuple[str, str], int] = {}
        self.queued: set[str] = set()
        self.flying: set[str] = set()
        self.ended: set[str] = set()
        self.last_ended: BatchEnded | None = None
        self.log: list[tuple[Event, int, list[SchedulerDecision]]] = []

    def tell(self, event: Event) -> list[SchedulerDecision]:
        decisions = self.desk.former.handle(event, self.now_us)
        self.log.append((event, self.now_us, decisions))
        return decisions

    def level(self, slot: int) -> None:
        held = tuple(each.batch for each in self.desk.held[slot])
        free = CREDITS - len(held) if slot in self.usable else 0
        self.tell(SlotChanged(slot, free, held))

    @rule(
        model=st.sampled_from(["m", "m", "n", "s"]),
        shape=st.sampled_from(["a", "b"]),
        rows=st.integers(1, 3),
        priority=st.sampled_from(Priority),
        tenant=st.sampled_from(["t", "u", "v"]),
        limit_us=LIMITS_US,
        size_bytes=st.integers(1, 12),
        group=st.sampled_from(["", "", "", "g", "h"]),
    )
    def arrive(  # noqa: PLR0917 - drawn by name
        self,
        model: str,
        shape: str,
        rows: int,
        priority: Priority,
        tenant: str,
        limit_us: int,
        size_bytes: int,
        group: str,
    ) -> None:
        request = a_request(
            key=f"{len(self.admitted):04}",
            model=model,
            shape=shape,
            rows=rows,
            priority=priority,
            tenant=tenant,
            at_us=self.now_us,
            limit_us=None if priority == Priority.BULK else limit_us,
            size_bytes=size_bytes,
            group=group,
        )
        self.admitted[request.key] = request
        self.queued.add(request.key)
        assert self.tell(Arrived(request)) == []

    @precondition(lambda self: self.queued)
    @rule(data=st.data())
    def arrive_again(self, data: st.DataObject) -> None:
        """I17: a repeated arrival of a queued request changes nothing."""
        key = data.draw(st.sampled_from(sorted(self.queued)))
        self.tell(Arrived(self.admitted[key]))

    @precondition(lambda self: self.queued)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        """I18: nothing that was withdrawn is dispatched (checked in ``tick``)."""
        key = data.draw(st.sampled_from(sorted(self.queued)))
        self.tell(Withdrawn(key))
        self.queued.discard(key)
        self.ended.add(key)

    @precondition(lambda self: any(self.desk.held.values()))
    @rule(data=st.data(), ran=st.sampled_from([0.5, 1.0, 1.0, 1.0, 3.0, None]))
    def finish(self, data: st.DataObject, ran: float | None) -> None:
        holding = [slot for slot, held in self.desk.held.items() if held]
        slot = data.draw(st.sampled_from(holding))
        batch = self.desk.held[slot].pop(0)
        run_us = None if ran is None else max(int(batch.predicted_us * ran), 1)
        self.now_us += run_us or 0
        self.tell(BatchEnded(batch.batch, slot, run_us))
        self.level(slot)
        self.last_ended = BatchEnded(batch.batch, slot, run_us)
        if run_us is not None:
            first = batch.requests[0]
            self.ran_us[first.model, first.shape] = self.now_us
        for request in batch.requests:
            self.flying.discard(request.key)
            self.ended.add(request.key)

    @precondition(lambda self: self.last_ended is not None)
    @rule(slot=st.integers(0, SLOTS - 1))
    def hear_again(self, slot: int) -> None:
        """I17: nor do an end and a level that are told twice."""
        assert self.last_ended is not None
        before = self.desk.former.load(self.now_us)
        self.tell(self.last_ended)
        self.level(slot)
        assert self.desk.former.load(self.now_us) == before

    @rule(slot=st.integers(0, SLOTS - 1))
    def lose_or_find(self, slot: int) -> None:
        """A slot may not be sent to (silent, asked), or may be again."""
        self.usable ^= {slot}
        self.level(slot)

    @rule(step_us=st.sampled_from([0, 100, 1 * MS, 5 * MS, 100 * MS]))
    def pass_time(self, step_us: int) -> None:
        self.now_us += step_us

    @rule()
    def tick(self) -> None:
        before = set(self.queued)
        decisions = self.tell(Ticked())
        for decision in decisions:
            match decision:
                case Dispatch():
                    self.check_dispatch(decision, before)
                case Refuse():
                    self.check_refusal(decision)
        for decision in decisions:
            if isinstance(decision, Dispatch):
                self.check_order(decision)
        for slot in range(SLOTS):
            self.level(slot)
        # I8: whatever could leave has left.
        assert self.tell(Ticked()) == []
        self.check_queues()

    def check_dispatch(self, dispatch: Dispatch, before: set[str]) -> None:
        requests = dispatch.requests
        keys = [request.key for request in requests]
        rows = sum(request.rows for request in requests)
        served = next(each for each in self.versions if each.model == requests[0].model)
        # I1, I18: each was queued, and leaves the queue once.
        assert set(keys) <= before & self.queued
        assert len(set(keys)) == len(keys)
        # I2: a credit was free, on a slot that has the model.
        assert dispatch.slot in self.usable & served.ready_slots
        # I26: more than one that runs and one that is ready are of bulk alone.
        is_bulk = {each.priority for each in requests} == {Priority.BULK}
        most = CREDITS if is_bulk else 2
        assert len(self.desk.held[dispatch.slot]) < most
        # I3: one key, within the limits.
        keyed = {
            (each.model, each.version, each.shape, each.group) for each in requests
        }
        assert len(keyed) == 1
        assert rows <= served.max_batch
        assert len(keys) == 1 or sum(each.size_bytes for each in requests) <= 10
        # I4: no certain loss, by run times that some run has confirmed of late.
        ran_us = self.ran_us.get((requests[0].model, requests[0].shape), 0)
        for request in requests:
            if request.deadline_us is not None and self.now_us - ran_us < 1_000 * MS:
                ends_us = self.now_us + 200 + dispatch.predicted_us + 300
                assert ends_us <= request.deadline_us
        assert dispatch.predicted_us <= dispatch.predicted_p99_us + 1
        self.desk.held[dispatch.slot].append(dispatch)
        self.queued -= set(keys)
        self.flying |= set(keys)

    def check_order(self, dispatch: Dispatch) -> None:
        """I7: by deadline within a tenant, key and priority; who stays behind was not
        passed, but for members that ride along in what was left of a batch."""
        urgent = min(request.priority for request in dispatch.requests)
        for request in dispatch.requests:
            if request.priority != urgent:
                continue
            for key in self.queued:
                other = self.admitted[key]
                if _queue(other) == _queue(request):
                    assert _turn(request) < _turn(other)

    def check_refusal(self, refusal: Refuse) -> None:
        request = refusal.request
        assert request.key in self.queued
        self.queued.discard(request.key)
        self.ended.add(request.key)
        # I6: reasons are honest; bulk is never shed.
        match refusal.reason:
            case Reason.EXPIRED:
                assert request.deadline_us is not None
                assert request.deadline_us <= self.now_us + 300
            case Reason.INVALID:
                assert request.rows > (2 if request.model == "n" else MAX_BATCH)
            case Reason.QUEUE_FULL | Reason.SHED_WINDOW:
                assert request.deadline_us is not None
            case Reason.DEADLINE_UNATTAINABLE | Reason.NO_CAPACITY:
                assert request.deadline_us is not None
                assert request.deadline_us > self.now_us + 300
            case _:
                raise AssertionError(refusal.reason)

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        """I1: admitted = ended + queued + in flight."""
        states = (self.queued, self.flying, self.ended)
        assert sum(len(state) for state in states) == len(self.admitted)

    def check_queues(self) -> None:
        """I5, I22: nobody waits whose time is over, and no tenant has more online
        requests in a queue than its limit."""
        for key in self.queued:
            deadline_us = self.admitted[key].deadline_us
            assert deadline_us is None or deadline_us > self.now_us
        waiting = Counter(
            (request.model, request.shape, request.group, request.tenant)
            for request in map(self.admitted.__getitem__, self.queued)
            if request.deadline_us is not None
        )
        assert max(waiting.values(), default=0) <= QUEUE_MAX

    @invariant()
    def a_waking_is_asked_for_while_deadlines_run(self) -> None:
        """I5, I23: whoever waits with a deadline is looked at again before it."""
        limits = [
            deadline_us
            for key in self.queued
            if (deadline_us := self.admitted[key].deadline_us) is not None
        ]
        if limits:
            wakeup_us = self.desk.former.wakeup_at_us()
            assert wakeup_us is not None
            assert wakeup_us <= max(min(limits), self.now_us)

    def teardown(self) -> None:
        """I16: the same events give the same decisions."""
        again = Desk(*self.versions, slots=SLOTS, settings=SETTINGS).former
        for event, now_us, decisions in self.log:
            assert again.handle(event, now_us) == decisions


def _queue(request: Request) -> tuple[str, str, str, str, Priority]:
    key = request.model, request.shape, request.group
    return *key, request.tenant, request.priority


def _turn(request: Request) -> tuple[int, str]:
    """Keys count arrivals."""
    deadline_us = request.deadline_us
    return 1 << 62 if deadline_us is None else deadline_us, request.key


TestScheduling = Scheduling.TestCase
TestScheduling.settings = hypothesis_settings(
    max_examples=150, stateful_step_count=40, deadline=None
)
