"""What is said of requests that cannot be in time."""

from __future__ import annotations

import pytest

from headrace.domain import Reason, Refuse
from headrace.scheduling import SchedulingSettings
from tests.scheduling.scenes import MS, Desk, a_request


@pytest.mark.parametrize(
    ("left_ms", "reason"),
    [(4, Reason.DEADLINE_UNATTAINABLE), (3, Reason.EXPIRED), (-1, Reason.EXPIRED)],
)
def test_a_refusal_that_comes_too_late_says_what_the_client_is_told(
    left_ms: int, reason: Reason
) -> None:
    """A run takes 2 ms, and any answer 3 ms."""
    settings = SchedulingSettings(control_hop_us=0, response_hop_us=3 * MS)
    desk = Desk(settings=settings)
    desk.arrive(a_request(limit_us=100 * MS))

    (refused,) = desk.tick((100 - left_ms) * MS)

    assert isinstance(refused, Refuse)
    assert refused.reason is reason
