"""What becomes of a request: its identity, its version, its arrival."""

from headrace.delivery.decisions import (
    Commit,
    FetchPositions,
    ReadRequests,
    WriteBatch,
    WriteReplies,
)
from headrace.delivery.events import (
    HopsMeasured,
    PositionsFetched,
    RequestRead,
    VersionsChanged,
)
from headrace.domain import MemberStatus, Reason
from tests.delivery.builders import (
    a_partition,
    a_request,
    a_source,
    a_version,
)
from tests.delivery.desk import a_desk, batches_in, found, ids, send

OK, RETRY = MemberStatus.OK, MemberStatus.RETRY
FINAL, UNACKED = MemberStatus.FINAL, MemberStatus.UNACKED


# -- identity


def test_a_duplicate_joins_its_entry_and_settles_with_it() -> None:
    """§6.1 ◆: two entries of one identity could end differently."""
    desk = a_desk()
    batch = send(desk, a_request(0, id="x"), a_request(1, id="x"))

    assert ids(batch) == ["x"]
    assert desk.lane.unsettled()[a_source(0)[:2]] == 2
    desk.done(batch)

    assert desk.lane.unsettled()[a_source(0)[:2]] == 0
    desk.let_pass(desk.limits.commit_us)
    assert desk.watermark()[0] == 2


def test_a_duplicate_joins_while_the_first_flies() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0, id="x"))

    assert batches_in(desk.read(a_request(1, id="x"))) == []
    desk.done(batch)

    assert desk.all(WriteBatch) == [batch]
    assert desk.lane.unsettled()[a_source(0)[:2]] == 0


def test_a_hand_made_record_never_joins_another() -> None:
    """§6.1 ◆: clients of other writers send the id 1 all day."""
    desk = a_desk()

    batch = send(
        desk,
        a_request(0, id="1", made_by_us=False),
        a_request(1, id="1", made_by_us=False),
    )

    assert ids(batch) == ["1", "1"]


def test_a_record_that_is_read_twice_is_one() -> None:
    desk = a_desk(batch_max=1)
    batch = send(desk, a_request(0))
    desk.done(batch)

    assert desk.read(a_request(0)) == []


def test_a_request_of_a_partition_that_is_not_ours_is_ignored() -> None:
    desk = a_desk()

    assert desk.read(a_request(0, model="another")) == []


# -- versions


def test_what_is_queued_for_a_version_that_is_gone_is_refused() -> None:
    desk = a_desk()
    send(desk, a_request(0))
    desk.read(a_request(1))

    said = desk.tell(VersionsChanged(()))

    (replies,) = found(said, WriteReplies)
    assert [(t.id, t.reason) for t in replies.terminals] == [
        ("r1", Reason.MODEL_UNAVAILABLE)
    ]
    assert desk.scheduler.queue == {}


def test_a_version_whose_slots_all_load_keeps_its_queue() -> None:
    desk = a_desk()
    send(desk, a_request(0))
    desk.read(a_request(1))

    assert desk.tell(VersionsChanged((a_version(slots=frozenset()),))) == []
    assert list(desk.scheduler.queue) == [a_request(1).key]


def test_a_retry_of_a_version_that_is_gone_is_refused() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0))
    desk.tell(VersionsChanged(()))

    (replies,) = found(desk.done(batch, RETRY, "model_unavailable"), WriteReplies)

    assert replies.terminals[0].reason is Reason.MODEL_UNAVAILABLE


def test_a_new_models_partitions_are_read_and_committed_at_once() -> None:
    desk = a_desk()
    versions = (a_version(), a_version("new"))
    assert desk.tell(VersionsChanged(versions)) == [FetchPositions(0, ("new",))]
    fetched = PositionsFetched((a_partition(model="new", log_end=3),), 0, 2)

    said = desk.tell(fetched)

    assert found(said, ReadRequests) == [
        ReadRequests(((*a_source(0, model="new")[:2], 0),))
    ]
    (commit,) = found(said, Commit)
    assert [(e.topic, e.offset) for e in commit.entries] == [
        (a_source(0, model="new").topic, 0)
    ]
    assert len(batches_in(desk.read(a_request(0, model="new")))) == 1


def test_a_new_model_without_a_topic_yet_is_asked_for_again() -> None:
    desk = a_desk()
    desk.tell(VersionsChanged((a_version(), a_version("new"))))
    desk.tell(PositionsFetched((), 0, 2))

    said = desk.let_pass(desk.limits.ask_again_us)

    assert found(said, FetchPositions) == [FetchPositions(0, ("new",))]


# -- arrival


def test_an_overdue_request_is_refused_and_never_run() -> None:
    """D2"""
    desk = a_desk()

    said = desk.tell(RequestRead(a_request(0), overdue=True))
    said += desk.tick()

    (replies,) = found(said, WriteReplies)
    assert replies.terminals[0].reason is Reason.EXPIRED
    assert desk.all(WriteBatch) == []


def test_several_refusals_share_a_write() -> None:
    desk = a_desk()
    for offset in range(3):
        desk.tell(RequestRead(a_request(offset), overdue=True))

    (replies,) = found(desk.tick(), WriteReplies)

    assert [t.id for t in replies.terminals] == ["r0", "r1", "r2"]


def test_measured_hops_reach_the_scheduler() -> None:
    desk = a_desk()
    desk.tell(HopsMeasured(1_000, 2_000))

    assert HopsMeasured(1_000, 2_000) in desk.scheduler.events
