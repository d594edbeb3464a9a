"""Which records of an idempotency key end together, and which need their own end."""

from __future__ import annotations

import pytest

from headrace.audit import Kind
from headrace.audit.decoding import EventDecoder
from headrace.audit.events import Asked, Cancelled, Event
from headrace.domain import ReplyAddress, Source
from headrace.wire import Record, RequestEncoder, Topics
from tests.audit.builders import (
    KEPT,
    KEYED,
    MS,
    REQUESTS,
    asked,
    buried,
    committed,
    kept,
    ran,
)
from tests.audit.test_joining import found, report
from tests.wire.records import a_new_request


def keyed(
    offset: int, at_ms: int, *, partition: int = 0, deadline_ms: int = 1000
) -> Asked:
    return asked(
        offset,
        at_ms,
        id_=KEYED,
        partition=partition,
        deadline_ms=deadline_ms,
        address=KEPT,
    )


def place(offset: int, partition: int = 0) -> Source:
    return Source(REQUESTS, partition, offset)


def refused_and_asked_at(at_ms: int) -> list[Event]:
    """A key's first record gets an error that invites a retry after 50 ms."""
    return [keyed(0, 0), kept(0, 50, place(0), "expired"), keyed(1, at_ms)]


@pytest.mark.parametrize("at_ms", [40, 60, 300])
def test_a_key_may_be_asked_again_after_an_error_that_invites_it(at_ms: int) -> None:
    events = refused_and_asked_at(at_ms)
    told = report(*events, kept(1, at_ms + 90, place(1)))
    assert told.is_clean
    assert (told.counts.requests, told.counts.successes) == (2, 1)


def test_a_second_request_with_a_key_has_to_end_too() -> None:
    told = report(*refused_and_asked_at(300))
    assert found(told) == {Kind.UNANSWERED: [KEYED]}
    assert told.findings[0].source == place(1)


def test_a_repetition_of_an_answered_key_has_its_answer() -> None:
    told = report(keyed(0, 0), kept(0, 50, place(0), "poison"), keyed(1, 300))
    assert told.is_clean
    assert (told.counts.requests, told.counts.repeated) == (1, 1)


def test_a_success_beside_an_error_that_stands_is_told() -> None:
    told = report(
        keyed(0, 0),
        kept(0, 50, place(0), "poison"),
        keyed(1, 300),
        kept(1, 390, place(1)),
    )
    assert found(told) == {Kind.LATE: [KEYED]}


@pytest.mark.parametrize("at_ms", [40, 55, 100, 101, 300])
def test_whoever_asks_after_a_retry_ends_with_the_retry(at_ms: int) -> None:
    """Wherever the clocks put the retry beside the refusal before it."""
    told = report(
        keyed(0, 0),
        kept(0, 50, place(0), "expired"),
        keyed(1, at_ms),
        keyed(2, 500),
        kept(1, 600, place(1)),
        committed(0, 610, 3),
    )
    assert told.is_clean
    counts = told.counts
    assert (counts.requests, counts.repeated, counts.duplicates) == (2, 1, 0)


def test_whoever_joined_a_retry_is_not_late_by_its_own_deadline() -> None:
    told = report(
        keyed(0, 0),
        kept(0, 50, place(0), "expired"),
        keyed(1, 60, deadline_ms=20_000),
        keyed(2, 500, deadline_ms=100),
        kept(1, 4000, place(1)),
    )
    assert told.is_clean


def test_what_waits_with_another_is_not_due_before_it() -> None:
    events = [
        keyed(0, 0, deadline_ms=100),
        keyed(0, 10, partition=1, deadline_ms=5000),
    ]
    assert report(*events, read_to_ms=5000).counts.pending == 1
    assert found(report(*events, read_to_ms=5260)) == {Kind.UNANSWERED: [KEYED]}


def test_a_retry_that_a_worker_ran_needs_its_own_answer_however_early_it_came() -> None:
    """Its time alone would allow that it ended with the refusal."""
    events = [*refused_and_asked_at(60), ran(0, 160, place(1))]

    told = report(*events, committed(0, 300, 2))
    assert found(told) == {
        Kind.UNANSWERED: [KEYED],
        Kind.COMMITTED_PAST: [KEYED],
    }
    assert {each.source for each in told.findings} == {place(1)}
    assert report(*events, kept(1, 150, place(1)), committed(0, 300, 2)).is_clean


def test_an_end_of_a_later_record_is_none_of_an_earlier_one_beside_it() -> None:
    """A former would have joined the later to the earlier, had that been unsettled."""
    told = report(keyed(0, 0), keyed(1, 300), kept(0, 390, place(1)))
    assert found(told) == {Kind.UNANSWERED: [KEYED]}
    assert told.findings[0].source == place(0)


def test_an_end_is_that_of_records_in_other_partitions_whichever_was_first() -> None:
    events = [keyed(7, 0), keyed(3, 300, partition=1), keyed(9, 600)]
    assert report(*events, kept(0, 700, place(3, 1))).is_clean


def test_what_is_committed_between_an_error_and_a_retrys_answer_is_no_loss() -> None:
    told = report(
        keyed(0, 0),
        kept(0, 50, place(0), "overloaded"),
        committed(0, 200, 1),
        keyed(1, 300),
        committed(1, 400, 1),
        kept(1, 450, place(1)),
        committed(2, 500, 2),
    )
    assert told.is_clean


def test_a_retry_that_is_committed_past_is_told_by_its_own_record() -> None:
    events = [*refused_and_asked_at(300), committed(0, 400, 2)]
    told = report(*events, kept(1, 460, place(1)))
    assert found(told) == {Kind.COMMITTED_PAST: [KEYED]}
    assert told.findings[0].source == place(1)


def test_a_cancel_ends_what_lies_before_it_and_not_the_key() -> None:
    cancel = Cancelled(place(1), 100 * MS, KEYED, "t", KEPT)
    events: list[Event] = [keyed(0, 0), cancel, keyed(2, 300)]
    assert found(report(*events)) == {Kind.UNANSWERED: [KEYED]}
    told = report(*events, kept(0, 310, place(2)))
    assert told.is_clean
    assert told.counts.cancelled == 1


def test_a_dead_letter_whose_error_stands_ends_what_follows_too() -> None:
    assert report(keyed(0, 0), buried(0, 50, place(0)), keyed(1, 300)).is_clean


def test_an_error_of_another_try_is_none_beside_a_success() -> None:
    """The late word of a former that was replaced, say: the success stands."""
    events: list[Event] = [
        keyed(0, 0, partition=1),
        kept(0, 30, place(0, 1), "expired"),
        keyed(0, 300),
        kept(1, 390, place(0)),
    ]
    again = kept(2, 400, place(0, 1), "expired")
    assert report(*events, again).is_clean
    same = kept(2, 400, place(0), "expired")
    assert found(report(*events, same)) == {Kind.LATE: [KEYED]}


def test_different_successes_of_one_key_differ_also_by_another_try() -> None:
    events: list[Event] = [
        keyed(0, 0),
        keyed(0, 10, partition=1),
        kept(0, 90, place(0)),
    ]
    told = report(*events, kept(1, 95, place(0, 1), digest=b"other"))
    assert found(told) == {Kind.DIFFERING: [KEYED]}


def test_a_key_that_is_asked_again_is_not_forgotten_meanwhile() -> None:
    events = [
        keyed(0, 0),
        kept(0, 50, place(0), "expired"),
        keyed(1, 900, deadline_ms=3000),
        kept(1, 2500, place(1)),
    ]
    told = report(*events, remember_us=1000 * MS)
    assert told.is_clean
    assert (told.counts.successes, told.counts.unknown) == (1, 0)


@pytest.mark.parametrize(
    ("request_id", "job", "source", "is_keyed"),
    [
        (KEYED, "keyed", "headrace/ingress/0", True),
        (KEYED.replace("8", "7"), "keyed", "headrace/ingress/0", False),
        (KEYED, "job", "headrace/ingress/0", False),
        (KEYED, "keyed", "elsewhere", False),
    ],
)
def test_a_key_is_what_a_former_takes_for_one(
    request_id: str, job: str, source: str, *, is_keyed: bool
) -> None:
    topics = Topics("h")
    topic = topics.results("t", job)
    encoder = RequestEncoder(source, ReplyAddress(topic, None))
    headers, value = encoder.encode(a_new_request(id=request_id), 0)
    decoder = EventDecoder(topics, timeouts_us={}, groups=(), there=(topic,))
    event = decoder.decode(Record(topics.requests("m"), 0, 0, 0, None, value, headers))
    assert isinstance(event, Asked)
    assert event.is_keyed is is_keyed
