"""What a batch is called by."""

from __future__ import annotations

from itertools import islice

from services.batch_former.ids import batch_ids
from services.ctl.following import AN_ID, TIME_ORDERED


def test_no_batch_is_taken_for_a_request() -> None:
    for _ in range(200):
        first, second = islice(batch_ids(), 2)

        assert AN_ID.fullmatch(first)
        assert AN_ID.fullmatch(second)
        assert first != second
        assert TIME_ORDERED not in {first[12], second[12]}
