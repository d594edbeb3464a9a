"""Two ways to a worker, one at a time: what the former's lane sends by a link, and what
the worker takes from it."""

import pytest

from headrace.delivery.decisions import OpenLink, WriteSync
from headrace.delivery.events import LinkFound, LinkLost, Lost
from headrace.delivery.worker_decisions import (
    EndLink,
    Exit,
    Forget,
    Run,
    WorkerExit,
    WriteRefused,
    WriteReport,
)
from headrace.delivery.worker_events import LinkEnded, LinkOpened
from headrace.domain import HeldBatch, Joined
from tests.delivery.bench import JOIN, LANE, Bench
from tests.delivery.builders import MS, a_request
from tests.delivery.desk import Desk, batches_in, found

LINK = 7


def linked() -> Desk:
    """A lane whose only slot has answered since its link was found."""
    desk = Desk(slots=1)
    desk.activate()
    desk.tell(LinkFound(0, desk.incarnations[0], LINK))
    desk.report(0)
    return desk


# -- the former


def test_what_went_through_the_topic_is_read_before_anything_goes_by_a_link() -> None:
    """L1 ◆: else the first sync of the link would overtake a batch, and the report that
    does not name it would say that it is gone."""
    desk = Desk(slots=1)
    desk.activate()
    (through,) = batches_in(desk.read(a_request(0)))
    assert through.link is None

    said = desk.tell(LinkFound(0, desk.incarnations[0], LINK))

    (sync,) = found(said, WriteSync)
    assert sync.link is None
    assert batches_in(desk.read(a_request(1))) == []
    held = HeldBatch(through.dispatch.batch, (through.dispatch.requests[0].source,))
    said = [*desk.report(0, held=[held]), *desk.tick()]
    opening, batch = found(said, OpenLink)[0], batches_in(said)[0]
    assert (opening.link, opening.k, opening.epoch) == (LINK, sync.k, batch.epoch)
    assert said.index(opening) < said.index(batch)
    assert batch.link == LINK


def test_a_link_is_opened_once() -> None:
    desk = linked()
    (first,) = batches_in(desk.read(a_request(0)))
    (second,) = batches_in(desk.read(a_request(1)))

    assert (first.link, second.link) == (LINK, LINK)
    assert len(desk.all(OpenLink)) == 1


def test_a_link_to_another_process_than_the_one_that_reported_is_not_used() -> None:
    desk = Desk(slots=1)
    desk.activate()

    assert desk.tell(LinkFound(0, desk.incarnations[0] + 1, LINK)) == []
    assert batches_in(desk.read(a_request(0)))[0].link is None


def test_a_link_that_is_found_before_its_process_has_joined_waits_for_it() -> None:
    desk = Desk(slots=1)
    desk.activate()
    desk.tell(LinkFound(0, desk.completions_end, LINK))

    desk.complete(Joined(0, "exit:1"))
    desk.hear()
    said = [*desk.report(0), *desk.read(a_request(0))]

    assert batches_in(said)[0].link == LINK


def test_a_lost_link_is_asked_about_through_the_topic_and_never_used_again() -> None:
    """L2 ◆: nobody else will say what became of the batches in it."""
    desk = linked()
    (inside,) = batches_in(desk.read(a_request(0)))

    said = desk.tell(LinkLost(0, LINK))

    (sync,) = found(said, WriteSync)
    assert sync.link is None
    assert desk.free(0) == 0
    said = [*desk.report(0, k=sync.k), *desk.tick()]
    (again,) = batches_in(said)
    assert again.dispatch.requests[0].source == inside.dispatch.requests[0].source
    assert again.link is None


def test_an_older_answer_says_nothing_of_what_is_in_a_lost_link() -> None:
    desk = linked()
    desk.read(a_request(0))
    desk.tell(LinkLost(0, LINK))
    (sync,) = desk.all(WriteSync)[-1:]

    assert batches_in([*desk.report(0, k=sync.k - 1), *desk.tick()]) == []


def test_a_lost_link_that_was_never_used_costs_nothing() -> None:
    desk = Desk(slots=1)
    desk.activate()
    desk.tell(LinkFound(0, desk.incarnations[0], LINK))
    asked = len(desk.all(WriteSync))

    assert desk.tell(LinkLost(0, LINK)) == []

    desk.report(0)
    assert batches_in(desk.read(a_request(0)))[0].link is None
    assert len(desk.all(WriteSync)) == asked


def test_a_sync_follows_the_batches_by_their_way() -> None:
    """The report that answers it must name them."""
    desk = linked()
    (batch,) = batches_in(desk.read(a_request(0)))
    desk.incarnations[0] -= 1  # who answers is an older process
    desk.silent.add(0)
    desk.let_pass(batch.lease_us + 20 * MS)

    assert desk.all(WriteSync)[-1].link == LINK


def test_a_slots_new_process_is_not_sent_to_by_the_link_of_the_old_one() -> None:
    """L3 ◆"""
    desk = linked()
    said = desk.complete(Joined(0, "signal:KILL"))
    assert [each.link for each in found(said, WriteSync)] == [None]

    desk.hear()
    desk.report(0)
    assert batches_in(desk.read(a_request(0)))[0].link is None


def test_a_sync_names_the_process_that_its_former_knows() -> None:
    desk = Desk(slots=1)
    first = desk.all(WriteSync)
    desk.activate()
    assert [each.incarnation for each in desk.all(WriteSync)] == [*map(id, first), None]

    desk.complete(Joined(0, "exit:1"))
    assert desk.all(WriteSync)[-1].incarnation == desk.incarnations[0]


def test_a_batch_that_could_not_be_written_is_asked_about() -> None:
    """Its version changed: whichever way it would have gone."""
    desk = linked()
    (batch,) = batches_in(desk.read(a_request(0)))

    (sync,) = found(desk.ended(batch.write, None), WriteSync)

    assert sync.link == LINK


def test_the_answer_to_a_batch_of_a_lane_that_is_lost_finds_nobody() -> None:
    desk = linked()
    desk.tell(Lost())

    assert desk.tell(LinkLost(0, LINK)) == []


# -- the worker


def opened(*, epoch: int = 1, k: int = 1, bench: Bench | None = None) -> Bench:
    bench = bench or Bench()
    opening = LinkOpened(LINK, LANE, epoch, "f", k, JOIN)
    assert bench.tell(opening) == []
    return bench


def test_a_batch_is_taken_from_a_link() -> None:
    bench = opened()

    assert bench.batch("b", link=LINK) == [Run("b")]


def test_a_report_names_what_came_by_a_link() -> None:
    bench = opened()
    bench.batch("b", link=LINK)

    (report,) = found(bench.sync(k=2, link=LINK), WriteReport)

    assert report.held == ("b",)


@pytest.mark.parametrize("order", ["sync", "batch"])
def test_what_lies_in_a_link_when_its_former_writes_to_the_topic_is_dropped(
    order: str,
) -> None:
    """L4 ◆: it has been told already that the batch is gone, or will be."""
    bench = opened()

    said = bench.sync(k=2) if order == "sync" else bench.batch("through")

    assert EndLink(LINK) in said
    assert bench.batch("inside", link=LINK) == [Forget("inside")]
    assert bench.sync(k=1, link=LINK) == []


def test_a_sync_from_before_a_link_was_opened_does_not_end_it() -> None:
    """A former asks more than once, and takes the first answer."""
    bench = opened(k=3)

    said = bench.sync(k=3)

    assert found(said, EndLink) == []
    assert bench.batch("b", link=LINK) == [Run("b")]


def test_a_link_whose_opening_comes_behind_a_later_sync_is_over() -> None:
    """L5 ◆: its former gave it up before anything of it was read."""
    bench = Bench()
    bench.sync(k=3)

    assert bench.tell(LinkOpened(LINK, LANE, 1, "f", 2, JOIN)) == [EndLink(LINK)]
    assert bench.batch("inside", link=LINK) == [Forget("inside")]


def test_a_link_without_an_opening_brings_nothing() -> None:
    assert Bench().batch("b", link=LINK) == [Forget("b")]


@pytest.mark.parametrize(("lane", "incarnation"), [(LANE + 1, JOIN), (LANE, JOIN - 1)])
def test_a_link_that_is_meant_for_another_process_ends(
    lane: int, incarnation: int
) -> None:
    opening = LinkOpened(LINK, lane, 1, "f", 1, incarnation)

    assert Bench().tell(opening) == [EndLink(LINK)]


def test_a_former_has_one_link() -> None:
    bench = opened()

    said = bench.tell(LinkOpened(LINK + 1, LANE, 2, "f", 1, JOIN))

    assert said == [EndLink(LINK)]
    assert bench.batch("old", link=LINK) == [Forget("old")]


def test_the_topic_of_a_successor_leaves_a_link_to_the_rule_of_epochs() -> None:
    """So that the predecessor is told that it has been superseded."""
    bench = opened()
    bench.sync(epoch=2, former="successor")

    said = bench.batch("late", link=LINK)

    assert [each.reason for each in found(said, WriteRefused)] == ["epoch"]


def test_a_link_that_has_ended_is_forgotten() -> None:
    bench = opened()
    bench.tell(LinkEnded(LINK))

    assert found(bench.sync(k=2), EndLink) == []
    assert bench.batch("b", link=LINK) == [Forget("b")]


def test_a_sync_that_names_a_newer_process_ends_this_one() -> None:
    """L6 ◆: batches for the newer one may go by a link, where this one sees none."""
    bench = Bench()

    assert bench.sync(incarnation=JOIN + 1) == [Exit(WorkerExit.REPLACED)]


def test_a_sync_that_names_an_older_process_is_answered() -> None:
    """Its former has not read of this one yet."""
    assert found(Bench().sync(incarnation=JOIN - 1), WriteReport)
