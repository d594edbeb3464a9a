"""Who leaves with whom, when, and to which worker."""

from __future__ import annotations

import msgspec

from headrace.domain import (
    Dispatch,
    Priority,
    Reason,
    Refuse,
    ReleaseReason,
    SchedulerDecision,
    ServedVersion,
    VersionChanged,
    Withdrawn,
)
from headrace.scheduling import SchedulingSettings
from tests.scheduling.scenes import MS, Desk, a_request, a_version, keys


def dispatches(decisions: list[object]) -> list[Dispatch]:
    return [decision for decision in decisions if isinstance(decision, Dispatch)]


def test_a_lone_request_leaves_at_once_when_a_worker_is_idle() -> None:
    desk = Desk()
    desk.arrive(a_request(key="a"))

    (dispatch,) = desk.tick()

    assert keys(dispatch) == ["a"]
    assert dispatch.reason == ReleaseReason.IDLE


def test_requests_read_together_leave_together() -> None:
    desk = Desk()
    desk.arrive(*(a_request(key=key) for key in "abc"))

    (dispatch,) = desk.tick()

    assert keys(dispatch) == ["a", "b", "c"]


def test_a_batch_never_passes_the_largest_that_the_model_runs() -> None:
    desk = Desk()
    desk.arrive(*(a_request() for _ in range(5)))

    (dispatch,) = desk.tick()

    assert len(dispatch.requests) == 4
    assert dispatch.reason == ReleaseReason.FULL


def test_rows_count_and_not_requests() -> None:
    desk = Desk()
    desk.arrive(a_request(key="a", rows=3), a_request(key="b", rows=2))

    (dispatch,) = desk.tick()

    assert keys(dispatch) == ["a"]


def test_bytes_close_a_batch_and_one_request_always_fits() -> None:
    settings = SchedulingSettings(
        control_hop_us=0, response_hop_us=0, batch_bytes_max=10
    )
    desk = Desk(slots=2, settings=settings)
    desk.arrive(a_request(key="a", size_bytes=20), a_request(key="b", size_bytes=9))

    assert [keys(dispatch) for dispatch in desk.tick()] == [["a"], ["b"]]


def test_only_equal_model_version_and_shape_share_a_batch() -> None:
    desk = Desk(a_version(), a_version(version="2"), a_version("n"))
    desk.arrive(
        a_request(key="a"),
        a_request(key="b", shape="x:FP32:2"),
        a_request(key="c", version="2"),
        a_request(key="d", model="n"),
        a_request(key="e"),
    )
    batches = []
    now_us = 0
    for _ in range(4):
        batches += [keys(decision) for decision in desk.tick(now_us)]
        now_us += 10 * MS
        if desk.held[0]:
            desk.finish(now_us=now_us)

    assert sorted(batches) == [["a", "e"], ["b"], ["c"], ["d"]]


def test_interleaved_shapes_do_not_close_each_others_batches() -> None:
    desk = Desk(a_version(max_batch=8))
    for number in range(16):
        desk.arrive(a_request(shape=f"x:FP32:{number % 2}"))

    sizes = [len(dispatch.requests) for dispatch in dispatches(desk.tick())]
    desk.finish(now_us=9 * MS)
    sizes += [len(dispatch.requests) for dispatch in dispatches(desk.tick(9 * MS))]

    assert sizes == [8, 8]


def test_nothing_is_sent_without_a_credit() -> None:
    desk = Desk()
    desk.arrive(*(a_request() for _ in range(12)))
    desk.tick()
    desk.tick(5 * MS)

    assert len(desk.held[0]) == 2
    assert desk.tick(6 * MS) == []


def test_the_credit_ahead_is_used_two_hops_before_the_run_ends() -> None:
    settings = SchedulingSettings(control_hop_us=1 * MS, response_hop_us=0)
    desk = Desk(settings=settings)
    desk.arrive(a_request())
    desk.tick()
    desk.arrive(a_request(key="b"))

    # One row runs 2 ms and starts a hop after the decision: it ends at 3 ms.
    assert desk.tick(999) == []
    assert desk.former.wakeup_at_us() == 1 * MS
    (dispatch,) = desk.tick(1 * MS)
    assert dispatch.reason == ReleaseReason.AHEAD


def test_what_comes_while_a_batch_runs_leaves_as_one_batch() -> None:
    desk = Desk(a_version(max_batch=8))
    desk.arrive(a_request())
    desk.tick()
    for number in range(7):
        desk.arrive(a_request(at_us=number * 100), now_us=number * 100)
        assert desk.tick(number * 100) == []

    (dispatch,) = desk.tick(2 * MS)

    assert len(dispatch.requests) == 7


def test_an_idle_worker_comes_before_the_credit_ahead_of_a_busy_one() -> None:
    desk = Desk(slots=2)
    desk.arrive(a_request())
    desk.tick()
    desk.arrive(a_request())

    (dispatch,) = desk.tick(2 * MS)

    assert dispatch.slot == 1


def test_a_batch_goes_to_a_worker_that_has_the_version() -> None:
    desk = Desk(a_version(slots=frozenset({1})), slots=2)
    desk.arrive(a_request())

    (dispatch,) = desk.tick()

    assert dispatch.slot == 1


def test_a_retried_request_avoids_its_first_worker_where_another_is_idle() -> None:
    desk = Desk(slots=2)
    desk.arrive(a_request(avoid=0))

    (dispatch,) = desk.tick()

    assert dispatch.slot == 1


def test_a_group_keeps_to_itself() -> None:
    desk = Desk(slots=2)
    desk.arrive(
        a_request(key="a", group="g"),
        a_request(key="b"),
        a_request(key="c"),
        a_request(key="d", group="g", priority=Priority.BULK, limit_us=None),
    )

    batches = dispatches(desk.tick())

    assert sorted(sorted(keys(each)) for each in batches) == [["a", "d"], ["b", "c"]]
    group = next(dispatch for dispatch in batches if "a" in keys(dispatch))
    assert group.reason == ReleaseReason.ALONE


def test_the_earliest_deadline_leaves_first() -> None:
    desk = Desk(a_version(max_batch=2))
    desk.arrive(
        a_request(key="late", limit_us=900 * MS),
        a_request(key="soon", limit_us=100 * MS),
        a_request(key="sooner", limit_us=50 * MS),
    )

    (dispatch,) = desk.tick()

    assert keys(dispatch) == ["sooner", "soon"]


def test_a_more_urgent_priority_leaves_first() -> None:
    desk = Desk(a_version(max_batch=1))
    desk.arrive(
        a_request(key="standard", limit_us=10 * MS),
        a_request(key="realtime", priority=Priority.REALTIME),
    )

    (dispatch,) = desk.tick()

    assert keys(dispatch) == ["realtime"]


def test_lower_priorities_ride_along_in_what_is_left_of_a_batch() -> None:
    desk = Desk(a_version(max_batch=4))
    bulk = [a_request(priority=Priority.BULK, limit_us=None) for _ in range(3)]
    desk.arrive(*bulk, a_request(key="b"))
    desk.arrive(a_request(key="a", priority=Priority.INTERACTIVE))

    (dispatch,) = desk.tick()

    # A fourth row would make the others cheaper by less than it keeps them.
    assert keys(dispatch) == ["a", "b", bulk[0].key]


def test_riding_along_never_costs_a_deadline() -> None:
    desk = Desk(a_version(max_batch=4))
    now_us = 0
    for _ in range(20):
        desk.arrive(a_request(at_us=now_us), now_us=now_us)
        desk.tick(now_us)
        now_us += 2 * MS
        desk.finish(now_us=now_us)
    # By now a row is known to run 2 ms, two 3 ms at most 1.25 times that.
    desk.arrive(
        a_request(key="online", at_us=now_us, limit_us=4 * MS),
        *(a_request(priority=Priority.BULK, limit_us=None) for _ in range(3)),
        now_us=now_us,
    )

    (dispatch,) = desk.tick(now_us)

    assert len(dispatch.requests) == 2


def test_who_rides_along_keeps_his_own_deadline_too() -> None:
    desk = Desk(a_version(max_batch=4))
    desk.arrive(
        *(a_request(priority=Priority.REALTIME) for _ in range(3)),
        a_request(key="tight", limit_us=6 * MS),
    )

    (dispatch,) = desk.tick()

    # Four rows are bounded at 6.25 ms.
    assert "tight" not in keys(dispatch)


def test_a_short_deadline_frees_its_batch_and_a_long_one_shrinks_nobodys() -> None:
    desk = Desk(a_version(max_batch=4))
    desk.arrive(
        a_request(key="5s", limit_us=5000 * MS),
        a_request(key="20ms", limit_us=20 * MS),
        a_request(key="another", limit_us=5000 * MS),
    )

    (dispatch,) = desk.tick()

    assert keys(dispatch) == ["20ms", "5s", "another"]


def test_a_request_that_cannot_make_it_is_refused_with_the_numbers() -> None:
    desk = Desk()
    desk.arrive(a_request(key="a", limit_us=1 * MS))

    (refused,) = desk.tick(500)

    assert isinstance(refused, Refuse)
    assert refused.reason == Reason.DEADLINE_UNATTAINABLE
    assert refused.text == (
        "0.5 ms of its time limit were left, and it needs 2.6 ms: 0.0 until it can "
        "start, 2.6 for the run and 0.0 for the answer"
    )


def test_a_request_whose_time_passed_is_expired() -> None:
    desk = Desk()
    desk.arrive(a_request(key="a", limit_us=1 * MS))

    (refused,) = desk.tick(1 * MS)

    assert isinstance(refused, Refuse)
    assert refused.reason == Reason.EXPIRED


def test_a_wakeup_is_asked_for_when_the_first_request_becomes_hopeless() -> None:
    desk = Desk()
    desk.arrive(*(a_request() for _ in range(4)))
    desk.tick()
    desk.arrive(a_request(key="hopeless", limit_us=6 * MS), now_us=1 * MS)
    assert desk.tick(1 * MS) == []

    # One row is bounded at 2.5 ms, so after 3.5 ms it is lost.
    wakeup_us = desk.former.wakeup_at_us()
    assert wakeup_us is not None
    assert [keys(refused) for refused in desk.tick(wakeup_us)] == [["hopeless"]]


def test_without_a_worker_a_request_ends_for_want_of_capacity() -> None:
    desk = Desk(slots=0)
    desk.former.handle(VersionChanged(a_version()), 0)
    desk.arrive(a_request(limit_us=10 * MS))

    assert desk.tick(1 * MS) == []
    (refused,) = desk.tick(9 * MS)

    assert isinstance(refused, Refuse)
    assert refused.reason == Reason.NO_CAPACITY


def test_a_full_queue_refuses_the_next_online_request() -> None:
    settings = SchedulingSettings(
        control_hop_us=0, response_hop_us=0, queue_requests_max=2
    )
    desk = Desk(settings=settings)
    desk.arrive(a_request(), a_request(), a_request(key="c"))
    desk.arrive(a_request(key="d", tenant="other"))

    refused = [decision for decision in desk.tick() if isinstance(decision, Refuse)]

    assert [(keys(each), each.reason) for each in refused] == [
        (["c"], Reason.QUEUE_FULL)
    ]


def test_a_withdrawn_request_is_never_sent() -> None:
    desk = Desk()
    desk.arrive(a_request(key="a"), a_request(key="b"))
    desk.former.handle(Withdrawn("a"), 0)
    desk.former.handle(Withdrawn("nobody"), 0)

    assert [keys(decision) for decision in desk.tick()] == [["b"]]


def test_a_repeated_arrival_changes_nothing() -> None:
    desk = Desk()
    request = a_request(key="a")
    desk.arrive(request, request)

    assert [keys(decision) for decision in desk.tick()] == [["a"]]


def test_a_version_that_is_gone_ends_what_waits_for_it() -> None:
    desk = Desk(slots=0)
    served = a_version()
    desk.former.handle(VersionChanged(served), 0)
    desk.arrive(a_request(key="a"))
    gone = ServedVersion(
        **{
            name: getattr(served, name)
            for name in served.__struct_fields__
            if name != "ready_slots"
        },
        ready_slots=frozenset(),
    )
    desk.former.handle(VersionChanged(gone), 0)
    desk.arrive(a_request(key="b"))

    refused = desk.tick()

    assert [keys(each) for each in refused] == [["a"], ["b"]]
    assert {each.reason for each in refused if isinstance(each, Refuse)} == {
        Reason.MODEL_UNAVAILABLE
    }


def test_what_is_queued_waits_for_a_worker_that_loads_the_version_again() -> None:
    desk = Desk()
    desk.arrive(a_request(key="a"))
    loading = msgspec.structs.replace(
        a_version(), ready_slots=frozenset(), loading_slots=frozenset({0})
    )
    desk.former.handle(VersionChanged(loading), 0)
    assert desk.tick() == []

    desk.former.handle(VersionChanged(a_version()), 1 * MS)

    assert [keys(decision) for decision in desk.tick(1 * MS)] == [["a"]]


def test_more_rows_than_the_model_runs_are_refused() -> None:
    desk = Desk()
    desk.arrive(a_request(rows=5))

    (refused,) = desk.tick()

    assert isinstance(refused, Refuse)
    assert refused.text == "5 rows, and the model runs at most 4"


def test_bulk_gets_its_share_of_a_saturated_worker() -> None:
    desk = Desk(a_version(max_batch=1), a_version("other", max_batch=1))
    desk.arrive(
        *(
            a_request(model="other", priority=Priority.BULK, limit_us=None)
            for _ in range(50)
        )
    )
    now_us = 0
    served = {Priority.STANDARD: 0, Priority.BULK: 0}
    for _ in range(200):
        desk.arrive(a_request(at_us=now_us, limit_us=60_000 * MS), now_us=now_us)
        for dispatch in dispatches(desk.tick(now_us)):
            served[dispatch.requests[0].priority] += 1
        now_us += 2 * MS
        desk.finish(now_us=now_us)

    assert 8 <= served[Priority.BULK] <= 12
    assert served[Priority.STANDARD] >= 185


def test_the_least_served_tenant_goes_first_when_not_all_fit() -> None:
    desk = Desk(a_version(max_batch=2))
    desk.arrive(*(a_request(tenant="big") for _ in range(6)))
    desk.tick()
    desk.arrive(a_request(key="small", tenant="small"), now_us=3 * MS)

    (dispatch,) = desk.tick(3 * MS)

    assert "small" in keys(dispatch)


def test_a_former_that_starts_knows_what_the_slots_measured() -> None:
    runs = tuple((4, us * MS) for us in (20, 21, 22, 21, 20))
    slots = frozenset({0, 1})
    desk = Desk(a_version(slots=slots, recent_runs={"known": runs}), slots=2)

    def dispatched(shape: str, limit_us: int) -> list[SchedulerDecision]:
        desk.arrive(*(a_request(shape=shape, limit_us=limit_us) for _ in range(4)))
        return desk.tick()

    assert isinstance(dispatched("known", 8 * MS)[0], Refuse)
    (known,) = dispatched("known", 30 * MS)
    (other,) = dispatched("other", 30 * MS)
    assert isinstance(known, Dispatch)
    assert isinstance(other, Dispatch)
    # The probe says 1 ms and 1 ms a row.
    assert 20 * MS <= known.predicted_us <= 22 * MS
    assert other.predicted_us == 5 * MS
