"""An audit of what the delivery protocol's own decisions leave of requests with keys:
it accuses nobody, and misses no end that was taken out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import pytest

from headrace.audit import Audit, Kind, Report
from headrace.audit.events import (
    Asked,
    Cancelled,
    DeadLettered,
    Event,
    Ran,
    Resulted,
)
from headrace.audit.lives import invites_retry
from headrace.domain import Source
from tests.audit.builders import LIMITS
from tests.audit.simulated import KeyedWorld
from tests.delivery.builders import SECOND

LOST = (Kind.UNANSWERED, Kind.COMMITTED_PAST)
SEEDS = 30


@cache
def simulated(seed: int, *, is_calm: bool) -> tuple[Sequence[Event], int]:
    """What lies in the log, and when all time limits were over."""
    world = KeyedWorld(seed, frozenset() if is_calm else None)
    world.start(asks=25)
    world.run()
    world.check_end()
    return world.history.events, world.now_us + 60 * SECOND


def audited(events: Sequence[Event], read_to_us: int) -> Report:
    audit = Audit(0, limits=LIMITS)
    for event in events:
        audit.take(event)
    return audit.finish(read_to_us)


@pytest.mark.parametrize("is_calm", [True, False])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_where_all_ended_well(seed: int, *, is_calm: bool) -> None:
    told = audited(*simulated(seed, is_calm=is_calm))

    # Late is what the simulated scheduler, which knows no deadlines, makes late.
    assert [each for each in told.findings if each.kind is not Kind.LATE] == []


def is_excused(lost: Resulted, events: Sequence[Event]) -> bool:
    """Whether the log without that end still tells how its request ended."""
    asked = {each.place: each for each in events if isinstance(each, Asked)}
    own = asked[lost.source]
    runs = {one for each in events if isinstance(each, Ran) for one in each.sources}

    def is_in_time(end: Event) -> bool:
        return own.at_us <= end.at_us + LIMITS.skew_us and own.place not in runs

    for end in events:
        if isinstance(end, Cancelled) and end.id == own.id and is_in_time(end):
            return True
        if end is lost or not isinstance(end, Resulted | DeadLettered):
            continue
        if asked[end.source].id != own.id or _lies_before(own.place, end.source):
            continue
        is_error = isinstance(end, DeadLettered) or end.digest is None
        stands = not is_error or not invites_retry(end.reason)
        if end.source == own.place or stands or is_in_time(end):
            return True
    return False


def _lies_before(one: Source, other: Source) -> bool:
    return one[:2] == other[:2] and one.offset < other.offset


def without_one(seed: int) -> Iterator[tuple[Resulted, list[Event], int]]:
    events, read_to_us = simulated(seed, is_calm=seed % 2 == 0)
    for lost in events:
        if isinstance(lost, Resulted):
            yield lost, [each for each in events if each is not lost], read_to_us


def test_an_end_that_is_taken_out_is_missed() -> None:
    excused = found = 0
    for seed in range(0, SEEDS, 3):
        for lost, events, read_to_us in without_one(seed):
            told = audited(events, read_to_us)
            if any(told.totals[kind] for kind in LOST):
                found += 1
            else:
                assert is_excused(lost, events), (seed, lost)
                excused += 1
    assert found > 5 * excused > 0
