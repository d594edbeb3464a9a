"""What is committed, when, and where a reader pauses: D8, and the log's corners."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.delivery import CommitMetadata, LaneLimits
from headrace.delivery.decisions import (
    Alarm,
    Commit,
    PausePartition,
    ReadRequests,
    ResumePartition,
    WriteBatch,
    WriteDeadLetters,
    WriteReplies,
)
from headrace.delivery.events import (
    CommitEnded,
    CommitOutcome,
    CompletionsAt,
    ReadingLost,
    RequestRead,
)
from headrace.delivery.watermark import PartitionLog
from headrace.domain import MemberStatus, Priority, Reason, StaleWritten
from tests.delivery.builders import MS, SECOND, a_partition, a_request, a_source
from tests.delivery.desk import Desk, batches_in, found

OK = MemberStatus.OK
STANDARD = a_source(0)[:2]


def a_desk(*, cap: int = 4, limits: LaneLimits | None = None) -> Desk:
    """A lane with one partition, one slot and batches of one."""
    desk = Desk(slots=1, cap=cap, batch_max=1, limits=limits)
    desk.activate([a_partition(log_end=99)])
    return desk


def send(desk: Desk, *offsets: int) -> list[WriteBatch]:
    return batches_in(desk.read(*(a_request(offset) for offset in offsets)))


def tick(desk: Desk) -> list[Commit]:
    return found(desk.let_pass(desk.limits.commit_us), Commit)


# -- when


def test_a_watermark_that_moved_is_committed_after_200_ms() -> None:
    desk = a_desk()
    (batch,) = send(desk, 0)
    desk.done(batch)

    assert found(desk.let_pass(desk.limits.commit_us - MS), Commit) == []
    (commit,) = found(desk.let_pass(MS), Commit)
    assert [(e.partition, e.offset) for e in commit.entries] == [(STANDARD[1], 1)]
    assert not commit.wait


def test_what_did_not_move_is_not_committed() -> None:
    desk = a_desk()
    send(desk, 0)

    assert found(desk.let_pass(SECOND), Commit) == []


def test_every_partition_is_committed_every_10_s() -> None:
    desk = Desk()
    desk.activate([a_partition(priority=priority) for priority in Priority])

    (commit,) = found(desk.let_pass(desk.limits.commit_all_us), Commit)

    assert len(commit.entries) == len(Priority)


def test_one_commit_is_out_at_a_time() -> None:
    desk = a_desk()
    first, second = send(desk, 0, 1)
    desk.accepts_commits = False
    desk.done(first)
    (commit,) = tick(desk)
    desk.done(second)
    assert tick(desk) == []

    said = desk.tell(CommitEnded(commit.commit, CommitOutcome.ACCEPTED))
    (commit,) = found(said, Commit)
    assert commit.entries[0].offset == 2


# -- what


def test_the_watermark_stops_at_the_lowest_unsettled_request() -> None:
    desk = a_desk()
    first, second, third = send(desk, 0, 1, 2)
    desk.done(second)
    desk.done(third)
    assert tick(desk) == []
    desk.done(first)

    tick(desk)
    assert desk.watermark()[0] == 3


def test_c_reaches_back_to_the_dones_of_what_is_settled_above_the_watermark() -> None:
    """D8 ◆: a successor reads those requests again and must learn their ends."""
    desk = a_desk()
    batches = send(desk, 0, 1, 2)
    done_at = desk.completions_end
    desk.done(batches[2])
    desk.tell(CompletionsAt(desk.completions_end + 50))
    desk.completions_end += 50
    desk.done(batches[0])
    tick(desk)

    offset, metadata = desk.watermark()
    assert offset == 1
    assert metadata.completions == done_at


def test_c_is_the_completions_position_when_nothing_is_settled_ahead() -> None:
    desk = a_desk()
    (batch,) = send(desk, 0)
    desk.done(batch)
    desk.tell(CompletionsAt(90))
    tick(desk)

    assert desk.watermark()[1].completions == 90


def test_c_counts_the_done_of_a_request_that_is_not_read_yet() -> None:
    desk = a_desk()
    (batch,) = send(desk, 0)
    done_at = desk.completions_end
    desk.done(batch)
    desk.done_elsewhere(a_source(5))
    desk.tell(CompletionsAt(90))
    tick(desk)

    assert desk.watermark() == (
        1,
        CommitMetadata(desk.lane.epoch, completions=done_at + 1),
    )


def test_a_stale_range_reaches_back_to_its_own_record() -> None:
    desk = a_desk()
    send(desk, 0)
    topic, partition = STANDARD
    stale_at = desk.completions_end
    desk.complete(StaleWritten(topic, partition, ((1, 1),)))
    desk.read(a_request(1))
    desk.tell(CompletionsAt(90))
    desk.let_pass(desk.limits.commit_all_us)

    assert desk.watermark() == (
        0,
        CommitMetadata(desk.lane.epoch, completions=stale_at, takeovers=1),
    )


def test_the_number_of_takeovers_stands_until_the_watermark_moves() -> None:
    desk = Desk(slots=1, batch_max=1)
    old = CommitMetadata(0, completions=0, takeovers=4)
    desk.activate([a_partition(committed=0, log_end=9, metadata=old)])
    (batch,) = send(desk, 0)
    desk.let_pass(desk.limits.commit_all_us)
    assert desk.watermark()[1].takeovers == 5

    desk.done(batch)
    tick(desk)
    assert desk.watermark()[1].takeovers == 0


# -- pausing


def test_a_partition_pauses_at_its_limit_and_resumes_at_half() -> None:
    desk = a_desk(limits=LaneLimits(cap=9, unsettled_max=4))
    for offset in range(3):
        assert found(desk.tell(RequestRead(a_request(offset))), PausePartition) == []
    assert desk.tell(RequestRead(a_request(3))) == [PausePartition(*STANDARD)]
    batches = batches_in(desk.tick())

    assert found(desk.done(batches[0]), ResumePartition) == []
    assert found(desk.done(batches[1]), ResumePartition) == [ResumePartition(*STANDARD)]


def test_a_partition_pauses_at_its_bytes() -> None:
    desk = a_desk(limits=LaneLimits(unsettled_bytes_max=250))
    desk.read(a_request(0), a_request(1))

    assert found(desk.read(a_request(2)), PausePartition) == [PausePartition(*STANDARD)]


def test_a_partition_pauses_at_its_span() -> None:
    desk = a_desk(limits=LaneLimits(cap=9, span_max=5))
    batches = send(desk, 0, 1, 2, 3)
    for batch in batches[1:]:
        desk.done(batch)

    assert found(desk.read(a_request(4)), PausePartition) == [PausePartition(*STANDARD)]
    assert found(desk.done(batches[0]), ResumePartition) == [ResumePartition(*STANDARD)]


# -- corners of the log


def test_no_committed_offset_means_the_logs_start() -> None:
    desk = Desk()
    said = desk.activate([a_partition(log_start=7, log_end=9)])

    assert found(said, ReadRequests)[0].positions == ((*STANDARD, 7),)


def test_a_retention_gap_is_one_dead_letter_and_only_then_passed() -> None:
    """§8 ◆: W stays below the gap until its letter is acked."""
    desk = Desk(slots=1, batch_max=1)
    old = CommitMetadata(0, completions=0)
    said = desk.activate(
        [a_partition(committed=3, log_start=8, log_end=9, metadata=old)]
    )

    assert found(said, ReadRequests)[0].positions == ((*STANDARD, 8),)
    (letters,) = desk.all(WriteDeadLetters)
    assert letters.letters[0].reason is Reason.RETENTION_GAP
    assert letters.letters[0].source == a_source(3)
    assert "3 to 7" in letters.letters[0].text
    (batch,) = send(desk, 8)
    desk.done(batch)
    desk.let_pass(SECOND)
    assert desk.watermark()[0] == 3

    desk.ended(letters.write)
    tick(desk)
    assert desk.watermark()[0] == 9


def test_a_log_that_was_cut_is_committed_at_its_end() -> None:
    desk = Desk()
    old = CommitMetadata(0, completions=0)
    said = desk.activate([a_partition(committed=30, log_end=9, metadata=old)])

    assert found(said, ReadRequests)[0].positions == ((*STANDARD, 9),)
    assert desk.watermark()[0] == 9
    assert [alarm.event for alarm in desk.all(Alarm)] == ["position.lost"]


def test_a_reader_that_fell_behind_retention_goes_on_at_the_logs_start() -> None:
    desk = a_desk()
    (batch,) = send(desk, 0)

    said = desk.tell(ReadingLost(*STANDARD, log_start=6, log_end=9))

    assert found(said, ReadRequests) == [ReadRequests(((*STANDARD, 6),))]
    (letters,) = found(said, WriteDeadLetters)
    assert letters.letters[0].source == a_source(1)
    desk.done(batch)
    desk.ended(letters.write)
    tick(desk)
    assert desk.watermark()[0] == 6


def test_what_was_done_in_a_gap_does_not_hold_c_back() -> None:
    desk = a_desk()
    desk.done_elsewhere(a_source(2))
    desk.tell(ReadingLost(*STANDARD, log_start=6, log_end=9))
    desk.done_elsewhere(a_source(3))
    (letters,) = desk.all(WriteDeadLetters)
    desk.ended(letters.write)
    desk.tell(CompletionsAt(90))
    tick(desk)

    assert desk.watermark() == (6, CommitMetadata(desk.lane.epoch, completions=90))


def test_a_log_replaced_under_its_reader_is_read_from_its_end() -> None:
    desk = a_desk(cap=1)
    (batch,) = send(desk, 0)
    desk.read(a_request(1), a_request(2))

    said = desk.tell(ReadingLost(*STANDARD, log_start=0, log_end=1))

    assert found(said, ReadRequests) == [ReadRequests(((*STANDARD, 1),))]
    assert desk.scheduler.queue == {}
    desk.done(batch)
    tick(desk)
    assert desk.watermark()[0] == 1
    assert desk.all(WriteReplies) == []
    assert len(send(desk, 1)) == 1


# -- the rule itself


@given(
    st.lists(
        st.tuples(st.integers(0, 7), st.one_of(st.none(), st.integers(0, 20))),
        max_size=12,
    ),
    st.integers(0, 8),
)
def test_w_and_c_are_what_their_definition_says(
    settled: list[tuple[int, int | None]], read: int
) -> None:
    """D8, whatever is settled in whatever order, also ahead of the reader."""
    log: PartitionLog[str] = PartitionLog("requests", 0, position=0)
    known: dict[int, int | None] = {}
    for turn, (offset, done) in enumerate(settled):
        for next_offset in range(min(read, turn)):
            if log.read(next_offset):
                log.entries[next_offset] = "entry"
        if offset not in known:
            known[offset] = done
            log.settle(offset, done)
    for next_offset in range(read):
        if log.read(next_offset):
            log.entries[next_offset] = "entry"

    unsettled = [offset for offset in range(read) if offset not in known]
    watermark = min(unsettled, default=read)
    above = [done for o, done in known.items() if o >= watermark and done is not None]
    assert log.watermark == watermark
    assert log.scan_from(15) == min([15, *above])


@given(st.integers(0), st.integers(0), st.integers(0), st.none() | st.integers(0))
def test_metadata_says_what_was_written(
    epoch: int, completions: int, takeovers: int, suspect: int | None
) -> None:
    metadata = CommitMetadata(epoch, completions, takeovers, suspect)

    assert CommitMetadata.parse(metadata.encode()) == metadata


def test_metadata_reads_as_the_protocol_writes_it() -> None:
    assert CommitMetadata(7, 12, 1).encode() == "1;e=7;c=12;n=1"
    assert CommitMetadata.parse("1;e=7;c=12;n=1;s=40") == CommitMetadata(7, 12, 1, 40)
    for other in ("", "consumer-1", "2;e=7;c=12;n=1", "1;e=7", "1;e=x;c=1;n=1"):
        assert CommitMetadata.parse(other) is None


def test_a_suspect_travels_with_its_deaths() -> None:
    for metadata in (
        CommitMetadata(7, completions=3),
        CommitMetadata(7, completions=3, takeovers=2, suspect=0),
        CommitMetadata(7, completions=3, takeovers=2, suspect=9, deaths=2),
    ):
        assert CommitMetadata.parse(metadata.encode()) == metadata
    assert CommitMetadata.parse("1;e=7;c=3;n=2;s=9") == CommitMetadata(7, 3, 2, 9)
