from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headrace.delivery import Outstanding, Pacing, PacingLimits

TINY = PacingLimits(records_max=3, bytes_max=20)
LANES = 2


def test_a_record_goes_to_the_lane_with_the_shortest_queue() -> None:
    pacing = Pacing({3: (10, 12), 7: (5, 6)}, TINY)

    places = []
    for _ in range(3):
        number = pacing.place(1)
        assert number is not None
        places.append(number)
        pacing.sent(number, 1)

    assert places == [7, 3, 7]
    assert pacing.place(1) is None


def test_what_others_wrote_waits_too() -> None:
    pacing = Pacing({3: (10, 13)}, TINY)
    assert pacing.place(1) is None

    pacing.committed({3: 11, 99: 7})
    assert pacing.place(1) == 3


def test_bytes_are_free_again_once_their_former_has_finished_them() -> None:
    pacing = Pacing({3: (0, 0)}, TINY)
    for offset in range(2):
        pacing.sent(3, 9)
        pacing.acked(3, offset, 9)
    assert pacing.place(9) is None

    pacing.committed({3: 1})
    assert pacing.place(9) == 3


def test_a_mark_is_passed_when_all_before_it_is_acked() -> None:
    pacing = Pacing({3: (0, 5), 7: (0, 0)}, TINY)
    pacing.sent(7, 1)
    mark = pacing.mark()
    assert mark.ends == {3: 5, 7: 0}
    assert not pacing.has_acked(mark)
    pacing.sent(7, 1)

    pacing.acked(7, 0, 1)

    assert pacing.has_acked(mark)
    assert not pacing.has_acked(pacing.mark())


def test_a_record_of_any_size_fits_an_empty_queue() -> None:
    assert Pacing({3: (0, 0)}, TINY).place(1000) == 3


def test_a_record_that_was_not_acked_makes_room() -> None:
    pacing = Pacing({3: (0, 0)}, TINY)
    pacing.sent(3, 20)
    assert not pacing.is_drained
    assert pacing.place(1) is None

    pacing.failed(3, 20)

    assert pacing.is_drained
    assert pacing.place(1) == 3


@given(st.lists(st.sampled_from(["send", "ack", "fail", "commit"]), max_size=60))
def test_no_lane_holds_more_than_its_limits_and_drained_means_all_done(
    steps: list[str],
) -> None:
    pacing = Pacing(dict.fromkeys(range(LANES), (0, 0)), TINY)
    flying: list[int] = []
    log: Counter[int] = Counter()
    done: Counter[int] = Counter()
    for step in steps:
        if step == "send" and (number := pacing.place(4)) is not None:
            pacing.sent(number, 4)
            flying.append(number)
        elif step == "ack" and flying:
            number = flying.pop(0)
            pacing.acked(number, log[number], 4)
            log[number] += 1
        elif step == "fail" and flying:
            pacing.failed(flying.pop(0), 4)
        elif step == "commit":
            for number in range(LANES):
                done[number] = min(done[number] + 1, log[number])
            pacing.committed(dict(done))
        held = Counter(flying)
        for number in range(LANES):
            assert held[number] + log[number] - done[number] <= TINY.records_max
        assert pacing.waiting == len(flying) + sum((log - done).values())
        assert pacing.is_drained == (not flying and log == done)


def test_what_was_published_three_times_without_an_outcome_is_lost() -> None:
    outstanding = Outstanding()
    for name in ("a", "b"):
        outstanding.sent(name)
    assert outstanding.answered("a")
    assert not outstanding.answered("a")

    for _ in range(2):
        assert outstanding.missing() == (["b"], [])
        outstanding.sent("b")

    assert outstanding.missing() == ([], ["b"])
    assert len(outstanding) == 0
