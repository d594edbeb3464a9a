from __future__ import annotations

import pytest

from services.ingress.later import read_wait_s
from services.ingress.refusal import Refusal


@pytest.mark.parametrize(
    ("given", "wait_s"),
    [("0", 0), ("007", 7), ("59", 59), ("61", 60), ("99999999", 60), ("9" * 5000, 60)],
)
def test_a_wait_is_cut_to_the_longest(given: str, wait_s: int) -> None:
    assert read_wait_s(given, 60) == wait_s


@pytest.mark.parametrize("given", ["", "x", "-1", "1.5", "1e3"])
def test_a_wait_that_is_no_number_of_seconds_is_refused(given: str) -> None:
    refused = read_wait_s(given, 60)
    assert isinstance(refused, Refusal)
    assert "wait must be a whole number of seconds" in refused.text
