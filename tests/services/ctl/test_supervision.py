from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from services.ctl.supervision import (
    Abandon,
    Child,
    Decision,
    Event,
    Exited,
    Finished,
    GiveUp,
    Kill,
    Leaves,
    Left,
    RestartLater,
    RestartPolicy,
    Service,
    Start,
    StopAsked,
    Supervision,
    Terminate,
    Ticked,
    exit_cause,
)

KAFKA = Child(Service.KAFKA, 0)
FORMER = Child(Service.BATCH_FORMER, 0)
WORKER = Child(Service.GPU_WORKER, 0)
SECOND_WORKER = Child(Service.GPU_WORKER, 1)
INGRESS = Child(Service.INGRESS, 0)
ALL = (KAFKA, FORMER, WORKER, SECOND_WORKER, INGRESS)

POLICY = RestartPolicy(
    stable_us=100,
    delay_first_us=10,
    delay_max_us=35,
    fenced_us=50,
    hopeless_max=2,
    force_after_us=20,
    patience_us=(
        (Service.INGRESS, 60),
        (Service.BATCH_FORMER, 30),
        (Service.GPU_WORKER, 50),
        (Service.KAFKA, 40),
    ),
)


def begun(*children: Child) -> Supervision:
    supervision = Supervision(children or ALL, POLICY)
    supervision.begin(now_us=0)
    return supervision


def test_all_children_start_in_the_order_given() -> None:
    supervision = Supervision(ALL, POLICY)

    assert supervision.begin(now_us=0) == [Start(child, None) for child in ALL]
    assert supervision.wakeup_at_us() is None


def test_a_killed_child_is_started_at_once_and_the_operator_is_told() -> None:
    supervision = begun()

    decisions = supervision.handle(Exited(WORKER, -signal.SIGKILL), now_us=3)

    killed = -signal.SIGKILL
    assert decisions == [
        RestartLater(WORKER, killed, delay_us=0, failures=1),
        Start(WORKER, killed),
    ]


def test_who_leaves_is_replaced_at_once_and_its_end_changes_nothing() -> None:
    supervision = begun()

    assert supervision.handle(Leaves(INGRESS), now_us=3) == [Start(INGRESS, 0)]
    assert supervision.handle(Left(INGRESS), now_us=9) == []
    # Not a failure of the one that runs, or of the one before.
    killed = -signal.SIGKILL
    (waits, _) = supervision.handle(Exited(INGRESS, killed), now_us=10)
    assert waits == RestartLater(INGRESS, killed, delay_us=0, failures=1)


def test_a_stop_waits_for_those_who_leave() -> None:
    supervision = begun(INGRESS, WORKER)
    supervision.handle(Leaves(INGRESS), now_us=0)

    assert supervision.handle(StopAsked(), now_us=10) == [Terminate(INGRESS)]
    assert supervision.handle(Exited(INGRESS, 0), now_us=11) == []
    assert supervision.handle(Left(INGRESS), now_us=12) == [Terminate(WORKER)]


def test_who_leaves_during_a_stop_has_no_successor() -> None:
    supervision = begun(INGRESS, WORKER)
    supervision.handle(StopAsked(), now_us=10)

    assert supervision.handle(Leaves(INGRESS), now_us=11) == []
    assert supervision.handle(Ticked(), now_us=70) == [Kill(INGRESS)]
    assert supervision.handle(Left(INGRESS), now_us=71) == [Terminate(WORKER)]


def test_a_child_that_fails_soon_waits_longer_each_time() -> None:
    supervision = begun()
    delays = []
    now_us = 0

    for _ in range(4):
        (waits,) = supervision.handle(Exited(FORMER, 1), now_us)
        assert isinstance(waits, RestartLater)
        delays.append((waits.failures, waits.delay_us))
        now_us += waits.delay_us
        assert supervision.wakeup_at_us() == now_us
        assert supervision.handle(Ticked(), now_us - 1) == []
        assert supervision.handle(Ticked(), now_us) == [Start(FORMER, 1)]

    assert delays == [(1, 10), (2, 20), (3, 35), (4, 35)]


def test_a_stable_life_makes_earlier_failures_forgotten() -> None:
    supervision = begun()
    supervision.handle(Exited(FORMER, 1), now_us=0)
    supervision.handle(Ticked(), now_us=10)
    supervision.handle(Exited(FORMER, 1), now_us=11)
    supervision.handle(Ticked(), now_us=31)

    decisions = supervision.handle(Exited(FORMER, 1), now_us=131)

    assert decisions == [RestartLater(FORMER, 1, delay_us=10, failures=1)]


def test_a_fenced_child_waits_until_its_twins_session_has_passed() -> None:
    supervision = begun()

    decisions = supervision.handle(Exited(FORMER, 76, jitter_us=7), now_us=200)

    assert decisions == [RestartLater(FORMER, 76, delay_us=57, failures=0)]
    assert supervision.handle(Ticked(), now_us=256) == []
    assert supervision.handle(Ticked(), now_us=257) == [Start(FORMER, 76)]


def test_a_first_start_that_is_hopeless_ends_everything() -> None:
    supervision = begun(FORMER, WORKER)

    assert supervision.handle(Exited(WORKER, 78), now_us=99) == [
        GiveUp(WORKER),
        Terminate(FORMER),
    ]
    assert supervision.handle(Exited(FORMER, 0), now_us=99) == [Finished()]


def test_a_first_start_is_hopeless_also_when_it_took_long() -> None:
    supervision = begun(WORKER)

    assert supervision.handle(Exited(WORKER, 78), now_us=10_000) == [
        GiveUp(WORKER),
        Finished(),
    ]


def refused_over_and_over(supervision: Supervision, child: Child) -> list[Decision]:
    """What follows when restarts of ``child`` end with 78 as often as may be."""
    supervision.handle(Exited(child, -9), now_us=50)
    assert supervision.handle(Exited(child, 78), now_us=51) == [
        RestartLater(child, 78, delay_us=20, failures=2)
    ]
    supervision.handle(Ticked(), now_us=71)
    assert supervision.handle(Exited(child, 78), now_us=72) == [
        RestartLater(child, 78, delay_us=35, failures=3)
    ]
    supervision.handle(Ticked(), now_us=107)
    return supervision.handle(Exited(child, 78), now_us=108)


def test_restarts_that_are_hopeless_are_the_last_ones_where_others_go_on() -> None:
    supervision = begun(FORMER, WORKER, SECOND_WORKER)

    assert refused_over_and_over(supervision, WORKER) == [Abandon(WORKER)]
    assert supervision.wakeup_at_us() is None
    assert supervision.handle(Ticked(), now_us=9_999) == []
    assert supervision.handle(Exited(FORMER, -9), now_us=10_000) == [
        RestartLater(FORMER, -9, delay_us=0, failures=1),
        Start(FORMER, -9),
    ]


def test_restarts_that_are_hopeless_end_everything_where_no_other_does_the_work() -> (
    None
):
    supervision = begun(FORMER, WORKER)

    assert refused_over_and_over(supervision, WORKER) == [
        GiveUp(WORKER),
        Terminate(FORMER),
    ]


def test_a_child_that_is_killed_over_and_over_waits_too() -> None:
    supervision = begun(WORKER)

    at_once = [
        RestartLater(WORKER, -9, delay_us=0, failures=1),
        Start(WORKER, -9),
    ]
    assert supervision.handle(Exited(WORKER, -9), now_us=1) == at_once
    assert supervision.handle(Exited(WORKER, -9), now_us=2) == [
        RestartLater(WORKER, -9, delay_us=20, failures=2)
    ]
    supervision.handle(Ticked(), now_us=22)
    assert supervision.handle(Exited(WORKER, -9), now_us=122) == at_once


def test_a_stop_ends_stage_after_stage() -> None:
    supervision = begun()

    assert supervision.handle(StopAsked(), now_us=0) == [Terminate(INGRESS)]
    assert supervision.handle(Exited(INGRESS, 0), now_us=5) == [Terminate(FORMER)]
    assert supervision.handle(Exited(FORMER, 0), now_us=9) == [
        Terminate(WORKER),
        Terminate(SECOND_WORKER),
    ]
    assert supervision.handle(Exited(SECOND_WORKER, 0), now_us=10) == []
    assert supervision.handle(Exited(WORKER, 0), now_us=12) == [Terminate(KAFKA)]
    assert supervision.handle(Exited(KAFKA, 0), now_us=13) == [Finished()]
    assert supervision.handle(Ticked(), now_us=14) == []


def test_who_does_not_end_in_time_is_killed_and_the_stop_goes_on() -> None:
    supervision = begun(FORMER, INGRESS)
    supervision.handle(StopAsked(), now_us=0)

    assert supervision.wakeup_at_us() == 60
    assert supervision.handle(Ticked(), now_us=59) == []
    assert supervision.handle(Ticked(), now_us=60) == [Kill(INGRESS)]
    assert supervision.handle(Ticked(), now_us=61) == []
    assert supervision.handle(Exited(INGRESS, -9), now_us=62) == [Terminate(FORMER)]


def test_a_later_signal_kills_everything_that_runs() -> None:
    supervision = begun(FORMER, WORKER, INGRESS)
    supervision.handle(StopAsked(), now_us=0)
    supervision.handle(Exited(INGRESS, 0), now_us=1)

    assert supervision.handle(StopAsked(), now_us=20) == [Kill(FORMER), Kill(WORKER)]
    assert supervision.handle(StopAsked(), now_us=20) == []
    assert supervision.handle(Exited(WORKER, -9), now_us=21) == []
    assert supervision.handle(Exited(FORMER, -9), now_us=21) == [Finished()]


def test_a_signal_that_comes_twice_at_once_drains_and_the_third_kills() -> None:
    supervision = begun(FORMER, INGRESS)

    assert supervision.handle(StopAsked(), now_us=0) == [Terminate(INGRESS)]
    assert supervision.handle(StopAsked(), now_us=19) == []
    assert supervision.handle(StopAsked(), now_us=19) == [Kill(FORMER), Kill(INGRESS)]


def test_a_child_that_waits_for_its_restart_is_not_started_by_a_stop() -> None:
    supervision = begun(FORMER, INGRESS)
    supervision.handle(Exited(FORMER, 1), now_us=0)
    supervision.handle(StopAsked(), now_us=1)

    assert supervision.handle(Exited(INGRESS, 0), now_us=100) == [Finished()]


def test_the_patience_of_a_stop_stays_below_the_promise() -> None:
    assert sum(patience for _, patience in RestartPolicy().patience_us) < 20_000_000


def test_exit_causes_are_those_that_a_join_carries() -> None:
    assert exit_cause(None) == ""
    assert exit_cause(76) == "exit:76"
    assert exit_cause(-11) == "signal:SIGSEGV"


class World:
    """Carries out what a supervision decides, and holds it to its promises."""

    def __init__(self) -> None:
        self.supervision = Supervision(ALL, POLICY)
        self.running: set[Child] = set()
        self.abandoned: set[Child] = set()
        self.finished = 0
        self.now_us = 0
        self._carry_out(self.supervision.begin(self.now_us))

    def ends(self, child: Child, status: int) -> None:
        if child in self.running:
            self.running.discard(child)
            self._tell(Exited(child, status, jitter_us=3))

    def waits(self, delay_us: int) -> None:
        self.now_us += delay_us
        self._tell(Ticked())

    def stop_is_asked(self) -> None:
        self._tell(StopAsked())

    def _tell(self, event: Event) -> None:
        self._carry_out(self.supervision.handle(event, self.now_us))

    def _carry_out(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Start(child):
                    assert child not in self.running | self.abandoned
                    assert not self.supervision.stopping
                    self.running.add(child)
                case RestartLater(child):
                    assert child not in self.running
                case Terminate(child) | Kill(child):
                    assert child in self.running
                case Abandon(child):
                    assert child not in self.running
                    self.abandoned.add(child)
                case GiveUp():
                    assert self.supervision.stopping
                case Finished():
                    assert not self.running
                    self.finished += 1


Step = Callable[[World], None]
_STEPS = st.one_of(
    st.builds(
        lambda child, status: lambda world: world.ends(child, status),
        st.sampled_from(ALL),
        st.sampled_from([0, 1, 76, 78, -9, -11]),
    ),
    st.builds(lambda delay: lambda world: world.waits(delay), st.integers(1, 70)),
    st.just(World.stop_is_asked),
)


@given(st.lists(_STEPS, max_size=40))
def test_whatever_happens_each_place_has_one_process_and_a_stop_ends(
    steps: list[Step],
) -> None:
    world = World()
    for step in steps:
        step(world)

    if not world.supervision.stopping:
        world.waits(60)
        assert world.running == set(ALL) - world.abandoned
        world.stop_is_asked()
    world.stop_is_asked()
    for child in ALL:
        world.ends(child, -9)
    assert world.finished == 1
