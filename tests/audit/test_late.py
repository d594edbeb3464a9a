"""Which late answers nobody waited for."""

from __future__ import annotations

from headrace.audit import Audit, Kind, Report
from headrace.domain import ReplyAddress
from tests.audit.builders import ADDRESS, JOB, LIMITS, MS, answered, asked, resulted


def beats(
    audit: Audit, *spans: tuple[int, int], ingress: int = 0, instance: str = "a"
) -> None:
    """One process' heartbeats from and to these milliseconds."""
    for from_ms, to_ms in spans:
        for at_ms in range(from_ms, to_ms + 1, 250):
            audit.heard(at_ms * MS, ingress, instance)


def late(audit: Audit, address: ReplyAddress | None = ADDRESS) -> Report:
    """Of a request that was asked at 0, due after a second and answered after three."""
    request = asked(0, 0, address=address)
    audit.take(request)
    if address == ADDRESS:
        audit.take(answered(0, 3000, "r0"))
    else:
        audit.take(resulted(0, 3000, request.place))
    return audit.finish(10_000 * MS)


def test_an_answer_that_its_living_ingress_overtook_was_seen_by_nobody() -> None:
    audit = Audit(0, limits=LIMITS)
    beats(audit, (0, 4000))

    told = late(audit)

    assert told.is_clean
    assert told.counts.overtaken == 1


def test_a_time_in_which_nobody_was_heard_was_the_logs_and_stopped_no_ingress() -> None:
    audit = Audit(0, limits=LIMITS)
    beats(audit, (0, 250), (2900, 3900))

    assert late(audit).counts.overtaken == 1


def test_an_answer_is_late_where_the_ingress_that_took_the_request_is_gone() -> None:
    audit = Audit(0, limits=LIMITS)
    beats(audit, (0, 500))
    beats(audit, (750, 4000), instance="b")

    assert late(audit).totals[Kind.LATE] == 1


def test_an_answer_is_late_where_its_ingress_alone_stood_still() -> None:
    audit = Audit(0, limits=LIMITS)
    for at_ms in range(0, 4001, 250):
        audit.heard(at_ms * MS, 1, "other")
        if not 250 < at_ms < 3000:
            audit.heard(at_ms * MS, 0, "a")

    assert late(audit).totals[Kind.LATE] == 1


def test_an_answer_that_is_kept_is_late_whoever_lives() -> None:
    audit = Audit(0, limits=LIMITS)
    beats(audit, (0, 4000))

    assert late(audit, JOB).totals[Kind.LATE] == 1
