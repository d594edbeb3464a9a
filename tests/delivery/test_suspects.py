"""A record that kills its former: named, read by itself, and in the end left unread."""

from __future__ import annotations

from headrace.delivery import CommitMetadata
from headrace.delivery.decisions import (
    Commit,
    ReadOne,
    ReadRequests,
    WriteBatch,
    WriteDeadLetters,
)
from headrace.delivery.events import CommitEnded, CommitOutcome, Revoked
from headrace.domain import Reason
from tests.delivery.builders import a_partition, a_request
from tests.delivery.desk import Desk, found

STOOD_STILL = CommitMetadata(0, completions=0, takeovers=2)
"""Two owners ended where this one starts."""


def named(deaths: int, offset: int = 0) -> CommitMetadata:
    """What the next owner finds of one that ended while it read a record by itself."""
    return CommitMetadata(0, 0, takeovers=3, suspect=offset, deaths=deaths)


def a_desk(metadata: CommitMetadata, log_end: int = 3) -> Desk:
    desk = Desk(slots=1, batch_max=1)
    desk.activate([a_partition(committed=0, log_end=log_end, metadata=metadata)])
    return desk


def offsets(desk: Desk) -> list[int]:
    """The records that were read by themselves so far."""
    return [each.offset for each in desk.all(ReadOne)]


def name(desk: Desk) -> tuple[int | None, int]:
    _, metadata = desk.watermark()
    return metadata.suspect, metadata.deaths


def test_a_record_is_read_by_itself_when_a_commit_that_names_it_is_accepted() -> None:
    desk = Desk(slots=1, batch_max=1)
    desk.take([a_partition(committed=0, log_end=3, metadata=STOOD_STILL)])
    desk.accepts_commits = False
    desk.report(0)
    desk.tick()

    (*_, commit) = desk.all(Commit)
    assert name(desk) == (0, 1)
    assert offsets(desk) == []
    desk.tell(CommitEnded(commit.commit, CommitOutcome.ACCEPTED))
    desk.tick()
    assert offsets(desk) == [0]


def test_the_next_one_follows_when_nothing_has_happened_for_a_while() -> None:
    desk = a_desk(STOOD_STILL)
    desk.silent.add(0)
    desk.tick()
    desk.read(a_request(0))
    desk.let_pass(desk.limits.suspect_us // 2)
    assert offsets(desk) == [0]

    desk.let_pass(desk.limits.suspect_us)
    assert offsets(desk) == [0, 1]
    assert name(desk) == (1, 1)


def test_the_next_one_follows_at_once_when_one_has_its_end() -> None:
    desk = a_desk(STOOD_STILL)
    desk.tick()
    (batch,) = found(desk.read(a_request(0)), WriteBatch)
    desk.done(batch)
    assert offsets(desk) == [0, 1]


def test_two_owners_are_no_reason_to_suspect() -> None:
    desk = a_desk(CommitMetadata(0, completions=0, takeovers=1))
    desk.tick()
    assert offsets(desk) == []
    assert [each.positions[0][2] for each in desk.all(ReadRequests)] == [0]


def test_a_name_that_is_found_is_read_once_more() -> None:
    desk = a_desk(named(1))
    desk.tick()
    assert name(desk) == (0, 2)
    assert offsets(desk) == [0]
    desk.read(a_request(0))
    desk.let_pass(2 * desk.limits.suspect_us)
    assert desk.all(WriteDeadLetters) == []


def test_what_lies_before_the_name_is_read_without_one() -> None:
    desk = a_desk(named(1, offset=1))
    desk.tick()
    assert offsets(desk) == [0]
    assert name(desk) == (1, 1)
    desk.read(a_request(0))
    assert offsets(desk) == [0, 1]
    assert name(desk) == (1, 2)


def test_after_two_deaths_it_is_a_dead_letter_unread_and_the_rest_is_read() -> None:
    desk = a_desk(named(2))
    desk.tick()
    ((letter,),) = [each.letters for each in desk.all(WriteDeadLetters)]
    assert (letter.source.offset, letter.reason) == (0, Reason.CRASH)
    # That name stands in every commit until its letter is acked.
    assert offsets(desk) == []

    desk.ended(desk.all(WriteDeadLetters)[-1].write)
    desk.let_pass(desk.limits.commit_us)
    assert desk.watermark()[0] == 1
    assert offsets(desk) == [1]


def test_an_owner_that_leaves_did_not_end_at_the_record_that_it_tried() -> None:
    desk = a_desk(STOOD_STILL)
    desk.tick()
    desk.read(a_request(0))
    assert name(desk) == (0, 1)
    desk.tell(Revoked())
    desk.let_pass(desk.limits.drain_us)
    assert name(desk) == (None, 1)


def test_it_forgets_no_death_of_an_earlier_owner() -> None:
    desk = a_desk(named(1))
    desk.tick()
    desk.read(a_request(0))
    assert name(desk) == (0, 2)
    desk.tell(Revoked())
    desk.let_pass(desk.limits.drain_us)
    assert name(desk) == (0, 1)
