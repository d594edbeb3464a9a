from __future__ import annotations

import pytest

from headrace.registry import JobTable
from headrace.wire.jobs import JobCancel, JobState
from services.ingress.batches.leading import SILENT_US, BatchKey, Leading
from tests.services.ingress.batches.jobs import (
    SECOND_US,
    TENANT,
    a_progress,
    a_spec,
    put,
)

NOW_US = 1000 * SECOND_US


def key(batch: str) -> BatchKey:
    return BatchKey(TENANT, batch)


def a_leader(at_once_max: int = 2) -> Leading:
    leading = Leading(0, at_once_max)
    leading.heard(0, NOW_US, is_ready=True)
    return leading


@pytest.fixture
def table() -> JobTable:
    return JobTable()


def test_the_lowest_slot_of_those_heard_of_leads() -> None:
    leading = Leading(1, 1)
    assert not leading.leads
    leading.heard(1, NOW_US, is_ready=True)
    assert leading.leads

    leading.heard(0, NOW_US, is_ready=True)
    assert not leading.leads
    leading.heard(0, NOW_US + 1, is_ready=False)
    assert leading.leads

    leading.heard(0, NOW_US + 2, is_ready=True)
    leading.heard(1, NOW_US + 3 * SECOND_US, is_ready=True)
    assert leading.leads is False
    leading.heard(1, NOW_US + 4 * SECOND_US, is_ready=True)
    assert leading.leads


def test_the_oldest_batches_begin_and_the_others_wait(table: JobTable) -> None:
    for age, batch in enumerate(("c", "a", "b")):
        put(table, a_spec(batch, age + 1))
    leading = a_leader()
    assert leading.due(table, []) == [key("c"), key("a")]
    assert leading.due(table, [key("c")]) == [key("a")]
    assert leading.due(table, [key("c"), key("a")]) == []
    assert Leading(0, 2).due(table, []) == []


@pytest.mark.parametrize("state", [JobState.DONE, JobState.FAILED, JobState.CANCELLED])
def test_what_has_ended_needs_no_runner(table: JobTable, state: JobState) -> None:
    put(table, a_spec())
    put(table, a_progress(state))
    assert a_leader().due(table, []) == []


def test_a_batch_of_another_ingress_is_left_to_it_while_it_is_heard(
    table: JobTable,
) -> None:
    put(table, a_spec("a", 1))
    put(table, a_progress(JobState.RUNNING, "a"), NOW_US - SILENT_US)
    put(table, a_spec("b", 2))
    assert a_leader(1).due(table, []) == []
    assert a_leader(2).due(table, []) == [key("b")]

    put(table, a_progress(JobState.RUNNING, "a"), NOW_US - SILENT_US - 1)
    assert a_leader(1).due(table, []) == [key("a")]
    put(table, a_progress(JobState.STOPPED, "a"), NOW_US)
    assert a_leader(1).due(table, []) == [key("a")]


def test_a_cancelled_batch_needs_a_runner_to_end_it(table: JobTable) -> None:
    put(table, a_spec())
    put(table, JobCancel("batch_1", TENANT))
    assert a_leader().due(table, []) == [key("batch_1")]


def test_a_runner_that_failed_is_started_again_later_and_later(
    table: JobTable,
) -> None:
    put(table, a_spec())
    put(table, a_progress(JobState.RUNNING), NOW_US)
    leading = a_leader()
    waits = []
    for _ in range(8):
        begun_us = leading.now_us
        leading.ended(key("batch_1"), well=False)
        while not leading.due(table, []):
            leading.heard(0, leading.now_us + SECOND_US // 2, is_ready=True)
        waits.append((leading.now_us - begun_us) / SECOND_US)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]

    leading.ended(key("batch_1"), well=True)
    leading.ended(key("batch_1"), well=False)
    leading.heard(0, leading.now_us + SECOND_US, is_ready=True)
    assert leading.due(table, []) == [key("batch_1")]
