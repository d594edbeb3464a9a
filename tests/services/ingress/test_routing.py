"""Which lane takes a request (D3): silence is measured in the log."""

from collections.abc import Collection

from headrace.delivery import Roster
from services.ingress.routing import LaneRouter

SECOND_US = 1_000_000
LONG_US = 5 * SECOND_US
ALL = range(8)


class Log:
    """A router, and formers that write heartbeats to its status topic."""

    def __init__(self) -> None:
        self.roster: Roster[str] = Roster()
        self.router = LaneRouter(self.roster)

    def heard(
        self, former: str, lanes: dict[int, int], log_us: int, *, draining: bool = False
    ) -> None:
        self.roster.heard(former, log_us)
        self.router.own(former, lanes, draining=draining)
        self.router.refresh()

    def advance(self, log_us: int) -> None:
        self.roster.advance(log_us)
        self.router.refresh()

    def chosen(self, limit_us: int = LONG_US) -> set[int | None]:
        return {first(self.router, limit_us, ALL) for _ in range(6)}


def first(router: LaneRouter, limit_us: int, serving: Collection[int]) -> int | None:
    """The lane that a request is offered to first; None: there is none."""
    return next(iter(router.candidates(limit_us, frozenset(serving))), None)


def test_lanes_take_turns() -> None:
    log = Log()
    log.heard("a", {0: 1, 1: 1}, 0)
    log.heard("b", {2: 1}, 0)
    chosen = [first(log.router, LONG_US, ALL) for _ in range(6)]
    assert sorted(lane for lane in chosen if lane is not None) == [0, 0, 1, 1, 2, 2]


def test_only_lanes_that_serve_the_model_are_chosen() -> None:
    log = Log()
    log.heard("a", {0: 1, 1: 1}, 0)
    assert {first(log.router, LONG_US, {1}) for _ in range(4)} == {1}
    assert first(log.router, LONG_US, {5}) is None


def test_a_silent_lane_is_left_when_another_is_heard() -> None:
    log = Log()
    log.heard("a", {0: 1}, 0)
    log.heard("b", {1: 1}, SECOND_US - 1)
    assert log.chosen() == {0, 1}
    log.heard("b", {1: 1}, SECOND_US)
    assert log.chosen() == {1}


def test_only_patient_requests_wait_for_a_former_that_restarts() -> None:
    log = Log()
    log.heard("a", {0: 1}, 0, draining=True)
    assert log.chosen(3 * SECOND_US) == {None}
    assert log.chosen(3 * SECOND_US + 1) == {0}
    log.advance(3 * SECOND_US - 1)
    assert log.chosen() == {0}
    log.advance(3 * SECOND_US)
    assert log.chosen() == {None}


def test_a_stopped_broker_makes_nobody_silent() -> None:
    log = Log()
    log.heard("a", {0: 1}, 0)
    # Nothing is read from the log, however long that takes.
    assert log.chosen(SECOND_US) == {0}


def test_an_old_owner_does_not_take_its_lane_back() -> None:
    log = Log()
    log.heard("old", {0: 7}, 0)
    log.heard("new", {0: 9}, 10)
    log.heard("old", {0: 7}, 20, draining=True)
    assert log.chosen(SECOND_US) == {0}
    log.heard("old", {}, 30)
    assert log.chosen(SECOND_US) == {0}


def test_a_lane_that_its_owner_gave_up_is_for_the_patient_until_another_has_it() -> (
    None
):
    log = Log()
    log.heard("a", {0: 1, 1: 1}, 0)
    log.heard("a", {1: 1}, 10)
    assert log.chosen() == {1}
    assert log.router.lanes_patient == (0, 1)

    log.heard("b", {0: 2}, 20)
    assert log.chosen(SECOND_US) == {0, 1}


def test_a_lane_that_nobody_takes_over_is_nobodys() -> None:
    log = Log()
    log.heard("a", {0: 1, 1: 1}, 0)
    log.heard("a", {1: 1}, 10)
    log.heard("a", {1: 1}, 9 + 3 * SECOND_US)
    assert log.router.lanes_patient == (0, 1)
    log.heard("a", {1: 1}, 10 + 3 * SECOND_US)
    assert log.router.lanes_patient == (1,)


def test_a_former_that_leaves_keeps_its_lanes_for_the_patient() -> None:
    log = Log()
    log.heard("a", {0: 1}, 0)
    log.heard("a", {}, 10, draining=True)
    assert (log.chosen(SECOND_US), log.chosen(LONG_US)) == ({None}, {0})


def test_a_silent_owner_loses_its_lane_to_the_best_former_that_is_heard() -> None:
    log = Log()
    log.heard("a", {0: 5}, 0)
    log.heard("forged", {0: 10**9}, 10)
    log.heard("a", {0: 5}, 2 * SECOND_US)
    assert log.chosen(SECOND_US) == {None}

    log.heard("b", {0: 4}, 4 * SECOND_US)
    assert log.chosen(SECOND_US) == {0}
    log.heard("a", {0: 5}, 4 * SECOND_US)
    log.heard("b", {}, 4 * SECOND_US)

    assert log.chosen(SECOND_US) == {0}
    log.heard("a", {}, 4 * SECOND_US)
    assert log.chosen(SECOND_US) == {None}
