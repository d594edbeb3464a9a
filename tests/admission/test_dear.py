"""A version whose time limit holds few batches, beside far cheaper ones."""

from __future__ import annotations

import msgspec

from headrace.admission import AdmissionSettings, Admitted, Denied, Door
from headrace.domain import Load, Price, Priority, Reason
from tests.admission.scenes import MS, PRICE, a_load

DEAR = Price(
    model="dear",
    version="1",
    row_us=5 * MS,
    batch_us=80 * MS,
    one_us=16 * MS,
    is_dear=True,
)


def told(waiting_ms: int) -> Load:
    load = a_load(slots=1, standard=waiting_ms)
    return msgspec.structs.replace(load, prices=[PRICE, DEAR])


def verdict(
    door: Door, price: Price, waiting_ms: int, now_us: int
) -> Admitted | Denied:
    door.heard(0, told(waiting_ms), request_us=MS, rest_us=MS, now_us=now_us)
    return door.decide(
        (0,),
        price,
        Priority.STANDARD,
        tenant="default",
        limit_us=100 * MS,
        in_flight=0,
        now_us=now_us,
    )


def test_it_may_choose_until_a_cheaper_one_is_refused() -> None:
    door = Door(AdmissionSettings())
    assert verdict(door, DEAR, 300, 0) == Admitted(0)

    assert isinstance(verdict(door, PRICE, 300, MS), Denied)

    assert verdict(door, DEAR, 300, 2 * MS) == Denied(
        Reason.OVERLOADED,
        "300 ms of work are ahead and a run takes 16 ms: 316 ms, more than 0.36 "
        "(fill * dear_part) of the time limit of 100 ms",
        280 * MS,
    )
    assert verdict(door, DEAR, 20, 3 * MS) == Admitted(0)


def test_its_own_refusals_give_it_no_less_room() -> None:
    door = Door(AdmissionSettings())
    assert isinstance(verdict(door, DEAR, 500, 0), Denied)

    assert verdict(door, DEAR, 300, MS) == Admitted(0)


def test_two_seconds_after_the_last_such_refusal_it_may_choose_again() -> None:
    door = Door(AdmissionSettings())
    verdict(door, PRICE, 300, 0)

    assert isinstance(verdict(door, DEAR, 300, 1_999 * MS), Denied)
    assert verdict(door, DEAR, 300, 2_000 * MS) == Admitted(0)
