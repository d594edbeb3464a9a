from __future__ import annotations

import pytest

from headrace.jobs.forgetting import forgettable
from headrace.registry import JobTable
from headrace.wire.jobs import JobCancel, JobState
from services.ingress.batches.expiry import ExpiresAfter, expires_s, given_in
from services.ingress.batches.objects import ApiError
from services.ingress.batches.tidying import in_use
from tests.services.ingress.batches.jobs import (
    SECOND_US,
    TENANT,
    a_progress,
    a_spec,
    put,
)

FORM = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}


def test_a_form_says_how_long_its_file_is_kept() -> None:
    assert given_in({}) is None
    assert expires_s(given_in(FORM), 99, "p") == 3600
    assert expires_s(None, 99, "p") == 99
    assert expires_s(None, None, "p") is None


@pytest.mark.parametrize("seconds", ["", "x", "-1", "3599", "2592001", "9" * 20])
def test_how_long_must_be_a_number_of_seconds(seconds: str) -> None:
    asked = given_in({**FORM, "expires_after[seconds]": seconds})
    with pytest.raises(ApiError, match="seconds must be from 3600 to 2592000") as told:
        expires_s(asked, None, "expires_after")
    assert told.value.param == "expires_after"


def test_a_file_lives_from_its_making_alone() -> None:
    with pytest.raises(ApiError, match="the anchor must be created_at, got 'now'"):
        expires_s(ExpiresAfter("now", 3600), None, "p")


def test_a_batch_keeps_its_file_until_it_has_ended() -> None:
    table = JobTable()
    put(table, a_spec())
    assert in_use(table) == {(TENANT, "file-1")}
    put(table, a_progress(JobState.RUNNING))
    assert in_use(table) == {(TENANT, "file-1")}
    put(table, a_progress(JobState.DONE))
    assert in_use(table) == set()


def test_a_job_is_forgotten_so_long_after_its_last_word() -> None:
    table = JobTable()
    put(table, a_spec("silent", 10 * SECOND_US))
    put(table, a_spec("heard", 10 * SECOND_US))
    put(table, a_progress(JobState.DONE, "heard"), 30 * SECOND_US)
    put(table, a_spec("cancelled", 10 * SECOND_US))
    put(table, JobCancel("cancelled", TENANT), 40 * SECOND_US)

    def names(now_s: int) -> list[str]:
        found = forgettable(table, now_s * SECOND_US, 20 * SECOND_US)
        return [spec.job for spec in found]

    assert names(29) == []
    assert names(30) == ["silent"]
    assert names(50) == ["silent", "heard"]
    assert names(60) == ["silent", "heard", "cancelled"]
