from headrace.lifecycle import Health, Pulse, Watchdog
from headrace.testing import ManualClock
from headrace.wire import ServiceState

SECOND = 1_000_000


def test_a_process_is_ready_when_nothing_is_awaited() -> None:
    health = Health(Pulse(ManualClock()), {"kafka": "no fetch yet", "models": "none"})
    assert health.state is ServiceState.STARTING
    assert health.why_not_ready() == "no fetch yet; none"

    health.met("kafka")
    health.met("kafka")
    assert health.why_not_ready() == "none"
    health.met("models")
    assert (health.state, health.why_not_ready()) == (ServiceState.READY, None)


def test_what_was_there_can_be_missing_again() -> None:
    health = Health(Pulse(ManualClock()), {})
    health.await_("kafka", "the log does not answer")
    assert health.why_not_ready() == "the log does not answer"
    health.met("kafka")
    assert health.why_not_ready() is None


def test_a_draining_process_is_alive_and_not_ready() -> None:
    health = Health(Pulse(ManualClock()), {"kafka": "no fetch yet"})
    health.drain()
    assert health.state is ServiceState.DRAINING
    assert health.why_not_ready() == "draining"
    assert health.why_not_alive() is None


def test_a_loop_that_stands_still_is_neither_alive_nor_ready() -> None:
    clock = ManualClock()
    pulse = Pulse(clock)
    health = Health(pulse, {})
    clock.advance(2 * SECOND)
    assert health.why_not_alive() is None
    clock.advance(1)
    sentence = "the main loop has not turned for 2.0 s"
    assert (health.why_not_alive(), health.why_not_ready()) == (sentence, sentence)
    pulse.beat()
    assert health.why_not_alive() is None


class Watched:
    """A watchdog that looks when the test says so."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.pulse = Pulse(self.clock)
        self.ended = 0
        self.dog = Watchdog(self.pulse, self.clock, self.end)

    def end(self) -> None:
        self.ended += 1

    def look(self, times: int, *, every_us: int = SECOND // 4) -> None:
        for _ in range(times):
            self.clock.advance(every_us)
            self.dog.look()


def test_a_turning_loop_is_left_alone() -> None:
    watched = Watched()
    for _ in range(20):
        watched.look(7)
        watched.pulse.beat()
    assert watched.ended == 0


def test_a_loop_that_hangs_for_two_seconds_ends_the_process() -> None:
    watched = Watched()
    watched.look(8)
    assert watched.ended == 0
    watched.look(1)
    assert watched.ended == 1


def test_time_in_which_the_process_was_stopped_does_not_count() -> None:
    watched = Watched()
    watched.look(1, every_us=3600 * SECOND)
    assert watched.ended == 0
    # The hour counted as half a second at most.
    watched.look(6)
    assert watched.ended == 0
    watched.look(1)
    assert watched.ended == 1


def test_a_wait_with_a_limit_of_its_own_is_excused() -> None:
    watched = Watched()
    with watched.dog.excused():
        watched.look(100)
    watched.look(9)
    assert watched.ended == 0
    watched.look(1)
    assert watched.ended == 1
