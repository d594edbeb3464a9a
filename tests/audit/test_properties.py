"""An audit finds what the definitions say, however its records were read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.audit import Audit, Kind, Report
from headrace.audit.events import (
    Answer,
    Answered,
    Asked,
    Cancelled,
    Committed,
    DeadLettered,
    Ended,
    Event,
    Ran,
    Resulted,
)
from headrace.domain import Source
from tests.audit.builders import ADDRESS, JOB, KEPT, KEYED, LIMITS, MS, REQUESTS
from tests.audit.naive import findings

IDS = st.sampled_from(["a", "b"])
DIGESTS = st.sampled_from([b"x", b"y", None])
REASONS = st.sampled_from(["poison", "expired"])
PARTITIONS = st.integers(0, 1)
OFFSETS = st.integers(0, 4)
SOURCES = st.builds(Source, st.just(REQUESTS), PARTITIONS, OFFSETS)
# In steps about as large as the skew and the grace, so that both decide.
STEPS_MS = st.sampled_from([0, 1, 40, 60, 200, 300])
READ_TO_MS = 2000


@st.composite
def requests(draw: st.DrawFn, partition: int, *, with_keys: bool) -> list[Event]:
    events: list[Event] = []
    at_ms = 0
    for offset in range(draw(st.integers(0, 5))):
        at_ms += draw(STEPS_MS)
        place = Source(REQUESTS, partition, offset)
        is_keyed = with_keys and draw(st.booleans())
        if draw(st.integers(0, 7)) == 0:
            if is_keyed:
                events.append(Cancelled(place, at_ms * MS, KEYED, "t", KEPT))
                continue
            address = draw(st.sampled_from([ADDRESS, JOB, None]))
            events.append(Cancelled(place, at_ms * MS, draw(IDS), "t", address))
            continue
        deadline_ms = draw(st.sampled_from([None, 100, 5000]))
        made_by_us = is_keyed or draw(st.booleans())
        address = draw(st.sampled_from([ADDRESS, JOB, None]))
        events.append(
            Asked(
                place=place,
                at_us=at_ms * MS,
                id=KEYED if is_keyed else draw(IDS),
                tenant="t",
                model="m",
                address=KEPT if is_keyed else address,
                deadline_us=None if deadline_ms is None else (at_ms + deadline_ms) * MS,
                made_by_us=made_by_us,
                redriven=made_by_us and draw(st.integers(0, 5)) == 0,
                is_keyed=is_keyed,
            )
        )
    return events


def answers(draw: st.DrawFn, place: Source, at_us: int) -> Event:
    ids = draw(st.lists(IDS, min_size=1, max_size=2))
    said = [Answer(each, "t", draw(DIGESTS), "reason") for each in ids]
    return Answered(place, at_us, tuple(said))


def results(draw: st.DrawFn, place: Source, at_us: int) -> Event:
    return Resulted(place, at_us, draw(SOURCES), draw(DIGESTS), draw(REASONS))


def letters(draw: st.DrawFn, place: Source, at_us: int) -> Event:
    return DeadLettered(place, at_us, draw(SOURCES), draw(REASONS))


def completions(draw: st.DrawFn, place: Source, at_us: int) -> Event:
    if draw(st.booleans()):
        return Ran(place, at_us, (draw(SOURCES),))
    first = draw(OFFSETS)
    ranges = ((first, first + draw(st.integers(0, 2))),)
    return Ended(place, at_us, REQUESTS, draw(PARTITIONS), ranges)


def commits(draw: st.DrawFn, place: Source, at_us: int) -> Event:
    return Committed(place, at_us, REQUESTS, draw(PARTITIONS), draw(OFFSETS), "")


STREAMS = {
    (ADDRESS.topic, 0): answers,
    (JOB.topic, 0): results,
    ("h.deadletters.m", 0): letters,
    ("h.completions.p", 0): completions,
    ("commits", 0): commits,
}


@st.composite
def histories(draw: st.DrawFn, *, with_keys: bool = True) -> list[list[Event]]:
    """Each partition's records in order."""
    partitions = [draw(requests(each, with_keys=with_keys)) for each in (0, 1)]
    for (topic, partition), make in STREAMS.items():
        events: list[Event] = []
        at_ms = 0
        for offset in range(draw(st.integers(0, 4))):
            at_ms += draw(STEPS_MS)
            place = Source(topic, partition, offset)
            events.append(make(draw, place, at_ms * MS))
        partitions.append(events)
    return partitions


def found(report: Report) -> dict[Kind, set[Source]]:
    by_kind: dict[Kind, set[Source]] = defaultdict(set)
    for finding in report.findings:
        by_kind[finding.kind].add(finding.source)
    return {kind: by_kind[kind] for kind in Kind}


def fed_at_once(partitions: list[list[Event]]) -> Report:
    audit = Audit(0, limits=LIMITS)
    for events in partitions:
        for event in events:
            audit.take(event)
    return audit.finish(READ_TO_MS * MS)


@settings(max_examples=300, deadline=None)
@given(histories(with_keys=False))
def test_the_findings_are_those_of_the_definitions(
    partitions: list[list[Event]],
) -> None:
    events = [event for some in partitions for event in some]

    expected = findings(events, LIMITS, READ_TO_MS * MS)

    assert found(fed_at_once(partitions)) == expected


def interleaved(
    data: st.DataObject, partitions: list[list[Event]]
) -> Iterator[tuple[Event, int]]:
    """Each record, and up to when all had been read when it was."""
    left = [list(events) for events in partitions]
    while any(left):
        number = data.draw(
            st.sampled_from([number for number, events in enumerate(left) if events])
        )
        event = left[number].pop(0)
        fronts = [events[0].at_us for events in left if events]
        yield event, min(fronts, default=event.at_us)


@settings(deadline=None)
@given(histories(), st.data())
def test_how_the_log_was_read_does_not_matter(
    partitions: list[list[Event]], data: st.DataObject
) -> None:
    audit = Audit(0, limits=LIMITS)
    for event, front_us in interleaved(data, partitions):
        audit.take(event)
        if data.draw(st.booleans()):
            audit.read_to(front_us)

    assert audit.finish(READ_TO_MS * MS) == fed_at_once(partitions)


@settings(deadline=None)
@given(histories())
@example([[Asked(Source(REQUESTS, 0, 0), 0, "a", "t", "m", JOB, MS)], [], [], [], []])
def test_every_request_is_counted_once_by_how_it_ended(
    partitions: list[list[Event]],
) -> None:
    report = fed_at_once(partitions)
    counts = report.counts
    unanswered = report.totals[Kind.UNANSWERED]

    assert counts.pending + unanswered <= counts.requests
    # A request may be buried, cancelled or stale beside its answer, never beside none.
    ended = counts.successes + sum(counts.refusals.values()) + counts.cancelled
    ended += counts.stale + counts.silent + sum(counts.dead_letters.values())
    assert ended >= counts.requests - counts.pending - unanswered


def test_the_strategies_reach_every_kind_of_finding() -> None:
    seen = set[Kind]()

    @settings(max_examples=200, deadline=None)
    @given(histories())
    def look(partitions: list[list[Event]]) -> None:
        seen.update(finding.kind for finding in fed_at_once(partitions).findings)

    look()
    assert seen == set(Kind)
