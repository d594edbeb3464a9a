"""Batches of requests that are padded to one length."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.domain import Dispatch, Padding, ReleaseReason, Request
from tests.scheduling.scenes import MS, Desk, a_request, a_version

EDGES = (4, 8, 16)


def padding(tokens_max: int | None = None) -> Padding:
    return Padding("sequence", {"ids": 0}, {"ids": 1}, {}, EDGES, tokens_max)


def of_length(length: int, rows: int = 1, **how: int | str) -> Request:
    edge = padding().edge(length)
    return a_request(shape=f"ids:INT64:~{edge}", length=length, rows=rows, **how)


def dispatched(desk: Desk, now_us: int = 0) -> Dispatch:
    (dispatch,) = desk.tick(now_us)
    assert isinstance(dispatch, Dispatch)
    return dispatch


@given(
    requests=st.lists(
        st.tuples(st.integers(1, 20), st.integers(1, 3)), min_size=1, max_size=20
    ),
    tokens_max=st.integers(1, 64),
)
def test_no_batch_passes_the_tokens_but_one_request_always_fits(
    requests: list[tuple[int, int]], tokens_max: int
) -> None:
    """I3."""
    desk = Desk(a_version(max_batch=6, padding=padding(tokens_max)))
    desk.arrive(
        *(of_length(length, rows, limit_us=9_000 * MS) for length, rows in requests)
    )
    sent = 0
    for turn in range(len(requests)):
        dispatch = dispatched(desk, turn * 100 * MS)
        rows = sum(request.rows for request in dispatch.requests)
        edge = dispatch.padded_length
        longest = max(each.length for each in dispatch.requests)
        assert padding().edge(longest) == edge
        assert rows * edge <= tokens_max or len(dispatch.requests) == 1
        sent += len(dispatch.requests)
        if sent == len(requests):
            return
        desk.finish(now_us=(turn + 1) * 100 * MS)
    raise AssertionError("not all were sent")


def test_unless_said_what_is_longer_than_every_edge_comes_in_smaller_batches() -> None:
    desk = Desk(a_version(max_batch=6, padding=padding()))
    desk.arrive(*(of_length(32) for _ in range(8)))

    dispatch = dispatched(desk)

    # Six rows of 16 are as much as three of 32.
    assert len(dispatch.requests) == 3
    assert dispatch.reason is ReleaseReason.FULL


def test_until_it_ran_a_length_is_expected_to_take_its_part_of_the_probes_time() -> (
    None
):
    # 1 ms, and 1 ms a row of length 16.
    desk = Desk(
        a_version(slots=frozenset({0, 1}), padding=padding(), run_length=16), slots=2
    )

    desk.arrive(*(of_length(4) for _ in range(4)))
    short = dispatched(desk)
    desk.arrive(*(of_length(32) for _ in range(2)))
    long = dispatched(desk)

    assert (short.padded_length, short.predicted_us) == (4, 2 * MS)
    assert (long.padded_length, long.predicted_us) == (32, 5 * MS)


def test_what_a_length_needs_is_held_against_its_deadline() -> None:
    desk = Desk(a_version(padding=padding(), run_length=4))
    desk.arrive(*(of_length(16, limit_us=8 * MS) for _ in range(4)))

    # Rows of 16 take 4 ms each, and a quarter more is left for what is not known.
    assert len(dispatched(desk).requests) == 1


def test_shorter_requests_ride_along_instead_of_having_a_batch_of_their_own() -> None:
    desk = Desk(a_version(max_batch=6, padding=padding(tokens_max=64)))
    desk.arrive(*(of_length(16, limit_us=50 * MS) for _ in range(2)))
    desk.arrive(*(of_length(length, limit_us=90 * MS) for length in (3, 4)))

    dispatch = dispatched(desk)

    assert [each.length for each in dispatch.requests] == [16, 16, 3, 4]
    assert (dispatch.padded_length, dispatch.padded_rows) == (16, 4)
    desk.finish(now_us=10 * MS)
    assert desk.tick(20 * MS) == []


def test_all_shorter_requests_ride_along_or_none() -> None:
    """The rest of them would need its batch all the same."""
    desk = Desk(a_version(max_batch=6, padding=padding(tokens_max=64)))
    desk.arrive(*(of_length(16, limit_us=50 * MS) for _ in range(2)))
    desk.arrive(*(of_length(4, limit_us=90 * MS) for _ in range(3)))

    assert [each.length for each in dispatched(desk).requests] == [16, 16]


def test_nobody_rides_along_where_that_takes_longer_than_a_batch_of_his_own() -> None:
    # 1 ms, and 1 ms a row of length 16; a quarter of that for a row of length 4.
    served = a_version(padding=padding(tokens_max=64), run_length=16)
    for shorter, expected in ((1, 3), (2, 2)):
        desk = Desk(served)
        desk.arrive(*(of_length(16, limit_us=50 * MS) for _ in range(2)))
        desk.arrive(*(of_length(4, limit_us=90 * MS) for _ in range(shorter)))
        assert len(dispatched(desk).requests) == expected


def test_nobody_rides_along_who_would_make_a_batch_late() -> None:
    desk = Desk(a_version(padding=padding(tokens_max=64)))
    desk.arrive(*(of_length(16, limit_us=5 * MS) for _ in range(2)))
    desk.arrive(*(of_length(4, limit_us=90 * MS) for _ in range(2)))

    assert len(dispatched(desk).requests) == 2


def test_nobody_rides_along_to_the_worker_that_he_avoids() -> None:
    desk = Desk(a_version(max_batch=6, padding=padding(tokens_max=64)))
    desk.arrive(*(of_length(16, limit_us=50 * MS) for _ in range(2)))
    desk.arrive(of_length(4, limit_us=90 * MS, avoid=0))

    assert [each.length for each in dispatched(desk).requests] == [16, 16]


def test_who_runs_alone_takes_nobody_along_and_rides_with_nobody() -> None:
    desk = Desk(a_version(max_batch=6, padding=padding(tokens_max=64)))
    desk.arrive(of_length(16, limit_us=50 * MS, group="g"), of_length(4))
    assert len(dispatched(desk).requests) == 1
    desk = Desk(a_version(max_batch=6, padding=padding(tokens_max=64)))
    desk.arrive(of_length(16, limit_us=50 * MS), of_length(4, group="g"))
    assert len(dispatched(desk).requests) == 1
