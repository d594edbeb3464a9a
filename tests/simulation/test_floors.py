"""I25, I27 and more: a part of ``python -m loadtest.floors``, in shorter runs."""

from __future__ import annotations

import pytest

from loadtest.floors import floors
from loadtest.pools import Floor

SECONDS = 3.0
LONG = (
    *("overload 2.0x", "roles of a and b switch, a5.2", "tenant b at a tenth of a, a5"),
    *(
        "the field at 1.5x, a5.2 M=20",
        "the field at 0.5x",
        "the field at 0.8x",
        "the field at 2.0x",
        "M=20 gamma:4",
    ),
    *("41 ms of 130", "62 ms of 200", "32.5 ms of 100", "one worker, 1.5x, M=20"),
    *("one worker at 0.7x", "one worker at 1.1x", "bulk beside 0.4x"),
)
"""Left to the longer runs: others show the same."""


def chosen() -> list[Floor]:
    return [floor for floor in floors() if not any(word in floor.name for word in LONG)]


@pytest.mark.parametrize("floor", chosen(), ids=lambda floor: floor.name)
def test_a_floor_holds(floor: Floor) -> None:
    assert floor.measure(SECONDS) >= floor.least
