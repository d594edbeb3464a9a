"""Which slots a worker takes for dead, whose versions it then takes back."""

from headrace.broker import Record
from headrace.wire import Heartbeat, Role, ServiceState, encode_json
from services.gpu_worker.status import SlotRoster

SECOND = 1_000_000
BEAT_US = 250_000
DEAD_US = 30 * SECOND


def heartbeat(slot: int, log_us: int) -> Record:
    beat = Heartbeat(Role.GPU_WORKER, slot, f"worker-{slot}", ServiceState.READY)
    return Record("headrace.status", 0, 0, log_us, None, encode_json(beat), [])


def hear(roster: SlotRoster, *slots: int, from_us: int, for_us: int) -> int:
    """Their heartbeats for so long; until when."""
    for at_us in range(from_us, from_us + for_us, BEAT_US):
        roster.take([heartbeat(slot, at_us) for slot in slots])
    return from_us + for_us


def test_a_slot_that_was_silent_for_long_while_others_were_heard_is_dead() -> None:
    roster = SlotRoster(DEAD_US)
    now_us = hear(roster, 0, 1, from_us=SECOND, for_us=SECOND)
    now_us = hear(roster, 0, from_us=now_us, for_us=DEAD_US - BEAT_US)
    assert not roster.is_dead(1)

    hear(roster, 0, from_us=now_us, for_us=SECOND)

    assert roster.is_dead(1)
    assert not roster.is_dead(0)


def test_who_is_heard_first_after_the_log_was_away_buries_nobody() -> None:
    roster = SlotRoster(DEAD_US)
    now_us = hear(roster, 0, 1, from_us=SECOND, for_us=SECOND)

    hear(roster, 0, from_us=now_us + 2 * DEAD_US, for_us=SECOND)

    assert not roster.is_dead(1)
