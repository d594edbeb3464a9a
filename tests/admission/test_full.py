"""Who would find his queue full at the former."""

from __future__ import annotations

import msgspec

from headrace.admission import Admitted, Denied
from headrace.domain import Load, Priority, Reason
from tests.admission.scenes import MS, PRICE, a_door, a_load, admit, ask


def a_full_load(left: int) -> Load:
    price = msgspec.structs.replace(PRICE, room={"a": left})
    return msgspec.structs.replace(a_load(standard=30), prices=[price])


def test_as_many_are_let_in_as_may_still_wait() -> None:
    door = a_door(a_full_load(2))
    for _ in range(2):
        assert ask(door, tenant="a") == Admitted(0)
        admit(door, rows=1, tenant="a")

    refused = ask(door, tenant="a")

    # 30 ms of work were there, and 1 ms came.
    assert isinstance(refused, Denied)
    assert (refused.reason, refused.retry_after_us) == (Reason.QUEUE_FULL, 31 * MS)
    assert ask(door, tenant="b") == Admitted(0)
    assert ask(door, tenant="a", priority=Priority.BULK) == Admitted(0)


def test_other_ingresses_let_in_as_many() -> None:
    door = a_door(a_full_load(2))
    door.ingresses = 2
    admit(door, rows=1, tenant="a")

    assert isinstance(ask(door, tenant="a"), Denied)


def test_a_lane_with_room_takes_who_finds_another_one_full() -> None:
    door = a_door(a_full_load(0), a_load(standard=40))

    assert ask(door, 0, 1, tenant="a") == Admitted(1)
