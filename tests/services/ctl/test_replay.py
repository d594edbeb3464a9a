"""What `headrace replay` makes of its options, before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.replay import At
from services.ctl.choosing import Choice
from services.ctl.errors import UsageError
from services.ctl.replay import Manner, Outcome, replay
from services.ctl.replay import _bound as bound
from services.ctl.replay import _selection as selection
from services.ctl.replay import _speed as speed

NOW_US = 1_700_000_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-1h", NOW_US - 3_600_000_000),
        ("2/77", At(2, 77)),
        ("headrace.requests.digits/2/77", At(2, 77)),
    ],
)
def test_a_bound_is_an_instant_or_a_place(text: str, expected: object) -> None:
    assert bound(text, NOW_US, "digits", "--from") == expected


def test_a_rate_is_a_speed() -> None:
    rates = ("max", "original", "2x", "0.5x")
    assert [speed(each) for each in rates] == [None, 1.0, 2.0, 0.5]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"from_": "-1h", "to": "-2h"}, "--to -2h is not after --from -1h"),
        ({"from_": "2/9", "to": "2/9"}, "--to 2/9 is not after --from 2/9"),
        ({"from_": "2/9", "to": "3/10"}, "different partitions"),
        ({"from_": "soon"}, "--from soon is no instant"),
        ({"from_": "headrace.requests.x/2/9"}, "is no place of requests to digits"),
        ({"from_": "-1h", "manner": Manner(rate="fast")}, "--rate fast is none"),
        ({"from_": "-1h", "manner": Manner(rate="0x")}, "--rate 0x is none"),
        ({"from_": "-1h", "outcome": Outcome(page=Path("a.html"))}, "add --diff"),
        (
            {"from_": "-1h", "outcome": Outcome(diff=True, page=Path("a.txt"))},
            ".html or .png",
        ),
        (
            {"from_": "-1h", "outcome": Outcome(export=Path("a.csv"))},
            "must end with .parquet",
        ),
        (
            {"from_": "-1h", "outcome": Outcome(export=Path("no/a.parquet"))},
            "no does not exist",
        ),
        ({"from_": "-1h", "choice": Choice(where=["x=1"])}, "there is no 'x'"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        replay(model="digits", **options)  # type: ignore[arg-type] - of several types
    assert said in str(refused.value)


def test_tenant_and_priority_are_conditions_beside_the_others() -> None:
    choice = Choice(tenant="acme", priority="bulk", where=["rows>=2"])

    found = selection("digits", "-1h", "now", choice)

    assert [(each.name, each.op, each.value) for each in found.conditions] == [
        ("rows", ">=", "2"),
        ("tenant", "=", "acme"),
        ("priority", "=", "bulk"),
    ]
