"""Devices on which some sizes cost less a row than the next larger ones."""

from __future__ import annotations

import pytest

from headrace.domain import Dispatch
from tests.scheduling.scenes import MS, Desk, a_request, a_version

RUNS = tuple((rows, us) for rows, us in ((4, 10 * MS), (8, 30 * MS)) for _ in range(5))
"""Four rows take 10 ms, and five to eight much more."""


@pytest.mark.parametrize(("now_us", "rows"), [(0, 4), (36 * MS, 5)])
def test_a_batch_stops_at_a_cheaper_size_unless_the_rest_cannot_wait(
    now_us: int, rows: int
) -> None:
    desk = Desk(a_version(max_batch=8, recent_runs={"x:FP32:1": RUNS}))
    desk.arrive(*(a_request(limit_us=60 * MS) for _ in range(5)))

    (sent,) = desk.tick(now_us)

    assert isinstance(sent, Dispatch)
    assert len(sent.requests) == rows


def test_a_group_is_tried_in_one_run_whatever_its_size_costs() -> None:
    desk = Desk(a_version(max_batch=8, recent_runs={"x:FP32:1": RUNS}))
    desk.arrive(*(a_request(limit_us=60 * MS, group="g") for _ in range(5)))

    (sent,) = desk.tick(0)

    assert isinstance(sent, Dispatch)
    assert len(sent.requests) == 5
