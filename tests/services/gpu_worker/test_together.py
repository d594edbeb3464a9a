from __future__ import annotations

from services.gpu_worker.together import TOGETHER_MAX, TOGETHER_US, Together


def test_short_runs_are_told_together() -> None:
    together: Together[str] = Together()
    assert together.add("a", 100, 100) == []
    assert together.add("b", 100, 100) == []
    assert together.add("c", 100, None) == ["a", "b", "c"]
    assert together.add("d", 100, None) == ["d"]


def test_nobody_waits_longer_than_a_moment() -> None:
    together: Together[int] = Together()
    third = TOGETHER_US // 3
    assert together.add(0, third, third) == []
    assert together.add(1, third, third) == []
    assert together.add(2, third, third) == [0, 1, 2]
    assert together.add(3, 100, TOGETHER_US) == [3]


def test_no_more_than_so_many_are_kept() -> None:
    together: Together[int] = Together()
    kept = [together.add(number, 1, 1) for number in range(TOGETHER_MAX)]
    assert kept == [*([[]] * (TOGETHER_MAX - 1)), [*range(TOGETHER_MAX)]]
