"""When recorded requests are sent again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.replay.pace import Pace


def test_requests_are_as_far_apart_as_they_were_at_that_speed() -> None:
    pace = Pace(2.0)

    assert pace.early_us(1000, now_us=50) == 0
    pace.sent(1000, now_us=50)
    assert pace.early_us(1400, now_us=50) == 200
    pace.sent(1400, now_us=260)
    assert pace.early_us(1800, now_us=260) == 190
    assert pace.early_us(900, now_us=260) == 0


@given(st.lists(st.integers(0, 10**6), min_size=1), st.integers(0, 10**6))
def test_nobody_waits_where_no_speed_is_asked_for(times: list[int], now: int) -> None:
    pace = Pace(None)
    for each in times:
        assert pace.early_us(each, now) == 0
        pace.sent(each, now)
