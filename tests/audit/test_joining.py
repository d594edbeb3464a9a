"""What an audit finds, and what it does not."""

from __future__ import annotations

import pytest

from headrace.audit import Audit, AuditLimits, Counts, Kind, Report
from headrace.audit.events import Cancelled, Claimed, Ended, Event, Ran
from headrace.domain import ReplyAddress, Source
from tests.audit.builders import (
    ADDRESS,
    JOB,
    LIMITS,
    MS,
    REQUESTS,
    answered,
    asked,
    buried,
    committed,
    resulted,
)


def report(*events: Event, read_to_ms: int = 10_000, **limits: int) -> Report:
    audit = Audit(0, limits=LIMITS.model_copy(update=limits))
    for event in events:
        audit.take(event)
    return audit.finish(read_to_ms * MS)


def found(report: Report) -> dict[Kind, list[str]]:
    by_kind: dict[Kind, list[str]] = {}
    for finding in report.findings:
        by_kind.setdefault(finding.kind, []).append(finding.id)
    assert {kind: len(ids) for kind, ids in by_kind.items()} == {
        kind: total for kind, total in report.totals.items() if total
    }
    return by_kind


def test_an_answered_request_is_clean() -> None:
    told = report(asked(0, 0), answered(0, 90, "r0"), committed(0, 100, 1))

    assert told.is_clean
    assert told.counts == Counts(requests=1, successes=1, commits=1)


def test_a_request_without_evidence_is_unanswered() -> None:
    told = report(asked(0, 0), asked(1, 1), answered(0, 90, "r1"))

    assert found(told) == {Kind.UNANSWERED: ["r0"]}
    assert not told.is_clean


@pytest.mark.parametrize(
    ("read_to_ms", "unanswered", "pending"), [(1249, 0, 1), (1250, 1, 0)]
)
def test_a_request_is_given_its_deadline_and_a_grace(
    read_to_ms: int, unanswered: int, pending: int
) -> None:
    told = report(asked(0, 0), read_to_ms=read_to_ms)

    assert told.totals[Kind.UNANSWERED] == unanswered
    assert told.counts.pending == pending


def test_what_has_no_deadline_stays_pending() -> None:
    told = report(asked(0, 0, deadline_ms=None), read_to_ms=10**9)

    assert told.is_clean
    assert told.counts.pending == 1


@pytest.mark.parametrize(
    "evidence",
    [
        answered(0, 90, "r0", digest=None),
        buried(0, 90, Source(REQUESTS, 0, 0)),
        Cancelled(Source(REQUESTS, 0, 7), 90 * MS, "r0", "t", ADDRESS),
        Ended(Source("h.completions.p", 0, 0), 90 * MS, REQUESTS, 0, ((0, 3),)),
    ],
)
def test_whatever_ends_a_request_is_evidence(evidence: Event) -> None:
    assert report(asked(0, 0), evidence, committed(0, 100, 1)).is_clean


@pytest.mark.parametrize(
    "beside",
    [
        answered(0, 90, "r1"),
        answered(0, 90, "r0", tenant="other"),
        answered(0, 90, "r0", partition=1),
        resulted(0, 90, Source(REQUESTS, 0, 1)),
        buried(0, 90, Source(REQUESTS, 1, 0)),
        Cancelled(Source(REQUESTS, 0, 7), 90 * MS, "r0", "other", ADDRESS),
        Cancelled(Source(REQUESTS, 0, 7), 90 * MS, "r0", "t", JOB),
        Ended(Source("h.completions.p", 0, 0), 90 * MS, REQUESTS, 0, ((1, 3),)),
        Ran(Source("h.completions.p", 0, 0), 90 * MS, (Source(REQUESTS, 0, 0),)),
    ],
)
def test_what_belongs_to_another_request_is_none(beside: Event) -> None:
    told = report(asked(0, 0), beside)

    assert found(told) == {Kind.UNANSWERED: ["r0"]}


def test_a_cancel_does_not_end_what_was_put_there_by_hand() -> None:
    cancelled = Cancelled(Source(REQUESTS, 0, 7), 90 * MS, "r0", "t", ADDRESS)
    told = report(asked(0, 0, made_by_us=False), cancelled)

    assert found(told) == {Kind.UNANSWERED: ["r0"]}


@pytest.mark.parametrize(
    "ranges", [((3, 3),), ((0, 3),), ((3, 900),), ((0, 1), (2, 9))]
)
def test_a_stale_range_ends_where_it_says(ranges: tuple[tuple[int, int], ...]) -> None:
    stale = Ended(Source("h.completions.p", 0, 0), 90 * MS, REQUESTS, 0, ranges)

    assert report(asked(3, 0), stale).counts.stale == 1
    assert report(asked(2, 0), stale).counts.stale == (ranges[0][0] == 0)


def test_a_run_is_evidence_where_nobody_wants_an_answer() -> None:
    ran = Ran(Source("h.completions.p", 0, 0), 90 * MS, (Source(REQUESTS, 0, 0),))

    told = report(asked(0, 0, address=None), ran, committed(0, 100, 1))

    assert told.is_clean
    assert told.counts.silent == 1


def test_answers_to_a_topic_that_is_gone_are_counted_and_no_finding() -> None:
    ran = Ran(Source("completions", 0, 0), 50 * MS, (Source(REQUESTS, 0, 0),))
    told = report(
        asked(0, 0, address=JOB, deadline_ms=None, is_address_gone=True),
        asked(1, 0, address=JOB, deadline_ms=None, is_address_gone=True),
        asked(2, 0, address=JOB, deadline_ms=1000, is_address_gone=True),
        asked(3, 0, address=JOB, deadline_ms=None, is_address_gone=True),
        asked(4, 0, address=JOB, deadline_ms=None),
        ran,
        buried(0, 50, Source(REQUESTS, 0, 3)),
        committed(0, 500, 5),
    )

    assert [each.id for each in told.findings] == ["r4"]
    assert told.totals[Kind.COMMITTED_PAST] == 1
    assert (told.counts.answers_gone, told.counts.pending) == (3, 1)
    assert told.counts.dead_letters == {"x": 1}


def test_a_worker_that_claims_to_have_answered_is_quoted() -> None:
    ran = Ran(Source("h.completions.p", 0, 0), 90 * MS, (Source(REQUESTS, 0, 0),))

    (finding,) = report(asked(0, 0), ran).findings

    assert finding.text.endswith("a worker says that it answered in 90 ms")


def test_two_different_successes_are_suspect_and_equal_ones_are_counted() -> None:
    audit = Audit(0, limits=LIMITS)
    for event in (
        asked(0, 0),
        asked(1, 0),
        answered(0, 90, "r0", "r1"),
        answered(1, 95, "r1"),
        answered(2, 99, "r0", digest=b"other"),
    ):
        audit.take(event)
    audit.read_to(MS * 1000)
    suspects = audit.suspects

    assert [(each.first.offset, each.second.offset) for each in suspects] == [(0, 2)]
    told = audit.finish(10_000 * MS)
    assert found(told) == {Kind.DIFFERING: ["r0"]}
    assert told.counts.duplicates == 2


def test_a_suspect_that_differs_by_rounding_alone_is_excused() -> None:
    audit = Audit(0, limits=LIMITS)
    for offset, digest in enumerate((b"one", b"two", b"three")):
        audit.take(answered(offset, 90 + offset, "r0", digest=digest))
    audit.take(asked(0, 0))
    audit.read_to(1000 * MS)
    first, second = audit.suspects

    told = audit.finish(10_000 * MS, excused=[first])
    assert [each.text for each in told.findings] == [second.finding.text]
    assert told.counts.rounded == 1


@pytest.mark.parametrize("claimed_ms", [50, 150])
@pytest.mark.parametrize(("digest", "differing"), [(b"other", ["r0"]), (b"same", None)])
def test_a_success_that_names_no_record_is_held_against_that_of_its_id(
    claimed_ms: int, digest: bytes, differing: list[str] | None
) -> None:
    place = Source(JOB.topic, 1, 0)
    request = asked(0, 0, address=JOB)
    told = report(
        request,
        asked(1, 0, address=JOB),
        Claimed(place, claimed_ms * MS, "r0", digest),
        Claimed(place._replace(offset=1), 150 * MS, "nobody", digest),
        resulted(0, 100, request.place),
        resulted(1, 100, Source(REQUESTS, 0, 1)),
    )
    assert found(told).get(Kind.DIFFERING) == differing
    assert told.is_clean is (differing is None)
    assert told.counts.unknown == 2


def test_a_success_that_names_no_record_ends_none() -> None:
    claim = Claimed(Source(JOB.topic, 1, 0), 50 * MS, "r0", b"same")
    told = report(asked(0, 0, address=JOB), claim)
    assert found(told) == {Kind.UNANSWERED: ["r0"]}


def test_an_id_with_many_different_successes_is_one_finding() -> None:
    answers = [answered(each, 90, "r0", digest=b"%d" % each) for each in range(4)]

    told = report(asked(0, 0), *answers)

    assert found(told) == {Kind.DIFFERING: ["r0"]}
    assert told.counts.duplicates == 3


@pytest.mark.parametrize(("at_ms", "late"), [(1250, 0), (1251, 1)])
def test_a_first_answer_after_the_deadline_and_the_grace_is_late(
    at_ms: int, late: int
) -> None:
    told = report(asked(0, 0), answered(0, at_ms, "r0"))

    assert told.totals[Kind.LATE] == late


@pytest.mark.parametrize("first", [b"success", None])
def test_an_error_beside_a_success_is_late_and_nothing_worse(
    first: bytes | None,
) -> None:
    second = None if first else b"success"
    told = report(
        asked(0, 0),
        answered(0, 90, "r0", digest=first),
        answered(1, 95, "r0", digest=second),
    )

    assert found(told) == {Kind.LATE: ["r0"]}


def test_a_commit_above_a_request_without_evidence_is_found_with_its_owner() -> None:
    told = report(
        asked(0, 0), asked(1, 0), committed(0, 60, 1, epoch=7), answered(0, 150, "r0")
    )

    assert found(told) == {Kind.COMMITTED_PAST: ["r0"], Kind.UNANSWERED: ["r1"]}
    (past,) = [each for each in told.findings if each.kind is Kind.COMMITTED_PAST]
    assert "1;e=7;c=0;n=0" in past.text


def test_a_commit_may_seem_to_be_earlier_than_its_evidence_by_the_clocks_skew() -> None:
    events = (asked(0, 0), committed(0, 100, 1))

    assert report(*events, answered(0, 150, "r0")).is_clean
    assert not report(*events, answered(0, 151, "r0")).is_clean


def test_an_answer_may_seem_to_be_earlier_than_its_request() -> None:
    assert report(asked(0, 50), answered(0, 0, "r0")).is_clean
    assert not report(asked(0, 51), answered(0, 0, "r0")).is_clean


def test_a_commit_that_goes_back_is_a_warning() -> None:
    told = report(committed(0, 10, 5), committed(1, 20, 3), committed(2, 30, 5))

    assert told.is_clean
    assert told.counts.commits_back == 1
    assert "went back from 5" in told.warnings[0]


def test_a_repeated_record_ends_with_the_first() -> None:
    told = report(
        asked(0, 0),
        asked(1, 10, id_="r0"),
        answered(0, 90, "r0"),
        asked(2, 95, id_="r0"),
        committed(0, 100, 3),
    )

    assert told.is_clean
    assert (told.counts.requests, told.counts.repeated) == (1, 2)


def test_a_redriven_request_needs_an_end_of_its_own() -> None:
    events = [
        asked(0, 0),
        buried(0, 90, Source(REQUESTS, 0, 0)),
        asked(1, 500, id_="r0", redriven=True),
    ]

    assert found(report(*events)) == {Kind.UNANSWERED: ["r0"]}
    assert report(*events, answered(0, 600, "r0")).is_clean


def test_records_by_hand_are_told_apart_by_their_place() -> None:
    first = asked(0, 0, id_="1", made_by_us=False, address=JOB)
    second = asked(1, 0, id_="1", made_by_us=False, address=JOB)

    told = report(first, second, resulted(0, 90, second.place))

    assert [each.source for each in told.findings] == [first.place]


def test_records_by_hand_with_one_id_take_the_answers_in_turn() -> None:
    hands = [asked(each, 0, id_="1", made_by_us=False) for each in range(3)]
    answers = [answered(each, 90, "1") for each in range(2)]

    told = report(*hands, *answers)

    assert [each.source.offset for each in told.findings] == [2]


def test_what_was_asked_outside_the_range_is_not_judged() -> None:
    audit = Audit(100 * MS, 200 * MS, LIMITS)
    for event in (asked(0, 99), asked(1, 100), asked(2, 199), asked(3, 200)):
        audit.take(event)

    told = audit.finish(10_000 * MS)

    assert found(told) == {Kind.UNANSWERED: ["r1", "r2"]}
    assert (told.from_us, told.to_us) == (100 * MS, 200 * MS)


def test_what_retention_removed_accuses_nobody() -> None:
    audit = Audit(0, limits=LIMITS)
    audit.cut(("h.replies.c", 0), 50 * MS, is_address=True)
    elsewhere = ReplyAddress("h.replies.c", 1)
    for event in (
        asked(0, 0),
        asked(1, 1, address=elsewhere),
        asked(2, 50),
        committed(0, 200, 3),
    ):
        audit.take(event)

    told = audit.finish(10_000 * MS)

    assert found(told) == {
        Kind.COMMITTED_PAST: ["r1", "r2"],
        Kind.UNANSWERED: ["r1", "r2"],
    }
    assert told.counts.unjudged == 1


def test_completions_that_were_cut_could_have_ended_anybody() -> None:
    audit = Audit(0, limits=LIMITS)
    audit.cut(("h.completions.p", 0), 50 * MS, is_address=False)
    audit.take(asked(0, 0))

    assert audit.finish(10_000 * MS).counts.unjudged == 1


def test_the_range_ends_where_too_many_are_unsettled() -> None:
    told = report(
        asked(0, 0), asked(1, 1), asked(2, 2), answered(0, 90, "r0"), unsettled_max=2
    )

    assert told.is_truncated
    assert not told.is_clean
    assert told.counts.requests == 2
    assert found(told) == {Kind.UNANSWERED: ["r1"]}


def test_room_for_the_unsettled_is_free_again_when_they_settle() -> None:
    events = [asked(n, n * 100) for n in range(9)]
    answers = [answered(n, n * 100 + 20, f"r{n}") for n in range(9)]

    assert report(*events, *answers, unsettled_max=1).is_clean


def test_settled_ids_are_forgotten_early_only_by_count_and_say_so() -> None:
    settled = [asked(0, 0), asked(1, 0), answered(0, 90, "r0"), answered(1, 91, "r1")]
    again = answered(2, 500, "r0", digest=b"other")

    assert report(*settled, again).totals[Kind.DIFFERING] == 1
    told = report(*settled, again, remembered_max=1)
    assert told.totals[Kind.DIFFERING] == 0
    assert (told.counts.forgotten, told.counts.unknown) == (1, 1)
    told = report(*settled, again, remember_us=100 * MS)
    assert (told.counts.forgotten, told.counts.unknown) == (0, 1)


def test_findings_are_listed_to_a_limit_and_counted_beyond_it() -> None:
    told = report(*(asked(each, 0) for each in range(5)), findings_max=2)

    assert [each.id for each in told.findings] == ["r0", "r1"]
    assert told.totals[Kind.UNANSWERED] == 5


def test_defaults_are_those_of_the_protocol() -> None:
    limits = AuditLimits()

    assert (limits.grace_us, limits.skew_us) == (250_000, 50_000)
