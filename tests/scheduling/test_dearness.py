"""Which versions leave room for cheaper ones on the same workers."""

from __future__ import annotations

from headrace.scheduling.dearness import Asked, dear
from headrace.scheduling.fairness import Used

CHEAP, DEAR = ("cheap", "1"), ("dear", "1")
BOTH = frozenset({0, 1})


def used(*, dear_us: float, cheap_us: float) -> Used[tuple[str, str]]:
    found = Used[tuple[str, str]]()
    found.add(DEAR, dear_us, 0)
    found.add(CHEAP, cheap_us, 0)
    return found


SERVED = used(dear_us=500, cheap_us=500)


def test_a_version_is_dear_beside_one_at_less_than_half_its_price() -> None:
    asked = [Asked(CHEAP, 400, BOTH), Asked(DEAR, 801, frozenset({1, 2}))]

    assert dear(asked, SERVED) == {DEAR}
    assert dear([Asked(CHEAP, 400, BOTH), Asked(DEAR, 800, BOTH)], SERVED) == set()


def test_workers_of_its_own_make_no_version_dear() -> None:
    asked = [Asked(CHEAP, 400, BOTH), Asked(DEAR, 5_000, frozenset({2}))]

    assert dear(asked, SERVED) == set()


def test_a_version_that_is_hardly_served_is_not_dear() -> None:
    asked = [Asked(CHEAP, 400, BOTH), Asked(DEAR, 5_000, BOTH)]

    assert dear(asked, used(dear_us=99, cheap_us=901)) == set()
    assert dear(asked, used(dear_us=100, cheap_us=900)) == {DEAR}


def test_what_was_used_is_forgotten_by_halves() -> None:
    found = used(dear_us=800, cheap_us=200)

    found.add(CHEAP, 200, 500_000)

    assert found.part(DEAR) == 200 / (200 + 50 + 200)
    assert Used[str]().part("none") == 0
