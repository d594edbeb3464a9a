"""The same events again, in another order, and requests that come back."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from headrace.domain import Arrived, BatchEnded, Dispatch, Reason, Refuse, Request
from headrace.scheduling import SchedulingSettings
from tests.scheduling.room import Room
from tests.scheduling.scenes import MS, Desk, a_request, a_version, keys

NO_HOPS = SchedulingSettings(control_hop_us=0, response_hop_us=0)
VERSIONS = a_version(max_batch=3), a_version("n", max_batch=2)


def by_queue(requests: list[Request]) -> dict[tuple[str, str], list[str]]:
    """Keys of the requests of each queue, in the order in which they were run."""
    room = Room(*VERSIONS, slots=1, settings=NO_HOPS)
    room.run(requests)
    found: dict[tuple[str, str], list[str]] = {}
    for sent in room.sent:
        for each in sent.dispatch.requests:
            found.setdefault((each.model, each.shape), []).append(each.key)
    return found


@given(
    st.lists(
        st.tuples(
            st.sampled_from("mn"), st.sampled_from("ab"), st.sampled_from([500, 900])
        ),
        min_size=2,
        max_size=20,
    ),
    st.randoms(use_true_random=False),
)
@hypothesis_settings(max_examples=100, deadline=None)
def test_order_between_queues_changes_none_within_one(
    kinds: list[tuple[str, str, int]], dice: Random
) -> None:
    """I16, of requests that came at one instant."""
    requests = [
        a_request(model=model, shape=shape, limit_us=limit_ms * MS)
        for model, shape, limit_ms in kinds
    ]
    waiting: dict[tuple[str, str], list[Request]] = {}
    for request in requests:
        waiting.setdefault((request.model, request.shape), []).append(request)
    turns = [queue for queue, own in waiting.items() for _ in own]
    dice.shuffle(turns)
    shuffled = [waiting[queue].pop(0) for queue in turns]

    assert by_queue(shuffled) == by_queue(requests)


def a_desk_that_lost_its_batch() -> tuple[Desk, Request]:
    """``first`` ran until 30 ms on a worker that is gone; ``second`` has waited."""
    desk = Desk(a_version(max_batch=1, alpha_us=9 * MS))
    first, second = a_request(limit_us=50 * MS), a_request(limit_us=90 * MS)
    desk.arrive(first)
    (dispatch,) = desk.tick()
    assert isinstance(dispatch, Dispatch)
    desk.arrive(second, now_us=1 * MS)
    desk.held[0].clear()
    desk.former.handle(BatchEnded(dispatch.batch, 0, None), 30 * MS)
    desk.tell(0, now_us=30 * MS)
    return desk, first


def test_what_comes_back_keeps_its_deadline_and_its_place() -> None:
    """I19: it goes before what came later, and ends no later than it had to."""
    desk, first = a_desk_that_lost_its_batch()

    desk.former.handle(Arrived(first), 30 * MS)
    (again, *_) = desk.tick(30 * MS)

    assert isinstance(again, Dispatch)
    assert again.requests == (first,)
    assert again.latest_start_us is not None
    assert again.latest_start_us + again.predicted_us == 50 * MS


def test_what_comes_back_too_late_is_refused_and_not_run() -> None:
    """I19: no time is added for what it has lost."""
    desk, first = a_desk_that_lost_its_batch()

    desk.former.handle(Arrived(first), 45 * MS)
    refused, sent = desk.tick(45 * MS)

    assert isinstance(refused, Refuse)
    assert (keys(refused), refused.reason) == (
        [first.key],
        Reason.DEADLINE_UNATTAINABLE,
    )
    assert isinstance(sent, Dispatch)
