"""Which recorded requests are meant."""

from __future__ import annotations

import pytest

from headrace.replay import RECORDED_FACTS, At, Bound, Condition, Selection
from tests.replay.builders import MS, a_record, labels, recorded


@pytest.mark.parametrize(
    ("since", "until", "chosen"),
    [
        (2 * MS, None, [2, 3, 4]),
        (0, 2 * MS, [0, 1]),
        (At(2, 1), At(2, 3), [1, 2]),
        (At(2, 3), 4 * MS, [3]),
        (1 * MS, At(2, 3), [1, 2]),
        (At(3, 0), None, []),
        (0, At(3, 9), []),
    ],
)
def test_bounds_are_instants_or_places(
    since: Bound, until: Bound | None, chosen: list[int]
) -> None:
    selection = Selection("digits", since, until)
    records = [a_record(offset, at_ms=offset) for offset in range(5)]

    assert [each.offset for each in records if selection.is_asked(each)] == chosen


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("status=ok", True),
        ("latency_ms<=12", True),
        ("latency_ms<12", False),
        ("version=1", True),
        ("rows=2", True),
        ("offset>=8", False),
        ("header.inf-shape~FP32", True),
        ("priority=bulk", False),
    ],
)
def test_conditions_are_on_how_it_was_asked_and_ended(
    text: str, *, holds: bool
) -> None:
    condition = Condition.parse(text, RECORDED_FACTS)
    selection = Selection("digits", 0, conditions=(condition,))

    assert selection.is_chosen(recorded(labels(3, 5))) is holds


def test_nothing_is_known_of_an_end_that_is_not_there() -> None:
    one = recorded(is_ended=False)

    for text, holds in (("status!=ok", True), ("latency_ms>0", False)):
        condition = Condition.parse(text, RECORDED_FACTS)
        assert Selection("digits", 0, conditions=(condition,)).is_chosen(one) is holds
