"""Log time, silence, and what follows a pause of the loop: D1, D3, D5."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.delivery import LogClock, Roster
from headrace.delivery.decisions import (
    Commit,
    DropLane,
    ReadToEnds,
    WriteBatch,
    WriteReplies,
)
from headrace.delivery.events import (
    CommitEnded,
    CommitOutcome,
    GapNoticed,
    StatusAdvanced,
    Ticked,
)
from headrace.domain import Joined, Priority
from tests.delivery.builders import MS, SECOND, a_partition, a_request, a_source
from tests.delivery.desk import Desk, found

LOG_US = 1_700_000_000 * SECOND


# -- log time


@given(
    st.lists(
        st.tuples(
            st.integers(0, 200 * SECOND), st.integers(0, SECOND), st.integers(0, SECOND)
        ),
        min_size=1,
        max_size=20,
    )
)
def test_a_conversion_is_wrong_by_no_more_than_it_says(
    samples: list[tuple[int, int, int]],
) -> None:
    """D1 ◆: half the smallest round trip of the last minute, and the log's ms."""
    clock = LogClock()
    for sent_us, there_us, back_us in sorted(samples):
        appended_us = (LOG_US + sent_us + there_us) // MS * MS
        clock.feed(sent_us, sent_us + there_us + back_us, appended_us)

        assert abs(clock.to_log(sent_us) - (LOG_US + sent_us)) <= clock.error_us
        assert clock.to_mono(clock.to_log(sent_us)) == sent_us


def test_the_quickest_round_trip_of_the_last_minute_counts() -> None:
    """D1 ◆"""
    clock = LogClock()
    clock.feed(0, 2 * MS, LOG_US)
    clock.feed(SECOND, SECOND + 300 * MS, LOG_US + SECOND + 299 * MS)
    assert clock.error_us == 1_500

    clock.feed(61 * SECOND, 61 * SECOND + 100 * MS, LOG_US + 61 * SECOND)
    assert clock.error_us == 50_500


def test_nothing_is_converted_before_the_first_sample() -> None:
    clock = LogClock()
    assert not clock.is_set
    clock.feed(0, MS, LOG_US)
    assert clock.is_set


# -- silence


def test_silence_is_measured_against_the_newest_record_read() -> None:
    """D3 ◆"""
    roster: Roster[str] = Roster()
    roster.heard("a", LOG_US)
    assert roster.heard_within("a", SECOND)

    roster.heard("b", LOG_US + SECOND - 1)
    assert roster.heard_within("a", SECOND)
    roster.advance(LOG_US + SECOND)
    assert not roster.heard_within("a", SECOND)
    assert not roster.heard_within("never", SECOND)


def test_a_stopped_broker_silences_nobody() -> None:
    """D3 ◆: the first heartbeat after the stop is only the first to arrive."""
    roster: Roster[str] = Roster(pause_us=500 * MS)
    for key in ("a", "b"):
        roster.heard(key, LOG_US)

    roster.heard("a", LOG_US + 10 * SECOND)
    assert roster.heard_within("b", SECOND)
    for beat in range(1, 5):
        roster.heard("a", LOG_US + 10 * SECOND + beat * 250 * MS)
    assert not roster.heard_within("b", SECOND)


def test_an_older_record_moves_nothing_back() -> None:
    roster: Roster[str] = Roster()
    roster.heard("a", LOG_US)
    roster.heard("a", LOG_US - SECOND)
    roster.advance(LOG_US - SECOND)

    assert roster.newest_us == LOG_US
    assert roster.heard_within("a", 1)


def test_a_lane_takes_nobody_for_silent_after_a_stopped_broker() -> None:
    desk = Desk()
    desk.activate([a_partition(log_end=9)])
    desk.hear()
    desk.now_us += 10 * SECOND
    desk.tell(StatusAdvanced(desk.now_us))
    desk.read(a_request(0))

    assert len(desk.all(WriteBatch)) == 1


# -- the gap rule


@pytest.fixture
def paused() -> Desk:
    """An active lane with a batch in flight, a queue, and commits answered by hand."""
    desk = Desk(slots=1, cap=1, batch_max=1)
    desk.activate([a_partition(priority=p, log_end=9) for p in Priority])
    desk.hear()
    desk.read(a_request(0), a_request(1, deadline_us=desk.now_us + SECOND))
    desk.accepts_commits = False
    desk.now_us += 3 * SECOND
    return desk


def test_after_a_gap_everything_waits_for_a_confirming_commit(paused: Desk) -> None:
    """D5: the lane may have moved on unnoticed."""
    (commit,) = paused.tell(GapNoticed())
    assert isinstance(commit, Commit)
    assert commit.wait
    assert len(commit.entries) == len(Priority)
    assert paused.hear() == []
    assert paused.complete(Joined(0, "")) == []
    assert paused.tell(Ticked()) == []

    assert paused.tell(CommitEnded(commit.commit, CommitOutcome.ACCEPTED)) == [
        ReadToEnds(0)
    ]


def test_after_a_gap_nothing_lapses_before_what_was_missed_is_read(
    paused: Desk,
) -> None:
    (commit,) = found(paused.tell(GapNoticed()), Commit)
    paused.tell(CommitEnded(commit.commit, CommitOutcome.ACCEPTED))
    (batch,) = paused.all(WriteBatch)
    paused.hear()

    paused.done(batch)

    assert paused.lane.unsettled()[a_source(0)[:2]] == 1
    attempts = [r.attempt for r in paused.scheduler.queue.values()]
    assert attempts == []
    (replies,) = paused.all(WriteReplies)
    assert [terminal.id for terminal in replies.terminals] == ["r1"]


def test_a_refused_commit_after_a_gap_drops_the_lane(paused: Desk) -> None:
    (commit,) = found(paused.tell(GapNoticed()), Commit)

    said = paused.tell(CommitEnded(commit.commit, CommitOutcome.NOT_MEMBER))

    assert said[0] == DropLane(0)


def test_a_commit_after_a_gap_is_repeated_during_a_rebalance(paused: Desk) -> None:
    (commit,) = found(paused.tell(GapNoticed()), Commit)
    assert paused.tell(CommitEnded(commit.commit, CommitOutcome.TRANSIENT)) == []

    paused.now_us += paused.limits.again_us
    (again,) = paused.tell(Ticked())
    assert isinstance(again, Commit)


def test_an_answer_from_before_a_second_gap_is_not_enough(paused: Desk) -> None:
    (first,) = found(paused.tell(GapNoticed()), Commit)
    (second,) = found(paused.tell(GapNoticed()), Commit)

    assert paused.tell(CommitEnded(first.commit, CommitOutcome.ACCEPTED)) == []
    assert paused.tell(CommitEnded(second.commit, CommitOutcome.ACCEPTED)) == [
        ReadToEnds(0)
    ]
