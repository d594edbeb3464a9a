"""The loop's own rules: gaps, drains, and what belongs to an earlier ownership."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import pytest

from headrace.broker import Admin
from headrace.delivery import Lane, LogClock
from headrace.delivery.decisions import Decision, DropLane, ReadToEnds
from headrace.delivery.events import (
    Assigned,
    ClaimWritten,
    CommitEnded,
    CommitOutcome,
    DrainRequested,
    Event,
    GapNoticed,
    Lost,
    Ticked,
    WriteEnded,
)
from headrace.domain import HopsMeasured, Load
from headrace.lifecycle import DrainFlag, Heartbeat, Pulse
from headrace.scheduling import BatchFormer, SchedulingSettings
from headrace.testing import ManualClock
from headrace.wire import Topics
from services.batch_former.acting import Acting
from services.batch_former.answered import AnsweredKeys
from services.batch_former.consuming import Consuming
from services.batch_former.inbox import Inbox
from services.batch_former.intake import Intake
from services.batch_former.lanes import Lanes, OwnedLane
from services.batch_former.linking import Linking
from services.batch_former.loop import (
    FENCED_MAX,
    FENCED_WITHIN_US,
    GAP_US,
    Fenced,
    Loop,
)
from services.batch_former.measuring import Measuring
from services.batch_former.messages import (
    Asked,
    Ended,
    EndsFound,
    LanesAssigned,
    LanesLost,
    LanesRevoked,
    MemberFenced,
    Message,
    ThreadFailed,
    WritesEnded,
)
from services.batch_former.ownership import Ownership
from services.batch_former.published import Published
from services.batch_former.writing import CLAIM, Writing

TOPICS = Topics("p")
MS = 1_000


class Core:
    """In place of a lane's decisions: always due, and told to decide by the test."""

    def __init__(self) -> None:
        self.told: list[Event] = []
        self.answers: dict[type[Event], list[Decision]] = {}

    def handle_all(self, events: Iterable[Event], now_us: int) -> list[Decision]:
        return [each for event in events for each in self.handle(event, now_us)]

    def handle(self, event: Event, now_us: int) -> list[Decision]:
        del now_us
        self.told.append(event)
        return self.answers.get(type(event), [])

    def wakeup_at_us(self) -> int:
        return 0


class Surroundings:
    """In place of the threads, of heartbeats and of what is read."""

    def __init__(self) -> None:
        self.owned: frozenset[int] = frozenset()
        self.asked_ends: list[int] = []
        self.let_go_of: list[int] = []
        self.status_at = 0
        self.loads: list[Load] = []
        self.is_draining = False
        self.has_twin = False
        self.joined = 0
        self.hastened = 0

    def lead(self) -> bool:
        self.joined += 1
        return True

    def find_ends(self, lane: int, *_: object) -> None:
        self.asked_ends.append(lane)

    def let_go(self, lane: int) -> None:
        self.let_go_of.append(lane)

    def introduce(self, owned: OwnedLane, now_us: int) -> None: ...

    def drop(self, owned: OwnedLane) -> None: ...

    def cool(self, now_us: int) -> None: ...

    def take_early(self, now_us: int) -> None: ...

    def measure(
        self, lanes: Lanes, busy_us: int, now_us: int
    ) -> Sequence[tuple[OwnedLane, HopsMeasured]]:
        del lanes, busy_us, now_us
        return ()

    def refresh(self, lanes: Lanes, now_us: int) -> None: ...

    def committed(self, outcome: CommitOutcome) -> None: ...

    def hasten(self) -> None:
        self.hastened += 1

    def release(self) -> None: ...

    def drain(self) -> None:
        self.is_draining = True


class Script(Inbox[Message]):
    """Messages turn by turn, each after so much time; then SIGTERM."""

    def __init__(self, clock: ManualClock, drain: DrainFlag) -> None:
        super().__init__()
        self._clock = clock
        self._drain = drain
        self._turns: list[tuple[int, Sequence[Message]]] = []

    def then(self, after_us: int, *messages: Message) -> None:
        self._turns.append((after_us, messages))

    def take(self, timeout_s: float) -> list[Message]:
        del timeout_s
        if not self._turns:
            self._drain.set()
            self._clock.advance(GAP_US // 2)
            return []
        after_us, messages = self._turns.pop(0)
        self._clock.advance(after_us)
        return list(messages)


class World:
    """A loop whose lanes are of our making."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_000_000)
        self.drain = DrainFlag()
        self.script = Script(self.clock, self.drain)
        self.around = Surroundings()
        self.lanes = Lanes()
        self.cores: list[Core] = []
        self.acting = Acting(
            TOPICS,
            self.lanes,
            requests=(),
            completions=cast(Consuming, None),
            ownership=cast(Ownership, self.around),
            writing=cast(Writing, self.around),
            measuring=cast(Measuring, None),
            admin=cast(Admin, None),
            keys=cast(AnsweredKeys, None),
            linking=cast(Linking, self.around),
        )
        self.answers: dict[type[Event], list[Decision]] = {
            Lost: [DropLane(0)],
            DrainRequested: [DropLane(0)],
        }

    def run(self) -> list[list[Event]]:
        """Until drained; what each lane was told, in the order of their taking."""
        loop = Loop(
            self.script,
            self.lanes,
            cast(Intake, self.around),
            self.acting,
            cast(Ownership, self.around),
            cast(Published, self.around),
            new_lane=self._new_lane,
            lead=self.around.lead,
            heartbeat=cast(Heartbeat, self.around),
            log_clock=LogClock(),
            pulse=Pulse(self.clock),
            clock=self.clock,
        )
        loop.run(self.drain)
        return [core.told for core in self.cores]

    def _new_lane(self, lane: int, term: int) -> OwnedLane:
        core = Core()
        core.answers = self.answers
        self.cores.append(core)
        scheduler = BatchFormer(SchedulingSettings(), batch_ids=iter(()))
        return OwnedLane(lane, term, cast(Lane, core), scheduler, taken_us=0)


def runs(events: Iterable[Event]) -> list[Event]:
    """The events, equal neighbours as one."""
    found: list[Event] = []
    for event in events:
        if not found or event != found[-1]:
            found.append(event)
    return found


def test_after_a_gap_no_time_passes_until_the_log_is_read() -> None:
    world = World()
    world.answers[GapNoticed] = [ReadToEnds(0)]
    world.script.then(0, LanesAssigned((0,)))
    world.script.then(GAP_US + 101 * MS)
    world.script.then(MS)
    world.script.then(MS, EndsFound(0, 1, completions_end=0, status_end=0))
    world.script.then(MS)

    (told,) = world.run()

    gap = told.index(GapNoticed())
    assert world.around.asked_ends == [0]
    assert runs(told[:gap]) == [Assigned(), Ticked()]
    assert told[gap : gap + 2] == [GapNoticed(), Ticked()]
    # Of the turns after the gap's the first two passed without a tick.
    assert told[gap + 1 :].count(Ticked()) == 2


def test_a_short_pause_is_no_gap() -> None:
    world = World()
    world.script.then(0, LanesAssigned((0,)))
    world.script.then(GAP_US)

    (told,) = world.run()

    assert GapNoticed() not in told


def test_answers_to_an_earlier_ownership_are_nobodys() -> None:
    world = World()
    world.script.then(0, LanesAssigned((0,)))
    world.script.then(MS, LanesLost((0,)), LanesAssigned((0,)))
    world.script.then(
        MS,
        WritesEnded([Ended(0, 1, CLAIM, 5), Ended(0, 2, CLAIM, 6), Ended(0, 1, 3, 7)]),
        Asked(0, 1, CommitEnded(4, CommitOutcome.ACCEPTED)),
        Asked(0, 2, CommitEnded(4, CommitOutcome.TRANSIENT)),
        WritesEnded([Ended(0, 2, 3, None)]),
    )

    first, second = world.run()

    assert runs(first) == [Assigned(), Ticked(), Lost()]
    answers = [e for e in second if not isinstance(e, Ticked | Assigned)]
    assert answers == [
        ClaimWritten(6),
        CommitEnded(4, CommitOutcome.TRANSIENT),
        WriteEnded(3, None),
        DrainRequested(),
    ]
    assert world.around.let_go_of == [0, 0]


def test_a_lane_that_was_dropped_and_is_still_ours_is_taken_anew() -> None:
    world = World()
    world.around.owned = frozenset({0})
    world.script.then(0, LanesAssigned((0,)))
    world.answers[CommitEnded] = [DropLane(0)]
    world.script.then(MS, Asked(0, 1, CommitEnded(1, CommitOutcome.NOT_MEMBER)))
    for _ in range(10):
        world.script.then(100 * MS)

    told = world.run()

    assert [events[0] for events in told] == [Assigned(), Assigned()]


@pytest.mark.parametrize(
    ("free_us", "told"),
    [(11_000, 66), (9_000, 20), (0, 0)],
    ids=("wait", "run", "idle"),
)
def test_ingresses_are_told_more_often_where_requests_wait_for_the_device(
    free_us: int, told: int
) -> None:
    world = World()
    world.around.loads = [Load(slots=1, free_us=[free_us])]
    world.script.then(0, LanesAssigned((0,)))
    for _ in range(1000):
        world.script.then(MS)

    world.run()

    # It also says that it drains.
    assert 0 <= world.around.hastened - told <= 3


def test_a_drain_ends_when_its_time_is_over() -> None:
    world = World()
    world.answers = {}
    world.script.then(0, LanesAssigned((0,)))

    (told,) = world.run()

    assert told.count(DrainRequested()) == 1
    assert world.around.is_draining
    assert list(world.lanes.owned) == [0]


def test_a_fenced_member_that_has_no_twin_joins_anew_once_it_knows() -> None:
    for status_at, joined in ((6, 1), (7, 2)):
        world = World()
        world.around.status_at = status_at
        world.script.then(0)
        world.script.then(MS, MemberFenced(status_end=7))
        world.run()
        assert world.around.joined == joined


def test_a_fenced_member_with_a_twin_ends() -> None:
    world = World()
    world.around.status_at = 7
    world.around.has_twin = True
    world.script.then(0, MemberFenced(status_end=7))

    with pytest.raises(Fenced):
        world.run()


def test_a_member_that_is_fenced_over_and_over_ends() -> None:
    world = World()
    for _ in range(FENCED_MAX):
        world.script.then(FENCED_WITHIN_US // FENCED_MAX, MemberFenced(0))
    world.run()

    world = World()
    for _ in range(FENCED_MAX + 1):
        world.script.then(MS, MemberFenced(0))
    with pytest.raises(Fenced):
        world.run()


def test_a_thread_that_failed_ends_the_loop_with_its_error() -> None:
    world = World()
    world.script.then(0, ThreadFailed("bulk", ZeroDivisionError("so it was")))

    with pytest.raises(ZeroDivisionError, match="so it was"):
        world.run()


def test_a_lane_that_nobody_holds_is_let_go_at_once() -> None:
    world = World()
    world.script.then(0, LanesRevoked((3,)))

    assert world.run() == []
    assert world.around.let_go_of == [3]
